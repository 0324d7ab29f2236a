"""The generate job: answer a file of prompts, with or without a drafter."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding import EagleDecodingConfig
from draftsmith.configs.infer import GenerateConfig, SamplingConfig
from draftsmith.configs.loading import write_config
from draftsmith.infer.drafters.checkpoint import load_drafter
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.engine import Engine
from draftsmith.infer.progress import Progress
from draftsmith.infer.prompts import Prompt, encode_prompt, read_prompts
from draftsmith.infer.request import Request, Result
from draftsmith.infer.target import Target, load_target


def make_requests(
    prompts: Sequence[Prompt], target: Target, sampling: SamplingConfig
) -> list[Request]:
    """Requests in the order of the prompts; each has its own seed, so batching changes no draw."""
    stops = frozenset() if sampling.ignore_eos else target.stop_token_ids
    return [
        Request(
            id=prompt.id,
            prompt_ids=encode_prompt(prompt, target),
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            seed=sampling.seed + index,
            stop_token_ids=stops,
        )
        for index, prompt in enumerate(prompts)
    ]


def make_engine(
    target: Target,
    drafter: Eagle3Drafter | None,
    max_draft_len: int,
    batch_size: int,
    speculative_model: str | None,
) -> Engine:
    """An engine that drafts chains of `max_draft_len`, or decodes plainly without a drafter."""
    if drafter is None or max_draft_len == 0:
        return Engine(target, num_slots=batch_size)
    config = EagleDecodingConfig(max_draft_len=max_draft_len, speculative_model=speculative_model)
    return Engine(target, drafter, config, num_slots=batch_size)


def run(config: GenerateConfig) -> None:
    """Write one line an answer to `config.output`, which appears only when it is whole.

    Raises ConfigError before any work for a bad prompt line, drafter or output; ValueError after
    writing when some requests could not be served (their lines say why).
    """
    output = Path(config.output)
    if output.exists():
        raise ConfigError(f"output={config.output!r} exists; remove it or name another file")
    output.parent.mkdir(parents=True, exist_ok=True)
    prompts = read_prompts(config.input)
    several = [prompt.id for prompt in prompts if prompt.extra_turns]
    if several:
        raise ConfigError(
            f"input={config.input!r}: prompt {several[0]!r} has several turns; accepted: one turn"
        )
    target = load_target(config.target)
    drafter = None if config.drafter is None else load_drafter(config.drafter, target)
    requests = make_requests(prompts, target, config.sampling)
    engine = make_engine(target, drafter, config.max_draft_len, config.batch_size, config.drafter)

    with Progress("generate", len(requests)) as progress:
        results = engine.generate(
            requests,
            on_result=lambda result: progress.add(done=1),
            on_round=lambda tokens: progress.add(tokens=tokens),
        )

    partial = output.with_name(output.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for result in results:
            line = _describe(result, target, config.trace)
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    os.replace(partial, output)
    write_config(config, output.with_name(output.name + ".config.yaml"))
    failed = [result for result in results if result.error is not None]
    print(f"{len(results) - len(failed)} answers in {output}", file=sys.stderr)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(results)} requests failed, their lines in {output} say why; "
            f"the first, id {failed[0].id!r}: {failed[0].error}"
        )


def _describe(result: Result, target: Target, trace: bool) -> dict[str, object]:
    text = None
    if target.tokenizer is not None:
        text = target.tokenizer.decode(result.output_ids, skip_special_tokens=True)
    line: dict[str, object] = {
        "id": result.id,
        "output_ids": list(result.output_ids),
        "text": text,
        "finish_reason": result.finish_reason,
    }
    if result.error is not None:
        line["error"] = result.error
    if trace:
        line["rounds"] = [
            {
                "start": one.start,
                "proposed": list(one.proposed),
                "accepted": one.accepted,
                "bonus": one.bonus,
            }
            for one in result.rounds
        ]
    return line
