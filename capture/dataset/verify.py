"""Checks every byte of a captured dataset and prints what is in it."""

import math
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.index import hash_file
from draftsmith.capture.dataset.manifest import FINAL_NORM_ID
from draftsmith.capture.dataset.reader import CapturedDataset
from draftsmith.capture.dataset.rows import index_shard, read_rows
from draftsmith.capture.dataset.sample import Sample

if TYPE_CHECKING:
    from draftsmith.configs.capture import CaptureVerifyConfig

# A dataset that went wrong went wrong many times over; more lines than this help nobody.
MAX_LISTED_PROBLEMS = 20


def run(config: "CaptureVerifyConfig") -> None:
    """Verifies `config.dataset`, against `config.target` if given, and prints a table of figures.

    Raises DatasetError that lists the problems found, each with its file and sample.
    """
    dataset = CapturedDataset(config.dataset, allow_incomplete=True)
    problems = [] if dataset.manifest.complete else ["manifest.json: complete=false: not finished"]
    problems += _check_shards(dataset)
    sums, sample_problems = _check_samples(dataset)
    problems += sample_problems
    if config.target is not None:
        # Loading a model is slow and needs the rest of the library; most checks do without.
        from draftsmith.infer.target import load_target

        found, stated = load_target(config.target).fingerprint, dataset.manifest.target.fingerprint
        if found != stated:
            problems.append(
                f"manifest.json: target.fingerprint={stated}, the target given has {found}"
            )
    print(_describe(dataset, sums))
    if problems:
        listed = problems[:MAX_LISTED_PROBLEMS]
        if len(problems) > len(listed):
            listed.append(f"and {len(problems) - len(listed)} more")
        raise DatasetError(f"{config.dataset}: {len(problems)} problems:\n" + "\n".join(listed))


def _check_shards(dataset: CapturedDataset) -> list[str]:
    """The whole files: hash, members, and the index made anew from them."""
    problems = []
    for number, entry in enumerate(dataset.shards):
        print(f"shard {number + 1}/{len(dataset.shards)} {entry.url}", file=sys.stderr)
        path = dataset.directory / entry.url
        try:
            for listed, found in zip(
                read_rows(dataset.directory, entry), index_shard(path), strict=True
            ):
                if listed != found:
                    raise DatasetError(
                        f"{path}: sample {listed.key}: indexed as {listed}, is {found}"
                    )
        except ValueError as error:
            problems.append(str(error))
        if hash_file(path) != entry.sha256:
            problems.append(f"{path}: sha256 differs from index.json")
    return problems


def _check_samples(dataset: CapturedDataset) -> tuple[dict[int, float], list[str]]:
    """Every value of every sample; returns each layer's sum of squares as well."""
    sums: dict[int, float] = defaultdict(float)
    problems = []
    for i in range(len(dataset)):
        try:
            sample = dataset[i]
        except DatasetError as error:
            problems.append(str(error))
            continue
        url = dataset.shard_url(i)
        for complaint in _check_values(sample, dataset, i):
            problems.append(f"{dataset.directory / url}: sample {sample.key}: {complaint}")
        for layer_id, states in _layers(sample, dataset):
            sums[layer_id] += float(states.double().square().sum())
    return sums, problems


def _check_values(sample: Sample, dataset: CapturedDataset, i: int) -> list[str]:
    complaints = [
        f"layer {layer_id} holds NaN or infinity at row {_first_bad_row(states)}"
        for layer_id, states in _layers(sample, dataset)
        if not torch.isfinite(states).all()
    ]
    vocab_size = dataset.manifest.target.vocab_size
    if not 0 <= int(sample.input_ids.min()) <= int(sample.input_ids.max()) < vocab_size:
        complaints.append(f"input_ids leave 0 to {vocab_size - 1}")
    if int(sample.loss_mask.max()) > 1:
        complaints.append("loss_mask holds other values than 0 and 1")
    if int(sample.loss_mask.sum()) != dataset.num_supervised[i]:
        complaints.append(
            f"{int(sample.loss_mask.sum())} supervised tokens, "
            f"the index has {dataset.num_supervised[i]}"
        )
    return complaints


def _first_bad_row(states: torch.Tensor) -> int:
    return int((~torch.isfinite(states)).nonzero()[0, 0])


def _layers(sample: Sample, dataset: CapturedDataset) -> list[tuple[int, torch.Tensor]]:
    """Each stored layer's id and [T, H] states."""
    layers = [(FINAL_NORM_ID, sample.hidden_states)]
    if sample.aux_hidden_states is not None:
        blocks = sample.aux_hidden_states.split(dataset.manifest.hidden_size, dim=1)
        ids = dataset.manifest.aux_layer_ids
        layers += [pair for pair in zip(ids, blocks, strict=True) if pair[0] != FINAL_NORM_ID]
    return layers


def _describe(dataset: CapturedDataset, sums: dict[int, float]) -> str:
    manifest, tokens = dataset.manifest, sum(dataset.lengths)
    supervised, size = sum(dataset.num_supervised), sum(entry.filesize for entry in dataset.shards)
    dropped = ", ".join(f"{reason} {count}" for reason, count in manifest.counts.dropped.items())
    lines = [
        ("dataset", str(dataset.directory)),
        ("target", f"{manifest.target.path} ({manifest.target.fingerprint})"),
        ("layer ids", ", ".join(map(str, manifest.layer_ids))),
        ("dtype, codec", f"{manifest.dtype}, {manifest.codec}"),
        ("shards", f"{len(dataset.shards)}, {size / 1e6:.2f} MB"),
        ("samples", f"{len(dataset)} (dropped: {dropped or 'none'})"),
        ("tokens", f"{tokens}, {size / max(tokens, 1):.1f} bytes each"),
        ("supervised", f"{supervised} ({supervised / max(tokens, 1):.1%})"),
    ]
    lines += [
        (f"rms, layer {layer_id}", f"{math.sqrt(total / (tokens * manifest.hidden_size)):.4g}")
        for layer_id, total in sorted(sums.items(), key=lambda item: (item[0] < 0, item[0]))
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
