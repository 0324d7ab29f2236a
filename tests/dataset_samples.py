"""Small captured datasets for tests: seeded samples, a manifest that fits them, and their bytes."""

from pathlib import Path

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

HIDDEN = 32
LAYER_IDS = [0, 1, 3]
VOCAB = 97


def make_sample(row: int, length: int = 8, hidden: int = HIDDEN, num_aux: int = 3) -> Sample:
    """A sample that depends on its arguments alone; states in bf16."""
    generator = torch.Generator().manual_seed(row)
    input_ids = torch.randint(0, VOCAB, (length,), generator=generator, dtype=torch.int32)
    states = torch.randn(length, (1 + num_aux) * hidden, generator=generator).bfloat16()
    return Sample(
        key=sample_key("toy", row, input_ids),
        input_ids=input_ids,
        loss_mask=(torch.arange(length) >= length // 2).to(torch.uint8),
        hidden_states=states[:, :hidden],
        aux_hidden_states=states[:, hidden:] if num_aux else None,
        meta={"id": f"row-{row}", "source": "toy", "temperature": 0.0},
    )


def make_samples(count: int) -> list[Sample]:
    """Samples of unequal lengths."""
    return [make_sample(row, length=1 + (5 * row) % 23) for row in range(count)]


def make_manifest(directory: Path | None = None, **changes: object) -> Manifest:
    """A complete manifest whose counts are those of the shards in `directory`."""
    samples, tokens, supervised = count_samples(directory) if directory else (0, 0, 0)
    values: dict = {
        "target": TargetRecord(
            path="toy", fingerprint="f00d", num_layers=4, hidden_size=HIDDEN, vocab_size=VOCAB
        ),
        "tokenizer_fingerprint": "aa",
        "chat_template_fingerprint": "bb",
        "layer_ids": LAYER_IDS,
        "hidden_size": HIDDEN,
        "dtype": "bfloat16",
        "codec": "bf16",
        "counts": Counts(samples=samples, tokens=tokens, supervised_tokens=supervised),
        "complete": True,
    }
    return Manifest(**(values | changes))


def open_writer(directory: Path, **changes: object) -> ShardWriter:
    """A writer with the settings of `make_manifest`, five samples to a shard."""
    settings: dict = {"write_interval": 5, "layer_ids": LAYER_IDS, "hidden_size": HIDDEN}
    return ShardWriter(directory, **(settings | changes))


def write_dataset(directory: Path, samples: list[Sample], codec: str = "bf16") -> Path:
    """A finished dataset."""
    with open_writer(directory, codec=codec) as writer:
        for sample in samples:
            writer.write(sample)
    make_manifest(directory, codec=codec).write(directory)
    return directory


def file_bytes(directory: Path) -> dict[str, bytes]:
    """Every visible file and its contents, so that two folders can be compared."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if not path.name.startswith(".")
    }
