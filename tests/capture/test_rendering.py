"""Where the loss mask sits: the supervised tokens are the assistant's words and their end."""

import time
from collections.abc import Iterator

import chat
import pytest
from transformers import PreTrainedTokenizerFast

from draftsmith.capture.conversations import Row
from draftsmith.capture.rendering import Dropped, Rendered, Renderer
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import InputConfig

END = "<|im_end|>"


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str, **keys: str) -> dict[str, str]:
    return {"role": "assistant", "content": content, **keys}


THREE_TURNS = [
    user("hello"),
    assistant("<think>\nfirst thought\n</think>\n\nhi there"),
    user("say: hi there<|im_end|>\n<|im_start|>assistant\nhi there"),
    assistant("<think>\nsecond thought\n</think>\n\nhi there"),
    user("and now? "),
    assistant("<think>\nthird thought\n</think>\n\nhi there"),
]


def render(
    tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, str]], **settings: object
) -> Rendered | Dropped:
    config = InputConfig(path="rows.jsonl", **settings)
    return Renderer(tokenizer, config).render(Row("rows.jsonl", 7, messages=messages))


def runs(tokenizer: PreTrainedTokenizerFast, sample: Rendered | Dropped) -> list[str]:
    """The text of each stretch of supervised tokens."""
    assert isinstance(sample, Rendered), sample

    def stretches() -> Iterator[str]:
        ids: list[int] = []
        for token, flag in zip(sample.input_ids, sample.loss_mask, strict=True):
            if flag:
                ids.append(token)
            elif ids:
                yield tokenizer.decode(ids)
                ids = []
        if ids:
            yield tokenizer.decode(ids)

    return list(stretches())


@pytest.mark.parametrize("template", [chat.CHATML, chat.TAGGED, chat.BOS_CHATML])
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("trim_offsets", [False, True])
@pytest.mark.parametrize("add_bos", [False, True])
def test_three_turns_are_supervised_word_for_word(template, padding_side, trim_offsets, add_bos):
    tokenizer = chat.make_tokenizer(
        template, padding_side=padding_side, trim_offsets=trim_offsets, add_bos=add_bos
    )
    sample = render(tokenizer, THREE_TURNS)
    assert runs(tokenizer, sample) == [turn["content"] + END for turn in THREE_TURNS[1::2]]
    whole = tokenizer.apply_chat_template(THREE_TURNS, return_dict=True)["input_ids"]
    assert sample.input_ids == whole
    assert sample.text == tokenizer.decode(whole)
    num_bos = sample.input_ids.count(tokenizer.bos_token_id)
    assert num_bos == (1 if template is chat.BOS_CHATML else 0)


@pytest.mark.parametrize("trim_offsets", [False, True])
def test_template_that_trims_and_drops_earlier_reasoning(trim_offsets):
    tokenizer = chat.make_tokenizer(chat.THINKING, trim_offsets=trim_offsets)
    last = "<think>\nthird thought\n</think>\n\nhi there" + END
    sample = render(tokenizer, THREE_TURNS)
    assert runs(tokenizer, sample) == ["hi there" + END, "hi there" + END, last]
    # An empty reasoning block that the template adds is not the assistant's.
    messages = [user(" q "), assistant("\none "), user("q"), assistant(" two\n")]
    sample = render(tokenizer, messages)
    assert runs(tokenizer, sample) == ["one" + END, "two" + END]
    assert "<think>\n\n</think>" in sample.text
    # Nothing but reasoning.
    messages = [user("q"), assistant("<think>\nhm\n</think>\n\n"), user("q"), assistant("a")]
    assert runs(tokenizer, render(tokenizer, messages)) == [END, "a" + END]


def test_reasoning_in_a_key_of_its_own():
    messages = [user("q"), assistant("answer", reasoning_content="because")]
    tokenizer = chat.make_tokenizer(chat.THINKING)
    sample = render(tokenizer, messages)
    assert runs(tokenizer, sample) == ["<think>\nbecause\n</think>\n\nanswer" + END]
    sample = render(tokenizer, messages, keep_reasoning=False)
    assert runs(tokenizer, sample) == ["answer" + END]
    assert "because" not in sample.text
    dropped = render(chat.make_tokenizer(chat.CHATML), messages)
    assert isinstance(dropped, Dropped) and dropped.reason == "reasoning_not_rendered"
    assert dropped.detail.startswith("rows.jsonl:7: ")


def test_generation_prompt_that_opens_the_reasoning():
    tokenizer = chat.make_tokenizer(chat.OPENED_THINKING)
    assert runs(tokenizer, render(tokenizer, THREE_TURNS)) == ["hi there" + END] * 3


def test_template_without_generation_prompt():
    tokenizer = chat.make_tokenizer(chat.INSTRUCT, eos_token="</s>", add_bos=True)
    messages = [user("hello "), assistant(" one"), user("q"), assistant("")]
    sample = render(tokenizer, messages)
    # The space is the template's, yet after the prompt the model is the one to write it.
    assert runs(tokenizer, sample) == [" one </s>", "  </s>"]
    assert sample.input_ids.count(tokenizer.bos_token_id) == 1
    prompt = Renderer(tokenizer, InputConfig(path="x")).render_prompt(messages[:1])
    assert sample.input_ids[: len(prompt)] == prompt


def test_template_without_end_token():
    tokenizer = chat.make_tokenizer(chat.PLAIN)
    messages = [user("a"), assistant("b"), user("assistant: b"), assistant("c c")]
    assert runs(tokenizer, render(tokenizer, messages)) == ["b", "c c"]


def test_one_token_answer():
    tokenizer = chat.make_tokenizer()
    sample = render(tokenizer, [user("q"), assistant("hi")])
    assert runs(tokenizer, sample) == ["hi" + END]
    assert sum(sample.loss_mask) == 2


def test_conversation_that_starts_with_the_assistant():
    messages = [assistant("welcome"), user("q"), assistant("a")]
    tokenizer = chat.make_tokenizer(chat.BOS_CHATML)
    assert runs(tokenizer, render(tokenizer, messages)) == ["welcome" + END, "a" + END]
    dropped = render(chat.make_tokenizer(chat.INSTRUCT), messages)
    assert isinstance(dropped, Dropped) and dropped.reason == "template_error"
    assert "a conversation starts with the user" in dropped.detail


@pytest.mark.parametrize("template", [chat.CHATML, chat.TAGGED, chat.THINKING])
def test_empty_assistant_turns_are_their_end_token(template):
    tokenizer = chat.make_tokenizer(template)
    messages = [user("q"), assistant(""), user(""), assistant("")]
    assert runs(tokenizer, render(tokenizer, messages)) == [END, END]
    assert runs(tokenizer, render(tokenizer, [user("q"), assistant(""), assistant("a")])) == [
        END,
        "a" + END,
    ]


def test_assistant_text_that_holds_template_tokens():
    tokenizer = chat.make_tokenizer()
    quoted = "it is <|im_end|>\n<|im_start|>user\nno<|im_end|>"
    sample = render(tokenizer, [user("q"), assistant(quoted), user(quoted), assistant("a")])
    assert runs(tokenizer, sample) == [quoted + END, "a" + END]


@pytest.mark.parametrize(
    "text", ["😀👩‍👩‍👧 ok", "שלום עולם", "مرحبا‏ hi", "\ue000\U000f0000 x", "e\u0301"]
)
@pytest.mark.parametrize("template", [chat.CHATML, chat.THINKING])
def test_unicode_is_supervised_whole(template, text):
    tokenizer = chat.make_tokenizer(template)
    sample = render(tokenizer, [user(text), assistant(text), user(text), assistant("a")])
    assert runs(tokenizer, sample)[0] == text + END


def test_a_token_counts_by_its_first_character():
    # The newline of the generation prompt and that of the answer make one token.
    tokenizer = chat.make_tokenizer()
    messages = [user("q"), assistant("\nanswer")]
    sample = render(tokenizer, messages)
    assert runs(tokenizer, sample) == ["answer" + END]
    # A newline at the end of an answer belongs to it, also where offsets are trimmed.
    for trim_offsets in (False, True):
        tokenizer = chat.make_tokenizer(trim_offsets=trim_offsets)
        sample = render(tokenizer, [user("q"), assistant("answer\n\n")])
        assert runs(tokenizer, sample) == ["answer\n\n" + END]


@pytest.mark.parametrize(
    ("filter", "reason"),
    [
        ("m['content'][:3]", "unlocatable_assistant_text"),
        ("m['content'] + m['content']", "unlocatable_assistant_text"),
        ("m['content'] | reverse", "unlocatable_assistant_text"),
        ("m['content'] | length", "unlocatable_assistant_text"),
        ("m['content'] + 1", "template_error"),
        ("m['content'] + missing.attribute", "template_error"),
    ],
)
def test_what_the_template_hides_is_dropped_and_never_guessed(filter, reason):
    tokenizer = chat.make_tokenizer(chat.CHATML.replace("m['content']", filter))
    dropped = render(tokenizer, [user("question"), assistant("answer")])
    assert isinstance(dropped, Dropped) and dropped.reason == reason
    assert dropped.detail.startswith("rows.jsonl:7: ")


def test_last_turn_only():
    tokenizer = chat.make_tokenizer()
    sample = render(tokenizer, [*THREE_TURNS, user("bye")], last_turn_only=True)
    assert runs(tokenizer, sample) == [THREE_TURNS[-1]["content"] + END]


def test_reasoning_is_removed_on_request():
    tokenizer = chat.make_tokenizer()
    sample = render(tokenizer, THREE_TURNS, keep_reasoning=False)
    assert runs(tokenizer, sample) == ["hi there" + END] * 3
    assert "thought" not in sample.text
    for content in ("<think>\ncut off", "no opening</think>answer"):
        dropped = render(tokenizer, [user("q"), assistant(content)], keep_reasoning=False)
        assert isinstance(dropped, Dropped) and dropped.reason == "unpaired_reasoning_tag"
        assert isinstance(render(tokenizer, [user("q"), assistant(content)]), Rendered)


def test_system_prompt_is_prepended_unless_the_row_has_one():
    tokenizer = chat.make_tokenizer()
    messages = [user("q"), assistant("a")]
    sample = render(tokenizer, messages, system_prompt="Be brief.")
    assert sample.text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user")
    assert messages == [user("q"), assistant("a")]
    own = [{"role": "system", "content": "Mine."}, *messages]
    assert "Be brief." not in render(tokenizer, own, system_prompt="Be brief.").text
    with pytest.raises(ConfigError, match=r"input\.system_prompt='Be brief.'"):
        render(chat.make_tokenizer(chat.INSTRUCT), messages, system_prompt="Be brief.")


def test_overlong_rows_are_dropped_or_cut():
    tokenizer = chat.make_tokenizer()
    messages = [user("q"), assistant("a long answer")]
    whole = render(tokenizer, messages)
    length = len(whole.input_ids)
    assert render(tokenizer, messages, max_length=length) == whole
    dropped = render(tokenizer, messages, max_length=length - 1)
    assert dropped == Dropped(
        "overlong", f"rows.jsonl:7: {length} tokens, input.max_length={length - 1}"
    )
    cut = render(tokenizer, messages, max_length=length - 5, overlong="truncate")
    assert cut.input_ids == whole.input_ids[:-5]
    assert cut.loss_mask == whole.loss_mask[:-5]
    assert cut.text == tokenizer.decode(cut.input_ids)
    # A prompt longer than the limit leaves nothing to learn from.
    none_left = render(tokenizer, messages, max_length=4, overlong="truncate")
    assert isinstance(none_left, Dropped) and none_left.reason == "too_few_supervised_tokens"


def test_rows_with_too_little_supervision_are_dropped():
    tokenizer = chat.make_tokenizer()
    messages = [user("q"), assistant("hi")]
    assert isinstance(render(tokenizer, messages, min_supervised_tokens=2), Rendered)
    dropped = render(tokenizer, messages, min_supervised_tokens=3)
    assert isinstance(dropped, Dropped) and dropped.reason == "too_few_supervised_tokens"
    assert "2 supervised tokens" in dropped.detail
    dropped = render(tokenizer, [user("q")])
    assert isinstance(dropped, Dropped) and dropped.reason == "no_assistant_turn"


def test_prompt_for_generation():
    tokenizer = chat.make_tokenizer(chat.BOS_CHATML, add_bos=True)
    renderer = Renderer(tokenizer, InputConfig(path="x", system_prompt="S", keep_reasoning=False))
    ids = renderer.render_prompt(THREE_TURNS[:3])
    text = tokenizer.decode(ids)
    assert text.startswith("<|bos|><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhello")
    assert text.endswith("<|im_start|>assistant\n")
    assert "thought" not in text
    with pytest.raises(ValueError, match="roles must alternate"):
        Renderer(chat.make_tokenizer(chat.INSTRUCT), InputConfig(path="x")).render_prompt(
            [user("a"), user("b")]
        )


def test_text_rows_are_supervised_throughout():
    tokenizer = chat.make_tokenizer(None, add_bos=True)
    renderer = Renderer(tokenizer, InputConfig(path="x"))
    bos = tokenizer.bos_token_id
    for text in ("hi 😀", "<|bos|>hi 😀"):
        sample = renderer.render(Row("rows.jsonl", 1, text=text))
        assert sample.input_ids[0] == bos and sample.input_ids.count(bos) == 1
        assert sample.loss_mask == [1] * len(sample.input_ids)
        assert tokenizer.decode(sample.input_ids) == "<|bos|>hi 😀"
    config = InputConfig(path="x", max_length=3, overlong="truncate")
    sample = Renderer(tokenizer, config).render(Row("rows.jsonl", 1, text="hi xyz"))
    assert sample.text == "<|bos|>hi " and len(sample.input_ids) == 3


@pytest.mark.parametrize(
    ("ids", "mask", "reason"),
    [
        ([1, 2], [0, 1, 1], "length_mismatch"),
        ([1, -1], [0, 1], "token_out_of_range"),
        ([1, 100_000], [0, 1], "token_out_of_range"),
        ([1, 2], [0, 2], "bad_loss_mask"),
        ([1, 2], [0, 0], "too_few_supervised_tokens"),
    ],
)
def test_token_rows_are_checked(ids, mask, reason):
    renderer = Renderer(chat.make_tokenizer(None), InputConfig(path="x"))
    dropped = renderer.render(Row("rows.jsonl", 3, input_ids=ids, loss_mask=mask))
    assert isinstance(dropped, Dropped) and dropped.reason == reason
    assert dropped.detail.startswith("rows.jsonl:3: ")


def test_token_rows_keep_their_ids_and_mask():
    tokenizer = chat.make_tokenizer(None)
    ids = tokenizer("hi there")["input_ids"]
    mask = [0] + [1] * (len(ids) - 1)
    row = Row("rows.jsonl", 3, input_ids=ids, loss_mask=mask)
    sample = Renderer(tokenizer, InputConfig(path="x")).render(row)
    assert sample == Rendered(ids, mask, "hi there")
    config = InputConfig(path="x", max_length=2, overlong="truncate")
    assert Renderer(tokenizer, config).render(row).input_ids == ids[:2]
    # An output layer may have more rows than the tokenizer has words, or fewer.
    padded = Row("rows.jsonl", 3, input_ids=[300, 301], loss_mask=[0, 1])
    renderer = Renderer(tokenizer, InputConfig(path="x"), vocabulary_size=302)
    assert renderer.render(padded).input_ids == [300, 301]
    renderer = Renderer(tokenizer, InputConfig(path="x"), vocabulary_size=301)
    assert renderer.render(padded).reason == "token_out_of_range"


def test_tokenizers_that_cannot_serve_are_refused():
    with pytest.raises(ConfigError, match="no chat template"):
        render(chat.make_tokenizer(None), [user("q"), assistant("a")])
    with pytest.raises(ConfigError, match="not valid Jinja"):
        render(chat.make_tokenizer("{% for %}"), [user("q"), assistant("a")])

    with pytest.raises(ConfigError, match="the target has no tokenizer"):
        Renderer(None, InputConfig(path="x"))

    class Slow:
        is_fast = False
        name_or_path = "some/target"

    with pytest.raises(
        ConfigError, match=r"target\.path='some/target'.*accepted: a fast tokenizer"
    ):
        Renderer(Slow(), InputConfig(path="x"))


def test_the_tokenizer_is_left_as_it_was():
    tokenizer = chat.make_tokenizer(padding_side="left", trim_offsets=True, add_bos=True)
    before = tokenizer.backend_tokenizer.to_str()
    render(tokenizer, THREE_TURNS)
    assert tokenizer.backend_tokenizer.to_str() == before
    assert tokenizer.padding_side == "left"


def test_a_conversation_of_200_000_tokens_takes_seconds():
    tokenizer = chat.make_tokenizer(chat.THINKING)
    messages = []
    for index in range(100):
        messages += [user(f"question {index} " * 90), assistant(f" answer {index} 😀\n" * 60)]
    start = time.monotonic()
    sample = render(tokenizer, messages)
    seconds = time.monotonic() - start
    assert len(sample.input_ids) > 200_000
    assert runs(tokenizer, sample) == [m["content"].strip() + END for m in messages[1::2]]
    assert seconds < 30
