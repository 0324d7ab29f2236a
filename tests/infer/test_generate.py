"""`draftsmith infer generate` from the command line to the file of answers."""

import json
from types import SimpleNamespace

import chat
import pytest
import torch
from tiny import tiny_llama
from toy_drafter import toy_drafter

from draftsmith.configs import cli
from draftsmith.configs.target import TargetConfig
from draftsmith.infer.drafters.checkpoint import save_drafter
from draftsmith.infer.target import load_target

IDS = [[5, 6, 7], [90], list(range(3, 30))]


def load(folder):
    return load_target(TargetConfig(path=str(folder), dtype="float32", device="cpu"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A target without a tokenizer and a drafter for it."""
    folder = tmp_path_factory.mktemp("tiny")
    target = load(tiny_llama(folder / "target"))
    save_drafter(
        toy_drafter(target, list(range(97 - 40, 97))), folder / "draft", target=target, training={}
    )
    return SimpleNamespace(path=folder / "target", draft=folder / "draft", target=target)


def greedy(target, prompt, max_new_tokens):
    ids = torch.tensor([prompt])
    output = target.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(target.stop_token_ids),
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def generate(target, rows, output, *flags):
    command = ["infer", "generate", "--target", str(target), "--dtype", "float32"]
    command += ["--input", str(rows), "--output", str(output), "--max-new-tokens", "9", *flags]
    code = cli.main([*command, "--target.device", "cpu"])
    lines = output.read_text().splitlines() if output.is_file() else []
    return code, [json.loads(line) for line in lines]


def test_tokens_without_a_tokenizer_come_back_as_tokens(tiny, tmp_path):
    rows = write(tmp_path / "p.jsonl", [{"input_ids": ids} for ids in IDS])
    code, lines = generate(tiny.path, rows, tmp_path / "new/folder/out.jsonl", "--batch-size", "2")
    assert code == 0
    assert [line["id"] for line in lines] == ["1", "2", "3"]
    for ids, line in zip(IDS, lines, strict=True):
        assert line["output_ids"] == greedy(tiny.target, ids, 9)
        assert line["text"] is None
        assert set(line) == {"id", "output_ids", "text", "finish_reason"}


def test_a_trace_tells_how_the_output_came_about(tiny, tmp_path):
    rows = write(tmp_path / "p.jsonl", [{"input_ids": ids} for ids in IDS])
    flags = ("--drafter", str(tiny.draft), "--max-draft-len", "3", "--trace", "--batch-size", "2")
    code, lines = generate(tiny.path, rows, tmp_path / "out.jsonl", *flags)
    assert code == 0
    for ids, line in zip(IDS, lines, strict=True):
        assert line["output_ids"] == greedy(tiny.target, ids, 9)
        rebuilt = line["output_ids"][:1]
        for one in line["rounds"]:
            assert one["start"] == len(ids) + len(rebuilt) - 1
            assert len(one["proposed"]) == 3
            assert min(one["proposed"]) >= 57
            rebuilt += [*one["proposed"][: one["accepted"]], one["bonus"]]
        assert rebuilt[: len(line["output_ids"])] == line["output_ids"]


def test_text_goes_through_the_template_and_back(tmp_path):
    folder = tiny_llama(tmp_path / "target", vocab_size=272)
    tokenizer = chat.make_tokenizer()
    tokenizer.save_pretrained(folder)
    rows = write(tmp_path / "p.jsonl", [{"id": "a", "prompt": "hi"}])
    code, (line,) = generate(folder, rows, tmp_path / "out.jsonl")
    assert code == 0
    prompt = tokenizer.encode(
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
    )
    assert line["output_ids"] == greedy(load(folder), prompt, 9)
    assert line["text"] == tokenizer.decode(line["output_ids"], skip_special_tokens=True)


def test_sampling_draws_the_same_in_any_batch(tiny, tmp_path):
    rows = write(tmp_path / "p.jsonl", [{"input_ids": ids} for ids in IDS])
    flags = ("--temperature", "1", "--sampling.seed", "4")
    _, one = generate(tiny.path, rows, tmp_path / "one.jsonl", *flags)
    _, many = generate(tiny.path, rows, tmp_path / "many.jsonl", *flags, "--batch-size", "3")
    assert one == many
    assert [line["output_ids"] for line in one] != [greedy(tiny.target, ids, 9) for ids in IDS]


def test_an_output_that_exists_is_refused(tiny, tmp_path, capsys):
    rows = write(tmp_path / "p.jsonl", [{"input_ids": [5]}])
    (tmp_path / "out.jsonl").write_text('{"mine": 1}\n')
    code, lines = generate(tiny.path, rows, tmp_path / "out.jsonl")
    assert code == 2
    assert lines == [{"mine": 1}]
    assert "out.jsonl' exists; remove it or name another file" in capsys.readouterr().err


def test_one_request_that_cannot_be_served_costs_no_other(tiny, tmp_path, capsys):
    bad = {"id": "bad", "input_ids": [5, 97]}
    long = {"id": "long", "input_ids": [5] * 250}
    good = [{"input_ids": ids} for ids in IDS]
    rows = write(tmp_path / "p.jsonl", [good[0], bad, good[1], long, good[2]])
    code, lines = generate(tiny.path, rows, tmp_path / "out.jsonl", "--batch-size", "2")
    assert code == 1
    failed = [line for line in lines if "error" in line]
    assert [line["id"] for line in failed] == ["bad", "long"]
    assert all(line["finish_reason"] == "error" and not line["output_ids"] for line in failed)
    assert failed[0]["error"] == "prompt token 97 is outside the vocabulary; accepted: 0 to 96"
    assert "need 259 positions; the target has 256" in failed[1]["error"]
    served = [line["output_ids"] for line in lines if "error" not in line]
    assert served == [greedy(tiny.target, ids, 9) for ids in IDS]
    told = capsys.readouterr().err
    assert "error: 2 of 5 requests failed" in told
    assert "the first, id 'bad': prompt token 97" in told


def test_bad_settings_cost_no_work(tiny, tmp_path, capsys):
    rows = write(tmp_path / "p.jsonl", [{"input_ids": [5]}, {"input_ids": "x"}])
    assert generate(tiny.path, rows, tmp_path / "out.jsonl") == (2, [])
    assert "p.jsonl:2: input_ids='x'" in capsys.readouterr().err
    assert generate(tmp_path / "none/there", rows, tmp_path / "out.jsonl")[0] == 2
    rows = write(tmp_path / "p.jsonl", [{"input_ids": [5]}])
    flags = ("--drafter", str(tmp_path))
    assert generate(tiny.path, rows, tmp_path / "out.jsonl", *flags) == (2, [])
    assert "no config.json there" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
