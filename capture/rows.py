"""One input row: which form it has, and what it says.

Forms of a row, told apart by their keys:

- `messages` or `conversations`: a list of {role, content} or {from, value}, and `system` beside it;
- `prompt`, with `response` when it is answered already; `turns`: user messages to be answered;
- `text`: raw text;
- `input_ids` with `loss_mask`, or with `output_ids`: prompt tokens and the tokens generated after.

A row that fits two forms, or none, is rejected: what it means is never guessed.
"""

from dataclasses import dataclass, field
from typing import Any

from draftsmith.capture.sources import Record

ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
# Their text is in the rendering only together with tool definitions, which rows here do not carry.
TOOL_KEYS = ("tools", "functions", "tool_calls", "function_call")
FORMS = {
    "messages": "conversations",
    "conversations": "conversations",
    "prompt": "conversations",
    "turns": "conversations",
    "text": "text",
    "input_ids": "tokens",
}
COMPANIONS = {
    "messages": ("system",),
    "conversations": ("system",),
    "prompt": ("response", "system"),
    "turns": ("system",),
    "text": (),
    "input_ids": ("loss_mask", "output_ids"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One usable row: exactly one of `messages`, `text` and `input_ids` is set."""

    source: str
    """Name of the file inside the input, or of the dataset."""
    number: int
    """Line of a .jsonl file, else row, from 1."""
    id: str | None = None
    messages: list[dict[str, str]] | None = None
    """Chat messages {role, content}; an assistant's reasoning keys are kept."""
    text: str | None = None
    input_ids: list[int] | None = None
    loss_mask: list[int] | None = None
    """Set with `input_ids`, one entry a token."""
    meta: dict[str, Any] = field(default_factory=dict)
    """The row's other keys."""


class RowFault(ValueError):
    """Why a row is rejected: the slug it is counted by, and the explanation."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


def parse_row(record: Record, wanted: str) -> Row:
    """The row in `record`, read as `wanted` (`input.format`). Raises RowFault when it is none."""
    if record.fault is not None:
        raise RowFault(*record.fault)
    if not isinstance(record.value, dict):
        kind = type(record.value).__name__
        raise RowFault("not_an_object", f"a row is an object with keys, this one is {kind}")
    try:
        _check_text(record.value)
        # Columns of a table are null where another form of row has its own.
        value = {key: entry for key, entry in record.value.items() if entry is not None}
        key = _choose_form(value, wanted)
        made = _BUILDERS[FORMS[key]](value, key)
    except RecursionError:
        raise RowFault("too_deep", "lists or objects are nested too deeply") from None
    used = (key, "id", *COMPANIONS[key])
    return Row(
        record.source,
        record.number,
        id=_read_id(value),
        meta={name: entry for name, entry in value.items() if name not in used},
        **made,
    )


def _check_text(value: Any) -> None:
    """Refuse characters that no tokenizer or file format downstream is sure to carry."""
    if isinstance(value, str):
        if "\0" in value:
            raise RowFault("nul_character", f"a NUL character in {_excerpt(value)}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(value[error.start])
            raise RowFault(
                "lone_surrogate", f"half of a surrogate pair (U+{code:04X}) in {_excerpt(value)}"
            ) from None
    elif isinstance(value, dict):
        for key, entry in value.items():
            _check_text(key)
            _check_text(entry)
    elif isinstance(value, list):
        for entry in value:
            if not isinstance(entry, int):
                _check_text(entry)


def _choose_form(value: dict[str, Any], wanted: str) -> str:
    """The key that says what the row is."""
    for key in TOOL_KEYS:
        if value.get(key):
            raise RowFault("tools_unsupported", f"{key!r}: conversations with tools are not read")
    found = [key for key in FORMS if key in value and wanted in ("auto", FORMS[key])]
    if found in (["messages", "prompt"], ["conversations", "prompt"]) and _repeats_prompt(
        value, found[0]
    ):
        found.pop()
    if len(found) > 1:
        raise RowFault("ambiguous_form", f"holds {' and '.join(found)}: which one is meant?")
    if not found:
        forms = [key for key in FORMS if wanted in ("auto", FORMS[key])]
        raise RowFault(
            "unknown_form",
            f"the keys are {sorted(value)}; accepted with input.format={wanted}: one of {forms}",
        )
    return found[0]


def _repeats_prompt(value: dict[str, Any], key: str) -> bool:
    """Whether `prompt` only repeats the first user message, so that the two cannot disagree."""
    messages = _read_messages(value[key], key)
    users = [message["content"] for message in messages if message["role"] == "user"]
    return bool(users) and users[0] == value["prompt"] and "response" not in value


def _build_conversation(value: dict[str, Any], key: str) -> dict[str, Any]:
    if key == "prompt":
        messages = [{"role": "user", "content": _expect(value, "prompt", str)}]
        if "response" in value:
            messages.append({"role": "assistant", "content": _expect(value, "response", str)})
    elif key == "turns":
        turns = _expect(value, "turns", list)
        for index, turn in enumerate(turns):
            _expect_type(turn, f"turns[{index}]", str)
        messages = [{"role": "user", "content": turn} for turn in turns]
    else:
        messages = _read_messages(value[key], key)
    if not messages:
        raise RowFault("empty_conversation", f"{key!r} holds no message")
    if "system" in value and _expect(value, "system", str):  # empty: tables without one say ""
        if any(message["role"] == "system" for message in messages):
            raise RowFault("ambiguous_form", "a system message and the key 'system' as well")
        messages.insert(0, {"role": "system", "content": value["system"]})
    return {"messages": messages}


def _read_messages(value: Any, key: str) -> list[dict[str, str]]:
    messages = []
    for index, entry in enumerate(_expect_type(value, key, list)):
        name = f"{key}[{index}]"
        _expect_type(entry, name, dict)
        message = {field: part for field, part in entry.items() if part is not None}
        for tool_key in TOOL_KEYS:
            if message.get(tool_key):
                raise RowFault("tools_unsupported", f"{name}.{tool_key}: tool calls are not read")
        role_key, content_key = _message_keys(message, name)
        role = _expect_type(message[role_key], f"{name}.{role_key}", str)
        if role not in ROLES:
            accepted = ", ".join(ROLES)
            raise RowFault("unknown_role", f"{name}.{role_key}={role!r}; accepted: {accepted}")
        content = _expect_type(message[content_key], f"{name}.{content_key}", str)
        read = {"role": ROLES[role], "content": content}
        if ROLES[role] == "assistant":
            for reasoning in REASONING_KEYS:
                if reasoning in message:
                    read[reasoning] = _expect_type(message[reasoning], f"{name}.{reasoning}", str)
        messages.append(read)
    return messages


def _message_keys(message: dict[str, Any], name: str) -> tuple[str, str]:
    pairs = [("role", "content"), ("from", "value")]
    whole = [pair for pair in pairs if pair[0] in message and pair[1] in message]
    if len(whole) == 1:
        return whole[0]
    if whole:
        raise RowFault("ambiguous_form", f"{name} holds role/content and from/value")
    keys = sorted(message)
    raise RowFault("wrong_type", f"{name} has the keys {keys}; accepted: role/content, from/value")


def _build_text(value: dict[str, Any], key: str) -> dict[str, Any]:
    text = _expect(value, key, str)
    if not text:
        raise RowFault("empty_text", "'text' holds no character")
    return {"text": text}


def _build_tokens(value: dict[str, Any], key: str) -> dict[str, Any]:
    ids = _integers(value, key)
    if ("loss_mask" in value) == ("output_ids" in value):
        raise RowFault(
            "ambiguous_form" if "loss_mask" in value else "no_loss_mask",
            "'input_ids' comes with either 'loss_mask' or 'output_ids', to say who wrote what",
        )
    if "output_ids" in value:
        output = _integers(value, "output_ids")
        return {"input_ids": ids + output, "loss_mask": [0] * len(ids) + [1] * len(output)}
    if not ids:
        raise RowFault("empty_tokens", "'input_ids' holds no token")
    mask = [int(flag) for flag in _integers(value, "loss_mask", (int, bool))]
    if len(mask) != len(ids):
        raise RowFault(
            "length_mismatch", f"{len(ids)} in 'input_ids' but {len(mask)} in 'loss_mask'"
        )
    return {"input_ids": ids, "loss_mask": mask}


_BUILDERS = {"conversations": _build_conversation, "text": _build_text, "tokens": _build_tokens}


def _integers(value: dict[str, Any], key: str, kinds: tuple[type, ...] = (int,)) -> list[int]:
    entries: list[int] = _expect(value, key, list)
    for index, entry in enumerate(entries):
        if type(entry) not in kinds:  # bool is an int to isinstance, yet no token id
            raise RowFault("wrong_type", f"{key}[{index}]={entry!r}; accepted: whole numbers")
    return entries


def _expect(value: dict[str, Any], key: str, kind: type) -> Any:
    return _expect_type(value[key], key, kind)


def _expect_type(value: Any, name: str, kind: type) -> Any:
    if not isinstance(value, kind):
        names: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
        raise RowFault("wrong_type", f"{name} is {type(value).__name__}; accepted: {names[kind]}")
    return value


def _read_id(value: dict[str, Any]) -> str | None:
    identity = value.get("id")
    if identity is None:
        return None
    if not isinstance(identity, str | int):
        kind = type(identity).__name__
        raise RowFault("wrong_type", f"id is {kind}; accepted: a string or a whole number")
    return str(identity)


def _excerpt(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")
