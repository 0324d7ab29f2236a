"""Prompt files: JSON Lines of `turns`, `messages`, `prompt` or `input_ids`."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from draftsmith.configs.base import ConfigError
from draftsmith.configs.split import split_of
from draftsmith.infer.target import Target

FORMS = ("input_ids", "messages", "prompt", "turns")


@dataclass(frozen=True)
class Prompt:
    """One line of a prompt file; exactly one of `messages` and `input_ids` is set.

    messages: everything before the answer; the first user turn of `turns`. category: the line's
    own, for grouping in reports.
    """

    id: str
    messages: tuple[dict[str, Any], ...] | None
    input_ids: tuple[int, ...] | None
    category: str | None = None
    extra_turns: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """What the split is decided by: the first user message, or the ids."""
        if self.messages is None:
            return " ".join(map(str, self.input_ids or ()))
        for message in self.messages:
            if message["role"] == "user":
                return str(message["content"])
        return str(self.messages[0]["content"])


def read_prompts(
    path: str | Path,
    *,
    split: str = "all",
    heldout_fraction: float = 0.1,
    limit: int | None = None,
) -> list[Prompt]:
    """Read a prompt file whole.

    Raises ConfigError with file and line for anything that is not a prompt: what is decoded is
    then what the file says, with nothing skipped.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; accepted: a JSON Lines file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from None
    prompts = []
    seen: dict[str, int] = {}
    # Only newlines separate rows: JSON strings may hold other characters that split lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        prompt = _parse(f"{path}:{number}", line, number)
        if prompt.id in seen:
            raise ConfigError(
                f"{path}:{number}: id {prompt.id!r} stands on line {seen[prompt.id]} too"
            )
        seen[prompt.id] = number
        if split == "all" or split_of(prompt.text, heldout_fraction) == split:
            prompts.append(prompt)
    if not prompts:
        raise ConfigError(f"{path} holds no prompts (split={split})")
    return prompts[:limit]


def encode_prompt(prompt: Prompt, target: Target) -> tuple[int, ...]:
    """Token ids up to where the answer begins.

    Messages go through the tokenizer's chat template. Without a template a single user message is
    tokenised as it stands, and anything else is refused.
    """
    if prompt.input_ids is not None:
        return prompt.input_ids
    messages = [dict(message) for message in prompt.messages or ()]
    tokenizer = target.tokenizer
    if tokenizer is None:
        raise ConfigError(
            f"target.path={target.path!r} has no tokenizer; accepted: prompts with `input_ids`"
        )
    if tokenizer.chat_template:
        # return_dict, because what comes without it differs between transformers versions.
        try:
            encoded = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=True
            )
        # A template is a program of its own: these are what its expressions can raise.
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(
                f"prompt {prompt.id!r}: the chat template of target.path={target.path!r} refuses "
                f"it: {error}"
            ) from error
        return tuple(encoded["input_ids"])
    if len(messages) != 1 or messages[0]["role"] != "user":
        raise ConfigError(
            f"prompt {prompt.id!r}: target.path={target.path!r} has no chat template; "
            "accepted: `prompt` or `input_ids`"
        )
    return tuple(tokenizer(messages[0]["content"])["input_ids"])


def _parse(place: str, line: str, number: int) -> Prompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{place}: {type(row).__name__}; accepted: a JSON object")
    present = [form for form in FORMS if row.get(form) is not None]
    if len(present) != 1:
        raise ConfigError(f"{place}: has {present}; accepted: exactly one of {', '.join(FORMS)}")
    form, value = present[0], row[present[0]]
    given = [row[key] for key in ("id", "question_id") if row.get(key) is not None]
    name = str(given[0]) if given else str(number)
    category = None if row.get("category") is None else str(row["category"])
    for key, text in (("id", name), ("category", category or "")):
        _require_unicode(place, key, text)
    if form == "input_ids":
        if not (isinstance(value, list) and value and all(type(token) is int for token in value)):
            raise ConfigError(f"{place}: input_ids={value!r:.80}; accepted: a list of integers")
        return Prompt(name, None, tuple(value), category)
    if form == "prompt":
        _require_text(place, "prompt", value)
        return Prompt(name, ({"role": "user", "content": value},), None, category)
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{place}: {form}={value!r:.80}; accepted: a list that is not empty")
    if form == "turns":
        for turn in value:
            _require_text(place, "turns", turn)
        first = {"role": "user", "content": value[0]}
        return Prompt(name, (first,), None, category, tuple(value[1:]))
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ConfigError(f"{place}: message {message!r:.80}; accepted: role and content")
        _require_text(place, f"content of {message['role']!r}", message.get("content"))
    if value[-1]["role"] == "assistant":
        raise ConfigError(f"{place}: messages end with an answer; accepted: a user turn last")
    return Prompt(name, tuple(value), None, category)


def _require_text(place: str, name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{place}: {name} is {value!r:.80}; accepted: text that is not empty")
    _require_unicode(place, name, value)


def _require_unicode(place: str, name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{place}: {name} is not valid Unicode: {error}") from None
