"""Input rows: the ones to use, and why the others cannot be used."""

from collections.abc import Iterator
from dataclasses import dataclass

from draftsmith.capture.rows import Row, RowFault, parse_row
from draftsmith.capture.sources import Record, read_records
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import InputConfig
from draftsmith.configs.split import split_of


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be used: a slug to count by, and a sentence with its file and line."""

    source: str
    number: int
    reason: str
    detail: str


def read_conversations(config: InputConfig) -> Iterator[Row | Rejected]:
    """The rows of `config.path` that belong to `config.split`, and every row that is broken.

    A row's part depends on its first user message (else its first message, its text, or its prompt
    tokens). `config.limit` counts usable rows of that part. Raises ConfigError when the path, or a
    file under it, is not of an accepted kind, and, while reading, when a setting that concerns
    conversations meets text or tokens.
    """
    # Not a generator itself, so that a wrong path is an error here and not at the first row.
    return _select(read_records(config.path), config)


def _select(records: Iterator[Record], config: InputConfig) -> Iterator[Row | Rejected]:
    num_rows = 0
    for record in records:
        try:
            row = parse_row(record, config.format)
        except RowFault as fault:
            detail = str(fault) if record.fault else f"{record.place}: {fault}"
            yield Rejected(record.source, record.number, fault.reason, detail)
            continue
        if row.messages is None:
            _refuse_chat_settings(config, record.place)
        if config.split not in ("all", split_of(_split_text(row), config.heldout_fraction)):
            continue
        yield row
        num_rows += 1
        if num_rows == config.limit:
            return


def _refuse_chat_settings(config: InputConfig, place: str) -> None:
    """A setting that would do nothing to a row is an error, not a wish left unheard."""
    for name, is_set in (
        ("system_prompt", config.system_prompt is not None),
        ("last_turn_only", config.last_turn_only),
        ("keep_reasoning", not config.keep_reasoning),
    ):
        if is_set:
            raise ConfigError(
                f"input.{name}={getattr(config, name)!r} concerns conversations, and {place} holds "
                f"text or tokens; accepted: rows of messages, or no {name}"
            )


def _split_text(row: Row) -> str:
    if row.messages is not None:
        users = [message["content"] for message in row.messages if message["role"] == "user"]
        return users[0] if users else row.messages[0]["content"]
    if row.text is not None:
        return row.text
    assert row.input_ids is not None and row.loss_mask is not None
    num_prompt = row.loss_mask.index(1) if 1 in row.loss_mask else len(row.input_ids)
    return " ".join(map(str, row.input_ids[:num_prompt]))
