"""The capture job: input rows to a finished dataset, continued where an earlier run stopped."""

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftsmith.capture.batching import batch_by_length
from draftsmith.capture.conversations import Rejected, read_conversations
from draftsmith.capture.dataset import count_samples
from draftsmith.capture.dataset.estimate import estimate_bytes
from draftsmith.capture.dataset.manifest import MANIFEST_NAME, Counts, Manifest, TargetRecord
from draftsmith.capture.dataset.sample import Sample, sample_key
from draftsmith.capture.dataset.writer import ShardWriter
from draftsmith.capture.forward import StateForward, States
from draftsmith.capture.identity import (
    check_identity,
    identify,
    read_identity,
    write_identity,
)
from draftsmith.capture.regenerate import Regenerator
from draftsmith.capture.rendering import Dropped, Rendered, Renderer
from draftsmith.capture.rows import Row
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import CaptureConfig
from draftsmith.configs.loading import load_config, write_config
from draftsmith.configs.support import refuse_unsupported
from draftsmith.infer.progress import Progress
from draftsmith.infer.target import (
    Target,
    fingerprint_template,
    fingerprint_tokenizer,
    load_target,
)

CONFIG_NAME = "capture.yaml"
ANSWERS_FOLDER = "answers"
# Broken rows told one by one; the rest are counted.
TOLD_ROWS = 5


@dataclass(frozen=True)
class Prepared:
    """One sample before its states: what the forward needs and what the shard stores."""

    key: str
    input_ids: list[int]
    loss_mask: list[int]
    meta: dict[str, object]


def run(config: CaptureConfig) -> None:
    """Capture `config.input` into `config.speculative_config.output_directory`.

    A finished dataset of the same settings is left as it is; an unfinished one is continued; a
    folder that holds anything else is refused.
    """
    folder = Path(config.speculative_config.output_directory)
    _check_folder(config, folder)
    refuse_unsupported(config.speculative_config)
    rows = list(read_conversations(config.input))
    target = _load_target(config, folder)
    # Without blocks the post-norm state is still captured, and stands as -1.
    layer_ids = config.speculative_config.resolve_layers(target.num_layers) or (-1,)
    identity = identify(rows, target)
    check_identity(folder, identity)
    if (folder / MANIFEST_NAME).exists() and Manifest.read(folder).complete:
        print(f"{folder} is complete already", file=sys.stderr)
        return

    renderer = Renderer(target.tokenizer, config.input, vocabulary_size=target.vocab_size)
    if config.regenerate is not None:
        _begin(config, folder, identity)
        rows = _regenerate(config, target, renderer, rows, folder)
    dropped: Counter[str] = Counter()
    samples = list(_prepare(rows, renderer, dropped, target))
    if not samples:
        raise ConfigError(
            f"input.path={config.input.path!r} leaves no sample to capture; "
            f"dropped by reason: {dict(dropped)}"
        )
    _check_disk(config, folder, samples, target, layer_ids)
    _begin(config, folder, identity)
    _capture(config, target, layer_ids, samples, folder, dropped)


def _begin(config: CaptureConfig, folder: Path, identity: dict[str, Any]) -> None:
    """Make the folder this capture's own: not before there is work to keep, so that a start that
    failed does not hold the next one to its settings."""
    write_config(config, folder / CONFIG_NAME)
    write_identity(folder, identity)


def _check_folder(config: CaptureConfig, folder: Path) -> None:
    """Raise ConfigError, changing nothing, unless this capture may begin or go on there."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"output_directory={str(folder)!r} is a file; accepted: a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / CONFIG_NAME).exists():
        raise ConfigError(
            f"output_directory={str(folder)!r} holds other files and no {CONFIG_NAME}; "
            "accepted: an empty folder, or one that this command began"
        )
    before = _data_settings(load_config(CaptureConfig, folder / CONFIG_NAME))
    now = _data_settings(config)
    if before != now:
        names = ", ".join(name for name in now if now[name] != before[name])
        raise ConfigError(
            f"output_directory={str(folder)!r} was begun with other settings (they differ in: "
            f"{names}; see its {CONFIG_NAME}); remove it or name another folder"
        )


def _data_settings(config: CaptureConfig) -> dict[str, Any]:
    """The settings that decide what is captured: the quota may be raised and the work continued."""
    settings = config.model_dump(mode="json")
    del settings["dataset"]["quota"]
    return settings


def _load_target(config: CaptureConfig, folder: Path) -> Target:
    """The target, in the precision the capture was begun with where that is measured anew."""
    there = read_identity(folder) if folder.exists() else None
    if config.target.dtype != "auto" or there is None:
        return load_target(config.target)
    return load_target(config.target.model_copy(update={"dtype": there.get("dtype")}))


def _regenerate(
    config: CaptureConfig,
    target: Target,
    renderer: Renderer,
    rows: list[Row | Rejected],
    folder: Path,
) -> list[Row | Rejected]:
    assert config.regenerate is not None
    num_answers = sum(
        sum(message["role"] == "user" for message in row.messages or ())
        for row in rows
        if isinstance(row, Row)
    )
    with Progress("answer", num_answers, "answers") as progress:
        regenerator = Regenerator(
            target,
            renderer.render_prompt,
            config.regenerate,
            config.input.keep_reasoning,
            lambda tokens, done: progress.add(tokens=tokens, done=done),
        )
        return list(regenerator.run(rows, folder / ANSWERS_FOLDER))


def _prepare(
    rows: Iterable[Row | Rejected], renderer: Renderer, dropped: Counter[str], target: Target
) -> Iterator[Prepared]:
    """Render rows in order, counting what is left out by reason and telling the first of it."""
    for row in rows:
        rendered = row if isinstance(row, Rejected) else renderer.render(row)
        if isinstance(rendered, Rendered) and len(rendered.input_ids) > target.max_positions:
            assert isinstance(row, Row)
            detail = f"{len(rendered.input_ids)} tokens, the target has {target.max_positions}"
            rendered = Dropped("longer_than_target", f"{row.source}:{row.number}: {detail}")
        if isinstance(rendered, Rejected | Dropped):
            dropped[rendered.reason] += 1
            if dropped.total() <= TOLD_ROWS:
                print(f"left out ({rendered.reason}): {rendered.detail}", file=sys.stderr)
            continue
        assert isinstance(row, Row)
        key = sample_key(row.source, row.number, rendered.input_ids)
        meta: dict[str, object] = {"id": row.id, "source": row.source, "row": row.number}
        meta |= {
            name: row.meta[name] for name in ("generation", "finish_reason") if name in row.meta
        }
        yield Prepared(key, rendered.input_ids, rendered.loss_mask, meta)


def _check_disk(
    config: CaptureConfig,
    folder: Path,
    samples: list[Prepared],
    target: Target,
    layer_ids: tuple[int, ...],
) -> None:
    spec = config.speculative_config
    needed = estimate_bytes(
        [len(sample.input_ids) for sample in samples],
        target.hidden_size,
        0 if layer_ids == (-1,) else len(layer_ids),
        config.dataset.codec,
        spec.write_interval,
    )
    there = sum(path.stat().st_size for path in folder.glob("*.tar"))
    place = folder.absolute()
    free = shutil.disk_usage(next(one for one in (place, *place.parents) if one.exists())).free
    print(
        f"capture: {len(samples)} samples, {sum(len(s.input_ids) for s in samples)} tokens, "
        f"{needed / 1e6:.1f} MB to write, {free / 1e9:.1f} GB free",
        file=sys.stderr,
    )
    quota = config.dataset.quota_bytes
    if quota is not None and needed > quota:
        raise ConfigError(
            f"dataset.quota={config.dataset.quota}: the dataset would take {needed / 1e6:.1f} MB"
        )
    if needed - there > free:
        raise ConfigError(
            f"output_directory={str(folder)!r} has {free / 1e6:.1f} MB free; "
            f"the dataset would take {needed / 1e6:.1f} MB"
        )


def _capture(
    config: CaptureConfig,
    target: Target,
    layer_ids: tuple[int, ...],
    samples: list[Prepared],
    folder: Path,
    dropped: Counter[str],
) -> None:
    spec = config.speculative_config
    manifest = Manifest(
        target=TargetRecord(
            path=config.target.path,
            fingerprint=target.fingerprint,
            num_layers=target.num_layers,
            hidden_size=target.hidden_size,
            vocab_size=target.vocab_size,
        ),
        tokenizer_fingerprint=fingerprint_tokenizer(target.tokenizer),
        chat_template_fingerprint=fingerprint_template(target.tokenizer),
        layer_ids=list(layer_ids),
        hidden_size=target.hidden_size,
        dtype=str(target.dtype).removeprefix("torch."),
        codec=config.dataset.codec,
        generation=None if config.regenerate is None else config.regenerate.model_dump(),
    )
    aux_ids = tuple(manifest.aux_layer_ids)
    writer = ShardWriter(
        folder,
        file_prefix=spec.file_prefix,
        write_interval=spec.write_interval,
        codec=config.dataset.codec,
        layer_ids=layer_ids,
        hidden_size=target.hidden_size,
    )
    proof: dict[str, object] | None = None
    with (
        Progress("capture", len(samples), "samples") as progress,
        StateForward(target, aux_ids) as forward,
        writer,
    ):
        batches = batch_by_length(samples, config.forward.tokens_per_batch, config.forward.window)
        for batch in batches:
            tokens = sum(len(sample.input_ids) for sample in batch)
            # The first batch is run even when it is written already: the proof is this run's own.
            if proof is None or any(s.key not in writer.written_keys for s in batch):
                states = forward([sample.input_ids for sample in batch])
                if proof is None:
                    proof = {**forward.prove(batch[0].input_ids, states[0])}
                    manifest = manifest.model_copy(update={"proof": proof})
                    manifest.write(folder)
                for sample, state in zip(batch, states, strict=True):
                    if sample.key not in writer.written_keys:
                        writer.write(_join(sample, state))
            progress.add(tokens=tokens, done=len(batch))
    num_samples, num_tokens, num_supervised = count_samples(folder)
    counts = Counts(
        samples=num_samples,
        tokens=num_tokens,
        supervised_tokens=num_supervised,
        dropped=dict(sorted(dropped.items())),
    )
    manifest.model_copy(update={"counts": counts, "complete": True}).write(folder)
    left_out = ", ".join(f"{name} {count}" for name, count in sorted(dropped.items())) or "none"
    print(
        f"{folder}: {counts.samples} samples, {counts.tokens} tokens, "
        f"{counts.supervised_tokens} supervised; left out: {left_out}"
    )


def _join(sample: Prepared, states: States) -> Sample:
    return Sample(
        key=sample.key,
        input_ids=torch.tensor(sample.input_ids, dtype=torch.int32),
        loss_mask=torch.tensor(sample.loss_mask, dtype=torch.uint8),
        hidden_states=states.hidden_states,
        aux_hidden_states=states.aux_hidden_states,
        meta=sample.meta,
    )
