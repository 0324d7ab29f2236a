"""From a row to token ids and a loss mask, by the tokenizer's own chat template."""

import copy
from dataclasses import dataclass
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from draftsmith.capture.rows import REASONING_KEYS, Row
from draftsmith.capture.spans import (
    CLOSE_REASONING,
    OPEN_REASONING,
    Message,
    TemplateFailure,
    TurnLocator,
    UnlocatableText,
)
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import InputConfig


@dataclass(frozen=True, slots=True)
class Rendered:
    """A sample of T tokens."""

    input_ids: list[int]
    """T ids."""
    loss_mask: list[int]
    """T flags: 1 where the assistant wrote the token, the token that ends its turn included."""
    text: str
    """What the ids say, special tokens included; empty without a tokenizer."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that makes no sample: a slug to count by, and a sentence with its file and line."""

    reason: str
    detail: str


class RowDropped(ValueError):
    """Why a row makes no sample: the slug it is counted by, and the explanation."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class Renderer:
    """Renders rows under one tokenizer and one set of input settings.

    Conversations go through the chat template as one text, and that through the tokenizer once, so
    the ids are those of `apply_chat_template`. A token is supervised iff it begins inside an
    assistant turn (see `TurnLocator`); one that straddles its border counts by its first character.
    Text rows and rows of token ids have no turns: every token of a text is supervised, and ids come
    with their own mask.

    The tokenizer is left as it is. Raises ConfigError when it cannot tell where tokens lie.
    `vocabulary_size` bounds the ids of token rows; without it, the tokenizer's own ids do. With it
    token rows need no tokenizer, and a row that does is a ConfigError.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        config: InputConfig,
        vocabulary_size: int | None = None,
    ):
        self._tokenizer = tokenizer
        self.config = config
        self._locator: TurnLocator | None = None
        if tokenizer is None and vocabulary_size is not None:
            self.vocabulary_size = vocabulary_size
            return
        tokenizer = self.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                f"target.path={tokenizer.name_or_path!r}: its {type(tokenizer).__name__} gives no "
                "character offsets; accepted: a fast tokenizer (a folder with a tokenizer.json)"
            )
        self.vocabulary_size = vocabulary_size or max(tokenizer.get_vocab().values()) + 1
        # Post-processors may cut white space off the offsets of a token, and then the newline of a
        # generation prompt would seem to begin where the answer does.
        self._encoder = copy.deepcopy(tokenizer.backend_tokenizer)
        self._encoder.post_processor = None
        self._encoder.no_truncation()
        self._encoder.no_padding()
        self._encoder.encode_special_tokens = tokenizer.split_special_tokens

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Raises ConfigError when the target has none."""
        if self._tokenizer is None:
            raise ConfigError(
                "target.path: the target has no tokenizer, so text and messages cannot be read for "
                "it; accepted: rows of `input_ids`, or a target with a fast tokenizer (a folder "
                "with a tokenizer.json)"
            )
        return self._tokenizer

    def render(self, row: Row) -> Rendered | Dropped:
        """The sample `row` makes under the input settings, or the reason it makes none.

        Raises ConfigError when the tokenizer has no chat template for a conversation.
        """
        try:
            if row.messages is not None:
                sample = self._render_messages(self.prepare(row.messages))
            elif row.text is not None:
                sample = self._render_text(row)
            else:
                sample = self._check_tokens(row)
            num_supervised = sum(sample.loss_mask)
            if num_supervised < self.config.min_supervised_tokens:
                raise RowDropped(
                    "too_few_supervised_tokens",
                    f"{num_supervised} supervised tokens of {len(sample.input_ids)}, "
                    f"input.min_supervised_tokens={self.config.min_supervised_tokens}",
                )
            return sample
        except RowDropped as fault:
            return Dropped(fault.reason, f"{row.source}:{row.number}: {fault}")

    def render_prompt(self, messages: list[Message]) -> list[int]:
        """Token ids of a conversation whose answer is to be generated: the template's own prompt.

        The input's system prompt and reasoning setting apply, its maximum length does not. Raises
        ValueError with the template's message when the template refuses the conversation.
        """
        prepared = self.prepare(messages)
        self._expect_system_prompt(prepared, self._apply_template(prepared, True))
        return self._apply_tokenized(prepared, True)

    def prepare(self, messages: list[Message]) -> list[Message]:
        """The messages under the input settings; those given are left as they are.

        A system message in the row wins over `input.system_prompt`.
        """
        prepared = [dict(message) for message in messages]
        if not self.config.keep_reasoning:
            for message in prepared:
                if message["role"] == "assistant":
                    for key in REASONING_KEYS:
                        message.pop(key, None)
                    message["content"] = _remove_reasoning(message["content"])
        system = self.config.system_prompt
        if system is not None and all(message["role"] != "system" for message in prepared):
            prepared.insert(0, {"role": "system", "content": system})
        return prepared

    def _render_messages(self, messages: list[Message]) -> Rendered:
        if all(message["role"] != "assistant" for message in messages):
            raise RowDropped("no_assistant_turn", "no message of the assistant to learn from")
        if self._locator is None:
            self._locator = self._make_locator()
        try:
            text = self._apply_template(messages, False)
            turns = self._locator.locate(messages, text)
        except TemplateFailure as error:
            raise RowDropped("template_error", str(error)) from error
        except UnlocatableText as error:
            raise RowDropped("unlocatable_assistant_text", str(error)) from error
        self._expect_system_prompt(messages, text)
        _expect_reasoning(messages[-1], text)
        encoding = self._encoder.encode(text, add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets
        if ids != self._apply_tokenized(messages, False):
            raise ValueError(
                f"the tokenizer {self.tokenizer.name_or_path!r} gives other ids for the text of a "
                f"conversation than apply_chat_template does: {text[:80]!r}"
            )
        if self.config.last_turn_only:
            turns = turns[-1:]
        mask = _mask_turns([start for start, _ in offsets], turns)
        kept = self._keep_length(ids)
        if kept < len(ids):
            text = text[: offsets[kept - 1][1]]
        return Rendered(ids[:kept], mask[:kept], text)

    def _render_text(self, row: Row) -> Rendered:
        assert row.text is not None
        ids = self.tokenizer(row.text, verbose=False)["input_ids"]
        bos = self.tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            ids = ids[1:]  # the text spells the token that the tokenizer adds as well
        kept = self._keep_length(ids)
        text = row.text if kept == len(ids) else self._decode(ids[:kept])
        return Rendered(ids[:kept], [1] * kept, text)

    def _check_tokens(self, row: Row) -> Rendered:
        ids, mask = row.input_ids, row.loss_mask
        if ids is None or mask is None or len(ids) != len(mask):
            num_mask = None if mask is None else len(mask)
            raise RowDropped(
                "length_mismatch", f"{len(ids or [])} input_ids with a loss_mask of {num_mask}"
            )
        for index, token in enumerate(ids):
            if not 0 <= token < self.vocabulary_size:
                raise RowDropped(
                    "token_out_of_range",
                    f"input_ids[{index}]={token}; accepted: 0 to {self.vocabulary_size - 1}",
                )
        for index, flag in enumerate(mask):
            if flag not in (0, 1):
                raise RowDropped("bad_loss_mask", f"loss_mask[{index}]={flag}; accepted: 0 or 1")
        kept = self._keep_length(ids)
        return Rendered(ids[:kept], mask[:kept], self._decode(ids[:kept]))

    def _decode(self, ids: list[int]) -> str:
        text: Any = "" if self._tokenizer is None else self._tokenizer.decode(ids)
        return text

    def _keep_length(self, ids: list[int]) -> int:
        longest = self.config.max_length
        if longest is None or len(ids) <= longest:
            return len(ids)
        if self.config.overlong == "drop":
            raise RowDropped("overlong", f"{len(ids)} tokens, input.max_length={longest}")
        return longest

    def _expect_system_prompt(self, messages: list[Message], text: str) -> None:
        system = self.config.system_prompt
        is_ours = any(message == {"role": "system", "content": system} for message in messages)
        if system is not None and is_ours and system.strip() not in text:
            raise ConfigError(
                f"input.system_prompt={system!r}: the chat template of "
                f"{self.tokenizer.name_or_path!r} leaves out system messages; accepted: no system "
                "prompt"
            )

    def _make_locator(self) -> TurnLocator:
        added = [token.content for token in self.tokenizer.added_tokens_decoder.values()]
        return TurnLocator(self._apply_template, added, self.tokenizer.eos_token)

    def _apply_template(self, messages: list[Message], add_generation_prompt: bool) -> str:
        try:
            self.tokenizer.get_chat_template()
        except ValueError as error:
            raise ConfigError(
                f"target.path={self.tokenizer.name_or_path!r}: its tokenizer has no chat template, "
                "so conversations cannot be rendered; accepted: a tokenizer with one, or rows of "
                "text or tokens"
            ) from error
        try:
            text: Any = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt
            )
            return text
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"target.path={self.tokenizer.name_or_path!r}: its chat template is not valid "
                f"Jinja ({error.message}, line {error.lineno})"
            ) from error
        # A template is a program of its own: these are what its expressions can raise.
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise TemplateFailure(f"the chat template refuses the conversation: {error}") from error

    def _apply_tokenized(self, messages: list[Message], add_generation_prompt: bool) -> list[int]:
        encoded: Any = self.tokenizer.apply_chat_template(
            messages,
            tokenize=True,
            return_dict=True,
            add_generation_prompt=add_generation_prompt,
            tokenizer_kwargs={"verbose": False},
        )
        return list(encoded["input_ids"])


def _mask_turns(starts: list[int], turns: list[tuple[int, int]]) -> list[int]:
    """1 for each token that begins inside a turn; both lists ascend."""
    mask, turn = [0] * len(starts), 0
    for index, start in enumerate(starts):
        while turn < len(turns) and turns[turn][1] <= start:
            turn += 1
        if turn == len(turns):
            break
        mask[index] = int(turns[turn][0] <= start)
    return mask


def _remove_reasoning(content: str) -> str:
    """`content` without its reasoning blocks and the white space after them."""
    kept = []
    while True:
        before, opened, rest = content.partition(OPEN_REASONING)
        if CLOSE_REASONING in before or (opened and CLOSE_REASONING not in rest):
            raise RowDropped(
                "unpaired_reasoning_tag",
                f"input.keep_reasoning=false, and {OPEN_REASONING} or {CLOSE_REASONING} stands "
                f"alone in an answer: {content[:60]!r}",
            )
        kept.append(before)
        if not opened:
            return "".join(kept)
        content = rest.partition(CLOSE_REASONING)[2].lstrip()


def _expect_reasoning(message: Message, text: str) -> None:
    """Refuse a final answer whose reasoning the template leaves out, as if it had none."""
    if message["role"] != "assistant":
        return
    for key in REASONING_KEYS:
        if message.get(key, "").strip() not in text:
            raise RowDropped(
                "reasoning_not_rendered",
                f"the chat template leaves out {key!r} of the last answer; accepted: "
                f"input.keep_reasoning=false, or {OPEN_REASONING} … {CLOSE_REASONING} in 'content'",
            )
