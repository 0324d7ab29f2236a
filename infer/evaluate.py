"""The eval job: acceptance on a prompt set, exactness in float32, speed against plain decoding."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from draftsmith.configs.base import ConfigError
from draftsmith.configs.infer import EvalConfig
from draftsmith.configs.loading import write_config
from draftsmith.infer.drafters.checkpoint import load_drafter
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.engine import Engine
from draftsmith.infer.generate import make_engine, make_requests
from draftsmith.infer.metrics import AcceptanceCounts, bootstrap_interval
from draftsmith.infer.progress import Progress
from draftsmith.infer.prompts import Prompt, read_prompts
from draftsmith.infer.report import collect_versions, describe_machine, read_report, write_report
from draftsmith.infer.report.facts import headline
from draftsmith.infer.report.schema import (
    AcceptanceFigures,
    CategoryFigures,
    Parity,
    PromptSet,
    Report,
    Speed,
    SpeedRepeat,
    Summary,
)
from draftsmith.infer.request import Request, Result
from draftsmith.infer.target import Target, load_target

# Below this many prompts the figures say more about the prompts than about the drafter.
FEW_PROMPTS = 30


def run(config: EvalConfig) -> None:
    """Measure and write report.json, report.md, report.html and results.jsonl.

    A folder that holds this very measurement already is reported again and left as it is; one that
    holds another is refused.
    """
    output = Path(config.output)
    settings: dict[str, JsonValue] = {
        **config.model_dump(mode="json"),
        "drafter_weights": _stamp(Path(config.drafter) / "model.safetensors"),
        "prompt_file": _stamp(Path(config.prompts.path)),
    }
    if (output / "report.json").exists():
        report = read_report(output / "report.json")
        if report.settings != settings:
            raise ConfigError(
                f"output={config.output!r} holds the report of another run; "
                "remove its report.json or name another folder"
            )
        print(f"already measured: {output / 'report.json'}", file=sys.stderr)
        _print_headline(report)
        return
    # Before the work, so that a path that cannot be a folder costs nothing.
    output.mkdir(parents=True, exist_ok=True)
    prompts = read_prompts(
        config.prompts.path,
        split=config.prompts.split,
        heldout_fraction=config.prompts.heldout_fraction,
        limit=config.prompts.limit,
    )
    target = load_target(config.target)
    drafter = load_drafter(config.drafter, target)
    requests = make_requests(prompts, target, config.sampling)
    speculative, _ = _engines(config, target, drafter, config.batch_size)
    results = _decode("accept", speculative, requests)
    speed = _measure_speed(config, target, drafter, requests[: config.speed.num_prompts])
    dtype = str(target.dtype).removeprefix("torch.")
    device = str(target.device)
    del target, drafter, speculative
    parity = _compare(config, prompts[: config.parity_prompts])

    report = _assemble(config, settings, prompts, results, speed, parity, dtype, device)
    _write_results(output / "results.jsonl", prompts, results)
    write_config(config, output / "eval.yaml")
    for path in write_report(report, output):
        print(f"wrote {path}", file=sys.stderr)
    _print_headline(report)


def _engines(
    config: EvalConfig, target: Target, drafter: Eagle3Drafter, batch_size: int
) -> tuple[Engine, Engine]:
    """The same engine with the drafter and without."""
    speculative = make_engine(target, drafter, config.max_draft_len, batch_size, config.drafter)
    return speculative, make_engine(target, None, 0, batch_size, None)


def _decode(name: str, engine: Engine, requests: Sequence[Request]) -> list[Result]:
    with Progress(name, len(requests)) as progress:
        results = engine.generate(
            requests,
            on_result=lambda result: progress.add(done=1),
            on_round=lambda tokens: progress.add(tokens=tokens),
        )
    failed = [result for result in results if result.error is not None]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(results)} prompts could not be decoded; "
            f"the first, id {failed[0].id!r}: {failed[0].error}"
        )
    return results


def _measure_speed(
    config: EvalConfig, target: Target, drafter: Eagle3Drafter, requests: list[Request]
) -> Speed:
    """Both modes over the same prompts, alternating which goes first, so that drift cancels."""
    speculative, plain = _engines(config, target, drafter, config.speed.batch_size)
    for engine in (plain, speculative):
        engine.generate(requests[:1])
    repeats = []
    with Progress("speed", 2 * config.speed.repeats, "passes") as progress:
        for repeat in range(config.speed.repeats):
            order: tuple[Literal["plain", "speculative"], ...] = ("plain", "speculative")
            if repeat % 2:
                order = ("speculative", "plain")
            seconds, tokens = {}, {}
            for mode in order:
                engine = plain if mode == "plain" else speculative
                start = time.perf_counter()
                results = engine.generate(requests)
                seconds[mode] = time.perf_counter() - start
                tokens[mode] = sum(len(result.output_ids) for result in results)
                progress.add(tokens=tokens[mode], done=1)
            repeats.append(
                SpeedRepeat(
                    first=order[0],
                    plain_seconds=seconds["plain"],
                    plain_tokens=tokens["plain"],
                    speculative_seconds=seconds["speculative"],
                    speculative_tokens=tokens["speculative"],
                )
            )
    return Speed.from_repeats(
        repeats, num_prompts=len(requests), batch_size=config.speed.batch_size
    )


def _compare(config: EvalConfig, prompts: list[Prompt]) -> Parity | None:
    """Decode greedily in float32 with and without the drafter; compare token for token."""
    if not prompts:
        return None
    target = load_target(config.target.model_copy(update={"dtype": "float32"}))
    # Greedy whatever the sampling: two runs that draw at random differ however right both are.
    greedy = config.sampling.model_copy(update={"temperature": 0.0})
    requests = make_requests(prompts, target, greedy)
    engines = _engines(config, target, load_drafter(config.drafter, target), config.batch_size)
    with_drafter, without = (_decode("compare", engine, requests) for engine in engines)
    pairs = zip(with_drafter, without, strict=True)
    equal = sum(ours.output_ids == plain.output_ids for ours, plain in pairs)
    return Parity(num_prompts=len(prompts), num_equal=equal, dtype="float32")


def _assemble(
    config: EvalConfig,
    settings: dict[str, JsonValue],
    prompts: list[Prompt],
    results: list[Result],
    speed: Speed,
    parity: Parity | None,
    dtype: str,
    device: str,
) -> Report:
    total = AcceptanceCounts(config.max_draft_len)
    by_category: dict[str, list[AcceptanceCounts]] = {}
    per_prompt = []
    for prompt, result in zip(prompts, results, strict=True):
        counts = AcceptanceCounts(config.max_draft_len)
        counts.add(result.rounds, len(result.output_ids))
        total.merge(counts)
        figures = counts.figures()
        per_prompt.append((figures["num_emitted"], figures["num_rounds"]))
        if prompt.category is not None:
            by_category.setdefault(prompt.category, []).append(counts)
    summary = Summary(
        acceptance_length=total.acceptance_length,
        acceptance_length_interval=bootstrap_interval(per_prompt, seed=0),
        acceptance_rate=total.acceptance_rate,
        speedup=speed.median_ratio,
        tokens_per_second=speed.tokens_per_second,
        lossless=None if parity is None else parity.lossless,
        dtype=dtype,
        max_draft_len=config.max_draft_len,
        num_prompts=len(prompts),
    )
    return Report(
        target=config.target.path,
        draft=config.drafter,
        summary=summary,
        acceptance=AcceptanceFigures(**total.figures()),
        speed=speed,
        parity=parity,
        by_category={name: _category(counts) for name, counts in sorted(by_category.items())},
        prompts=PromptSet(
            path=config.prompts.path, split=config.prompts.split, num_prompts=len(prompts)
        ),
        settings=settings,
        versions=collect_versions(),
        machine=describe_machine(device),
        warnings=_warnings(config, prompts, parity),
    )


def _category(parts: list[AcceptanceCounts]) -> CategoryFigures:
    counts = parts[0]
    for part in parts[1:]:
        counts.merge(part)
    return CategoryFigures(
        acceptance_length=counts.acceptance_length,
        acceptance_rate=counts.acceptance_rate,
        num_prompts=len(parts),
    )


def _warnings(config: EvalConfig, prompts: list[Prompt], parity: Parity | None) -> list[str]:
    warnings = []
    if len(prompts) < FEW_PROMPTS:
        warnings.append(f"Only {len(prompts)} prompts: the interval is wide.")
    if config.sampling.ignore_eos:
        warnings.append("Answers were forced past their end, where text is easier to draft.")
    if any(prompt.extra_turns for prompt in prompts):
        warnings.append("Some prompts have several turns; only the first was decoded.")
    if parity is not None and not parity.lossless:
        warnings.append(
            f"{parity.num_prompts - parity.num_equal} of {parity.num_prompts} float32 answers "
            "differ from plain decoding."
        )
    return warnings


def _stamp(path: Path) -> JsonValue:
    """A hash of the file, so that another one under the same name is noticed; None without one."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _write_results(path: Path, prompts: list[Prompt], results: list[Result]) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for prompt, result in zip(prompts, results, strict=True):
            line = {
                "id": prompt.id,
                "category": prompt.category,
                "num_output_tokens": len(result.output_ids),
                "finish_reason": result.finish_reason,
                "proposed": [len(one.proposed) for one in result.rounds],
                "accepted": [one.accepted for one in result.rounds],
            }
            file.write(json.dumps(line) + "\n")
    os.replace(partial, path)


def _print_headline(report: Report) -> None:
    for name, value in headline(report):
        print(f"{name:<24}{value}")
