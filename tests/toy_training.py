"""Captured data of a tiny target and the config of a short training on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from draftsmith.capture.dataset import (
    Counts,
    Manifest,
    Sample,
    ShardWriter,
    TargetRecord,
    count_samples,
    sample_key,
)
from draftsmith.configs.train import TrainConfig
from draftsmith.infer.target import Target

LAYER_IDS = [1, 4, 6]


def counting(start: int, length: int) -> list[int]:
    return [(start + t) % 97 for t in range(length)]


@torch.no_grad()
def capture_toy(
    target: Target,
    folder: Path,
    sequences: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]] | None = None,
    **changes: Any,
) -> Path:
    """A dataset of the target's own fp32 states; by default supervised from the fourth token on."""
    hidden = target.hidden_size
    options: dict = {"write_interval": 8, "codec": "fp32"}
    with ShardWriter(folder, layer_ids=LAYER_IDS, hidden_size=hidden, **options) as writer:
        for row, ids in enumerate(sequences):
            input_ids = torch.tensor(ids, dtype=torch.int32)
            states = target.model(input_ids[None].long(), output_hidden_states=True).hidden_states
            mask = masks[row] if masks else [0] * 3 + [1] * (len(ids) - 3)
            aux = torch.cat([states[k + 1][0] for k in LAYER_IDS], dim=-1)
            writer.write(
                Sample(
                    key=sample_key("toy", row, input_ids),
                    input_ids=input_ids,
                    loss_mask=torch.tensor(mask, dtype=torch.uint8),
                    hidden_states=states[-1][0],
                    aux_hidden_states=aux,
                    meta={"id": str(row)},
                )
            )
    samples, tokens, supervised = count_samples(folder)
    record = TargetRecord(
        path=target.path,
        fingerprint=target.fingerprint,
        num_layers=target.num_layers,
        hidden_size=hidden,
        vocab_size=target.vocab_size,
    )
    values: dict = {
        "target": record,
        "tokenizer_fingerprint": "aa",
        "chat_template_fingerprint": "bb",
        "layer_ids": LAYER_IDS,
        "hidden_size": hidden,
        "dtype": "float32",
        "codec": "fp32",
        "counts": Counts(samples=samples, tokens=tokens, supervised_tokens=supervised),
        "complete": True,
    }
    Manifest(**(values | changes)).write(folder)
    return folder


def toy_config(target: str | Path, data: Path, output: Path, **changes: Any) -> TrainConfig:
    """A few steps on the CPU; `changes` replace whole sections."""
    values: dict[str, Any] = {
        "target": {"path": str(target), "dtype": "float32", "device": "cpu"},
        "data": str(data),
        "output": str(output),
        "objective": {"num_steps": 3},
        "optimizer": {"lr": 1e-3},
        "budget": {"max_steps": 6},
        "batch": {"tokens": 64},
        "tracking": {"log_every": 1},
        "heldout_fraction": 1e-9,
    }
    return TrainConfig.model_validate(values | changes)
