"""Answers in the target's own words, written down as they come and continued after a stop."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from draftsmith.capture.conversations import Rejected
from draftsmith.capture.dataset.durable import write_atomically
from draftsmith.capture.rendering import RowDropped
from draftsmith.capture.rows import Row
from draftsmith.capture.spans import TemplateFailure
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import RegenerateConfig
from draftsmith.infer.engine import Engine
from draftsmith.infer.request import Request
from draftsmith.infer.target import Target

ROLES = ("system", "user")
# Batches in a group. Answers are written group by group, and a group is always decoded whole, so
# that a continued run decodes the very batches an undisturbed one would have.
BATCHES_PER_GROUP = 4


@dataclass
class _Conversation:
    row: Row
    messages: list[dict[str, str]]
    """What has been said: the row's system messages, then turns with fresh answers."""
    turns: list[dict[str, str]]
    """User turns still to come."""
    prompt_ids: list[int]
    output_ids: list[int]
    finish_reason: str = ""
    error: str | None = None
    reason: str = "generation_failed"


class Regenerator:
    """Replaces every assistant turn of a conversation by the target's own answer."""

    def __init__(
        self,
        target: Target,
        render_prompt: Callable[[list[dict[str, str]]], list[int]],
        config: RegenerateConfig,
        keep_reasoning: bool,
        on_progress: Callable[[int, int], None],
    ) -> None:
        """render_prompt: messages -> ids up to the answer. on_progress: (tokens, conversations)."""
        self.target = target
        self.config = config
        self._keep_reasoning = keep_reasoning
        self._render_prompt = render_prompt
        self._on_progress = on_progress
        self._engine = Engine(target, num_slots=config.batch_size)

    def run(self, rows: Iterable[Row | Rejected], folder: Path) -> Iterator[Row | Rejected]:
        """Yield a row with the target's answers for every usable row, in order.

        Groups already answered in `folder` are read back, not decoded again.
        """
        folder.mkdir(parents=True, exist_ok=True)
        stream = iter(rows)
        number = 0
        while group := list(islice(stream, BATCHES_PER_GROUP * self.config.batch_size)):
            path = folder / f"group-{number:06d}.jsonl"
            if not path.exists():
                write_atomically(path, self._answer(group).encode())
            yield from _read_group(path)
            number += 1

    def _answer(self, group: list[Row | Rejected]) -> str:
        """The group as JSON Lines, one line a row, in order."""
        slots = [one if isinstance(one, Rejected) else _open(one) for one in group]
        talking = [one for one in slots if isinstance(one, _Conversation)]
        while asking := [one for one in talking if one.turns and one.error is None]:
            self._answer_turn(asking)
        return "".join(json.dumps(self._describe(one), ensure_ascii=False) + "\n" for one in slots)

    def _answer_turn(self, asking: list[_Conversation]) -> None:
        requests: list[Request] = []
        asked: list[_Conversation] = []
        for one in asking:
            one.messages.append(one.turns.pop(0))
            try:
                one.prompt_ids = self._render_prompt(one.messages)
            except (TemplateFailure, RowDropped) as error:
                one.error = str(error)
                one.reason = error.reason if isinstance(error, RowDropped) else "template_error"
                continue
            asked.append(one)
            requests.append(
                Request(
                    id=str(len(requests)),
                    prompt_ids=tuple(one.prompt_ids),
                    max_new_tokens=self.config.max_new_tokens,
                    temperature=self.config.temperature,
                    top_k=self.config.top_k,
                    top_p=self.config.top_p,
                    # Rows keep their draws wherever they land in a batch.
                    seed=self.config.seed + one.row.number,
                    stop_token_ids=self.target.stop_token_ids,
                )
            )
        results = self._engine.generate(
            requests,
            on_result=lambda result: self._on_progress(0, 1),
            on_round=lambda tokens: self._on_progress(tokens, 0),
        )
        for one, result in zip(asked, results, strict=True):
            one.output_ids = list(result.output_ids)
            one.finish_reason = result.finish_reason
            one.error = result.error
            answer = self.target.tokenizer.decode(result.output_ids, skip_special_tokens=True)  # type: ignore[union-attr]
            one.messages.append({"role": "assistant", "content": answer})

    def _describe(self, one: _Conversation | Rejected) -> dict[str, Any]:
        if isinstance(one, Rejected):
            place = {"source": one.source, "number": one.number}
            return {**place, "reason": one.reason, "detail": one.detail}
        row = one.row
        line: dict[str, Any] = {"source": row.source, "number": row.number, "id": row.id}
        if one.error is not None:
            detail = f"{row.source}:{row.number}: {one.error}"
            return {**line, "reason": one.reason, "detail": detail}
        line["messages"] = one.messages
        generation = self.config.model_dump(exclude={"batch_size"})
        line["meta"] = {"generation": generation, "finish_reason": one.finish_reason}
        single = sum(message["role"] == "assistant" for message in one.messages) == 1
        if single and self._keep_reasoning:
            # One answer: its own tokens are kept, so that no re-tokenisation can differ.
            line["input_ids"], line["output_ids"] = one.prompt_ids, one.output_ids
        return line


def _open(row: Row) -> _Conversation | Rejected:
    problem = None
    if row.messages is None:
        problem = "is not a conversation; accepted with `regenerate`: messages, prompt or turns"
    elif strange := [m["role"] for m in row.messages if m["role"] not in (*ROLES, "assistant")]:
        problem = f"has a turn of {strange[0]!r}; accepted with `regenerate`: system, user"
    elif not any(message["role"] == "user" for message in row.messages):
        problem = "has no user turn"
    if problem is not None:
        detail = f"{row.source}:{row.number}: {problem}"
        return Rejected(row.source, row.number, "not_regenerable", detail)
    assert row.messages is not None
    system = [message for message in row.messages if message["role"] == "system"]
    turns = [message for message in row.messages if message["role"] == "user"]
    return _Conversation(row, system, turns, [], [])


def _read_group(path: Path) -> Iterator[Row | Rejected]:
    for text in path.read_text(encoding="utf-8").split("\n")[:-1]:
        try:
            line = json.loads(text)
            yield _read_line(line)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not what this job wrote ({error!r}); remove it to answer its rows again"
            ) from None


def _read_line(line: dict[str, Any]) -> Row | Rejected:
    if "reason" in line:
        return Rejected(line["source"], line["number"], line["reason"], line["detail"])
    row: dict[str, Any] = {name: line[name] for name in ("source", "number", "id", "meta")}
    if "output_ids" in line:
        prompt, output = line["input_ids"], line["output_ids"]
        mask = [0] * len(prompt) + [1] * len(output)
        return Row(**row, input_ids=prompt + output, loss_mask=mask)
    return Row(**row, messages=line["messages"])
