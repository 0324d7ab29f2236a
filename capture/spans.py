"""Where the assistant's turns lie in the text a chat template writes.

The template is a program, so its text is not searched for the answers: a user may quote one, and a
template may trim, drop or wrap them. The conversation is rendered a second time with invisible
marks, single private-use characters, around what the messages say. Where the second text without
its marks is the first text, character for character, the marks say with certainty which part of
the first came from which message, and everything else was written by the template. Anything less
is refused.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from draftsmith.capture.rows import REASONING_KEYS

Message = dict[str, str]
Render = Callable[[list[Message], bool], str]
"""(messages, add_generation_prompt) -> text, by the tokenizer's own template."""

OPEN_REASONING, CLOSE_REASONING = "<think>", "</think>"
# Private-use planes: no text normally holds them, no filter of a template changes them, and they
# are no white space, so trimming stops at them.
PLANES = (0xF0000, 0x100000)
MARKS_IN_PLANE = 0xFFFE


class TemplateFailure(ValueError):
    """The chat template refused a conversation, or broke on it."""


class UnlocatableText(ValueError):
    """The template changed the assistant's text in a way that leaves its place uncertain."""


@dataclass(frozen=True, slots=True)
class Field:
    """One text of one message, and what encloses it in the marked rendering."""

    message: int
    key: str
    text: str
    open: str
    close: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that the template kept: its field, and its place in the text without marks."""

    field: Field
    opens: bool
    place: int


class TurnLocator:
    """Finds assistant turns for one chat template; `added_tokens` are its tokenizer's own tokens.

    A turn runs from the end of the generation prompt to the end of the token that closes it, so it
    is what the model itself would write. Text that the template puts in front of an answer by
    itself (an empty reasoning block, a channel name) belongs to the turn only when it encloses
    reasoning of the row. Without an end token in the template, a turn ends with its text.
    """

    def __init__(self, render: Render, added_tokens: list[str], eos_token: str | None):
        self._render = render
        self._tokens = [token for token in added_tokens if token.strip()]
        # Cutting at these keeps a mark on each side of a part that a template may drop.
        cuts = {OPEN_REASONING, CLOSE_REASONING, *self._tokens}
        self._cuts = re.compile("(" + "|".join(map(re.escape, sorted(cuts, key=len)[::-1])) + ")")
        self._headers, user_end = self._learn_header()
        ends = [user_end, self._learn_end(), eos_token]
        self._end_tokens = sorted({end for end in ends if end}, key=len, reverse=True)

    def locate(self, messages: list[Message], text: str) -> list[tuple[int, int]]:
        """Character spans of the assistant turns of `text`, which is the rendering of `messages`.

        Raises UnlocatableText when any of them is uncertain.
        """
        fields, plane = _list_fields(messages, text)
        reason = ""
        # Marks around the whole text are exact to the character, but keep a template from
        # trimming; marks around its trimmed parts do not.
        for split in (_whole, self._trimmed_parts):
            parts = {field.open: split(field.text) for field in fields}
            marks = self._read_marks(messages, fields, parts, text, plane)
            if marks is None:
                reason = "it alters the text of messages in a way that depends on the text"
                continue
            try:
                return list(self._find_turns(messages, fields, parts, marks, text))
            except UnlocatableText as error:
                reason = str(error)
        raise UnlocatableText(f"the chat template hides where assistant text is: {reason}")

    def _read_marks(
        self,
        messages: list[Message],
        fields: list[Field],
        parts: dict[str, list[tuple[int, int]]],
        text: str,
        plane: int,
    ) -> list[Mark] | None:
        marked = [dict(message) for message in messages]
        for field in fields:
            marked[field.message][field.key] = _enclose(field, parts[field.open])
        rendered = self._try_render(marked, False)
        pattern = _plane_pattern(plane)
        if rendered is None or pattern.sub("", rendered) != text:
            return None
        by_mark = {mark: field for field in fields for mark in (field.open, field.close)}
        return [
            Mark(by_mark[found[0]], found[0] == by_mark[found[0]].open, found.start() - index)
            for index, found in enumerate(pattern.finditer(rendered))
        ]

    def _find_turns(
        self,
        messages: list[Message],
        fields: list[Field],
        parts: dict[str, list[tuple[int, int]]],
        marks: list[Mark],
        text: str,
    ) -> Iterator[tuple[int, int]]:
        places: dict[int, list[int]] = {}
        kept: dict[str, list[bool]] = {}
        for index, mark in enumerate(marks):
            places.setdefault(mark.field.message, []).append(index)
            kept.setdefault(mark.field.open, []).append(mark.opens)
        last = 0
        for field in fields:
            if messages[field.message]["role"] != "assistant" or field.key != "content":
                continue
            own = places.get(field.message, [])
            sides = kept.get(field.open, [])
            num_kept = len(sides) // 2
            name = f"message {field.message}"
            if not sides:
                raise UnlocatableText(f"{name} is not in the text")
            if sides != [True, False] * num_kept or num_kept > len(parts[field.open]):
                raise UnlocatableText(f"{name} is cut or repeated")
            if own[-1] - own[0] != len(own) - 1 or own[0] < last:
                raise UnlocatableText(f"{name} is mixed with another one")
            last = own[-1]
            before = marks[own[0] - 1].place if own[0] else 0
            after = marks[last + 1].place if last + 1 < len(marks) else len(text)
            is_whole = num_kept == len(parts[field.open])
            # Reasoning inside one pair of marks is within the turn already.
            is_cut = is_whole and parts[field.open] != _whole(field.text)
            start = self._find_start(
                text[before : marks[own[0]].place],
                lead=field.text[: parts[field.open][0][0]] if is_whole else "",
                reasons_apart=any(marks[index].field.key != "content" for index in own),
                reasons_within=is_cut and CLOSE_REASONING in field.text,
            )
            if start is None:
                raise UnlocatableText(f"{name} has reasoning, and no generation prompt before it")
            stop = self._find_stop(text[marks[last].place : after])
            yield before + start, marks[last].place + stop

    def _find_start(
        self, gap: str, lead: str, reasons_apart: bool, reasons_within: bool
    ) -> int | None:
        """Where a turn starts in `gap`, the text between the messages; None when uncertain.

        `lead` is what the message itself says before its first mark; `reasons_apart` and
        `reasons_within` tell whether reasoning is shown from a key of its own, or from the content.
        """
        for header in self._headers:
            found = gap.rfind(header)
            if found >= 0:
                rest = gap[found + len(header) :]
                if lead.strip() and rest.endswith(lead) and not reasons_apart:
                    return len(gap) - len(lead)
                is_turn = reasons_apart or reasons_within or not rest.strip()
                return len(gap) - len(rest) if is_turn else len(gap)
        # White space before the first mark could be the template's as well as the message's.
        own = lead if lead.strip() else ""
        certain = gap.endswith(own) and not reasons_apart
        return len(gap) - len(own) if certain else None

    def _find_stop(self, gap: str) -> int:
        """Where a turn ends in the template's text after its last mark."""
        token = _first_token(gap, self._end_tokens)
        return 0 if token is None else gap.find(token) + len(token)

    def _learn_header(self) -> tuple[list[str], str | None]:
        """The generation prompt (and without its reasoning opener), and what ends a user turn."""
        probe = [{"role": "user", "content": chr(PLANES[0]) + "x" + chr(PLANES[0])}]
        prompt = self._try_render(probe, True)
        closed = self._try_render(probe, False)
        if prompt is None or closed is None:
            return [], None
        after_user = prompt.rpartition(chr(PLANES[0]))[2]
        header = prompt[len(closed) :] if prompt.startswith(closed) else ""
        header = header or after_user
        # Histories may leave out the reasoning opener that the generation prompt ends with.
        headers = [header, header.partition(OPEN_REASONING)[0]]
        user_end = _first_token(after_user.removesuffix(header), self._tokens)
        return [header for header in headers if header.strip()], user_end

    def _learn_end(self) -> str | None:
        """The token a template closes the last assistant turn with."""
        answer = chr(PLANES[0]) + "x" + chr(PLANES[0])
        probe = [{"role": "user", "content": "x"}, {"role": "assistant", "content": answer}]
        text = self._try_render(probe, False)
        return text and _first_token(text.rpartition(chr(PLANES[0]))[2], self._tokens)

    def _try_render(self, messages: list[Message], add_generation_prompt: bool) -> str | None:
        try:
            return self._render(messages, add_generation_prompt)
        except TemplateFailure:
            return None

    def _trimmed_parts(self, text: str) -> list[tuple[int, int]]:
        """What lies between reasoning tags and other tokens in `text`, without white space.

        The last part is there even when it is empty: a turn may be nothing but its end.
        """
        parts, place = [], 0
        for index, piece in enumerate(self._cuts.split(text)):
            core = piece.strip()
            if core and index % 2 == 0:  # the odd pieces are what the text is cut at
                start = place + len(piece) - len(piece.lstrip())
                parts.append((start, start + len(core)))
            place += len(piece)
        return parts if core else [*parts, (len(text), len(text))]


def _whole(text: str) -> list[tuple[int, int]]:
    return [(0, len(text))]


def _enclose(field: Field, parts: list[tuple[int, int]]) -> str:
    pieces, place = [], 0
    for start, stop in parts:
        pieces += [field.text[place:start], field.open, field.text[start:stop], field.close]
        place = stop
    return "".join([*pieces, field.text[place:]])


def _list_fields(messages: list[Message], text: str) -> tuple[list[Field], int]:
    """Every text of the conversation with two marks of its own, and the plane these come from."""
    keys = [
        (index, key)
        for index, message in enumerate(messages)
        for key in (*REASONING_KEYS, "content")
        if key in message
    ]
    if 2 * len(keys) > MARKS_IN_PLANE:
        raise UnlocatableText(f"more than {MARKS_IN_PLANE // 2} texts in one conversation")
    used = [text, *(messages[index][key] for index, key in keys)]
    for plane in PLANES:
        pattern = _plane_pattern(plane)
        if not any(pattern.search(entry) for entry in used):
            break
    else:
        raise UnlocatableText("the text holds characters of both supplementary private-use planes")
    fields = [
        Field(index, key, messages[index][key], chr(mark), chr(mark + 1))
        for mark, (index, key) in zip(range(plane, plane + MARKS_IN_PLANE, 2), keys, strict=False)
    ]
    return fields, plane


def _plane_pattern(plane: int) -> re.Pattern[str]:
    return re.compile(f"[{chr(plane)}-{chr(plane + MARKS_IN_PLANE - 1)}]")


def _first_token(text: str, tokens: list[str]) -> str | None:
    """The token that stands first in `text`, the longest of those that begin there."""
    found = [(text.find(token), -len(token), token) for token in tokens if token in text]
    return min(found)[2] if found else None
