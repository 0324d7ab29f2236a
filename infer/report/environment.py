"""What ran and where: versions and machine, asked of the system when a report is made."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from draftsmith.infer.report.schema import Machine, Versions


def collect_versions() -> Versions:
    """Versions of draftsmith, the libraries that set its numbers, Python and the system."""
    return Versions(
        draftsmith=_installed("draftsmith"),
        torch=_installed("torch"),
        transformers=_installed("transformers"),
        python=platform.python_version(),
        platform=platform.platform(),
    )


def describe_machine(device: str = "cpu") -> Machine:
    """The machine as this process sees it; `device` is where the target runs, as torch names it."""
    # Late, so that reading or rendering a report needs no torch.
    import torch

    if device.startswith("cuda"):
        device = f"{device} ({torch.cuda.get_device_name(device)})"
    return Machine(
        cpu=_cpu_model(),
        num_cores=_num_usable_cores(),
        num_threads=torch.get_num_threads(),
        memory_gib=_memory_gib(),
        device=device,
    )


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    if platform.system() == "Darwin":
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or platform.machine() or "unknown"


def _num_usable_cores() -> int:
    # Containers often confine a process to a few of the machine's cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _memory_gib() -> float | None:
    try:
        num_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return round(num_bytes / 2**30, 1)
