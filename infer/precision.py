"""Choose a compute precision by measuring this machine, for `dtype: auto`."""

import functools
import statistics
import time

import torch


def multiply_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Measured TFLOP/s of a [512, 1024] x [1024, 1024] product."""
    left = torch.ones(512, 1024, dtype=dtype, device=device)
    right = torch.ones(1024, 1024, dtype=dtype, device=device)
    seconds = []
    for _ in range(8):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return 2 * 512 * 1024 * 1024 / statistics.median(seconds[2:]) / 1e12


@functools.cache
def faster_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    """bf16 unless this device multiplies fp32 matrices faster; with a line saying what was seen.

    Processors with AMX and GPUs gain several-fold from bf16; without such units bf16 products are
    slower than fp32 ones.
    """
    bf16 = multiply_rate(torch.bfloat16, device)
    fp32 = multiply_rate(torch.float32, device)
    dtype = torch.bfloat16 if bf16 >= fp32 else torch.float32
    name = str(dtype).removeprefix("torch.")
    return dtype, f"{name} chosen: bfloat16 {bf16:.2f} TFLOP/s, float32 {fp32:.2f} TFLOP/s"


def resolve_dtype(name: str, device: torch.device) -> tuple[torch.dtype, str | None]:
    """Turn a `dtype` setting into a torch dtype and, for `auto`, the line to print."""
    if name == "auto":
        return faster_dtype(device)
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name], None
