"""Prompt files: every form, and errors that name file and line."""

import json

import chat
import pytest
from tiny import tiny_llama

from draftsmith.configs.base import ConfigError
from draftsmith.configs.target import TargetConfig
from draftsmith.infer.prompts import Prompt, encode_prompt, read_prompts
from draftsmith.infer.target import load_target

TALK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


def write(path, *lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("\n".join(texts).encode())
    return path


def test_every_form_is_read(tmp_path):
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "hi", "category": "greeting"},
        {"id": "two", "turns": ["first", "second"]},
        "",
        {"question_id": 81, "messages": TALK, "category": 7},
        {"id": None, "input_ids": [5, 6], "prompt": None},
    )
    assert read_prompts(path) == [
        Prompt("1", ({"role": "user", "content": "hi"},), None, "greeting"),
        Prompt("two", ({"role": "user", "content": "first"},), None, None, ("second",)),
        Prompt("81", tuple(TALK), None, "7"),
        Prompt("5", None, (5, 6)),
    ]


def test_only_newlines_end_lines(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes('\ufeff{"prompt": "a\u2028b\x85c"}\r\n{"prompt": "😀 שלום"}\r\n'.encode())
    texts = [prompt.text for prompt in read_prompts(path)]
    assert texts == ["a\u2028b\x85c", "😀 שלום"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": ', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "list; accepted: a JSON object"),
        ({"text": "hi"}, r"has \[\]; accepted: exactly one of input_ids, messages, prompt, turns"),
        ({"prompt": "hi", "turns": ["hi"]}, r"has \['prompt', 'turns'\]"),
        ({"prompt": ""}, "prompt is ''; accepted: text that is not empty"),
        ({"prompt": 5}, "prompt is 5"),
        ({"turns": []}, r"turns=\[\]; accepted: a list that is not empty"),
        ({"turns": ["a", 1]}, "turns is 1"),
        ({"messages": ["hi"]}, "message 'hi'; accepted: role and content"),
        ({"messages": [{"role": "user"}]}, "content of 'user' is None"),
        ({"messages": [*TALK, {"role": "assistant", "content": "no"}]}, "end with an answer"),
        ({"input_ids": []}, r"input_ids=\[\]; accepted: a list of integers"),
        ({"input_ids": [1, True]}, "accepted: a list of integers"),
        ({"input_ids": [1.0]}, "accepted: a list of integers"),
        ('{"prompt": "\\ud800"}', "prompt is not valid Unicode"),
        ('{"prompt": "a", "id": "\\ud800"}', "id is not valid Unicode"),
        ('{"prompt": "a", "category": "\\udfff"}', "category is not valid Unicode"),
        ({"prompt": "a", "id": "one"}, "id 'one' stands on line 1 too"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = write(tmp_path / "p.jsonl", {"id": "one", "prompt": "fine"}, "", line)
    with pytest.raises(ConfigError, match=rf"p\.jsonl:3: .*{message}"):
        read_prompts(path)


def test_files_without_prompts_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.jsonl: .*accepted: a JSON Lines file"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="accepted: a JSON Lines file"):
        read_prompts(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no prompts \(split=all\)"):
        read_prompts(write(tmp_path / "p.jsonl", "", ""))
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(ConfigError, match=r"latin\.jsonl is not UTF-8 text"):
        read_prompts(tmp_path / "latin.jsonl")


def test_parts_of_a_file_complement_each_other(tmp_path):
    path = write(tmp_path / "p.jsonl", *({"prompt": f"prompt {n}"} for n in range(60)))
    train = read_prompts(path, split="train", heldout_fraction=0.3)
    heldout = read_prompts(path, split="heldout", heldout_fraction=0.3)
    assert {prompt.id for prompt in train}.isdisjoint(prompt.id for prompt in heldout)
    assert len(train) + len(heldout) == 60
    assert 8 <= len(heldout) <= 30
    assert read_prompts(path, split="heldout", heldout_fraction=0.3, limit=5) == heldout[:5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("target"), vocab_size=272)


def load(folder, template):
    target = load_target(TargetConfig(path=str(folder), dtype="float32", device="cpu"))
    target.tokenizer = chat.make_tokenizer(template)
    return target


def test_messages_go_through_the_template(folder, tmp_path):
    target = load(folder, chat.CHATML)
    first, second = read_prompts(write(tmp_path / "p", {"messages": TALK}, {"turns": ["a", "b"]}))
    assert target.tokenizer.decode(encode_prompt(first, target)) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert target.tokenizer.decode(encode_prompt(second, target)) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    )
    assert encode_prompt(Prompt("x", None, (9, 8)), target) == (9, 8)


def test_without_a_template_one_text_is_taken_as_it_stands(folder, tmp_path):
    target = load(folder, None)
    plain, talk = read_prompts(write(tmp_path / "p", {"prompt": "hi you"}, {"messages": TALK}))
    assert target.tokenizer.decode(encode_prompt(plain, target)) == "hi you"
    with pytest.raises(ConfigError, match=r"prompt '2': target\.path=.*has no chat template"):
        encode_prompt(talk, target)


def test_what_a_template_refuses_is_named(folder):
    target = load(folder, chat.INSTRUCT)
    twice = tuple({"role": "user", "content": text} for text in "ab")
    with pytest.raises(ConfigError, match=r"prompt 'q9': the chat template.*roles must alternate"):
        encode_prompt(Prompt("q9", twice, None), target)
    target.tokenizer = None
    with pytest.raises(ConfigError, match="has no tokenizer; accepted: prompts with `input_ids`"):
        encode_prompt(Prompt("q9", twice, None), target)
