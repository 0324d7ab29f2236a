"""The capture job as a whole: what it writes, refuses, continues and leaves alone."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import chat
import pytest
import torch
from tiny import tiny_llama

from draftsmith.capture.dataset import CapturedDataset, Manifest, verify
from draftsmith.capture.job import run
from draftsmith.configs import cli
from draftsmith.configs.base import ConfigError
from draftsmith.configs.capture import CaptureConfig, CaptureVerifyConfig
from draftsmith.configs.loading import write_config
from draftsmith.configs.target import TargetConfig
from draftsmith.infer.target import load_target

ANSWERS = ["yes", "no, never", "it depends on the day", "k", "seven", "blue", "ask again", "so so"]
QUESTIONS = [f"question {row}?" for row in range(len(ANSWERS))]
DEFAULT_LAYERS = [1, 3, 4]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def conversation(question, answer):
    return {"id": question, "messages": [user(question), assistant(answer)]}


def write_rows(path: Path, rows) -> Path:
    """One row a line; a row that is text is written as it stands."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


ROWS = [conversation(question, answer) for question, answer in zip(QUESTIONS, ANSWERS, strict=True)]


@pytest.fixture(scope="module")
def target_path(tmp_path_factory) -> Path:
    folder = tiny_llama(tmp_path_factory.mktemp("target"), vocab_size=272)
    chat.make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def target(target_path):
    return load_target(TargetConfig(path=str(target_path), dtype="float32", device="cpu"))


def make_config(target_path, rows, output, **changes) -> CaptureConfig:
    values = {
        "target": {"path": str(target_path), "dtype": "float32", "device": "cpu"},
        "input": {"path": str(rows)},
        "speculative_config": {"output_directory": str(output), "write_interval": 3},
        "dataset": {"codec": "fp32"},
        "forward": {"tokens_per_batch": 200, "window": 4},
    }
    return CaptureConfig.model_validate(values | changes)


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of every file."""
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def hashes(folder: Path) -> dict[str, str]:
    """Of everything that does not name its own folder."""
    return {
        name: sha256
        for name, (sha256, _) in snapshot(folder).items()
        if name not in ("capture.yaml", "identity.json")
    }


def check_states(target, sample) -> None:
    with torch.no_grad():
        output = target.model(sample.input_ids[None].long(), output_hidden_states=True)
    expected = output.hidden_states
    aux = torch.cat([expected[layer_id + 1][0] for layer_id in DEFAULT_LAYERS], dim=-1)
    torch.testing.assert_close(sample.hidden_states, expected[-1][0], rtol=0, atol=1e-5)
    torch.testing.assert_close(sample.aux_hidden_states, aux, rtol=0, atol=1e-5)


def by_row(folder: Path) -> dict:
    dataset = CapturedDataset(folder)
    return {dataset[i].meta["row"]: dataset[i] for i in range(len(dataset))}


def test_every_good_row_is_captured_and_the_others_are_counted(
    target_path, target, tmp_path, capsys
):
    broken = ['{"messages": [', {"messages": [user("unanswered")]}]
    rows = write_rows(tmp_path / "rows.jsonl", [*ROWS[:2], *broken, *ROWS[2:]])
    output = tmp_path / "data"
    run(make_config(target_path, rows, output))
    assert f"{rows}:3" in capsys.readouterr().err

    samples = by_row(output)
    assert sorted(samples) == [1, 2, 5, 6, 7, 8, 9, 10]
    for row, source in zip(sorted(samples), ROWS, strict=True):
        sample, messages = samples[row], source["messages"]
        prompt = target.tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
        assert sample.input_ids.tolist() == prompt
        written = sample.input_ids[sample.loss_mask.bool()]
        assert target.tokenizer.decode(written) == messages[1]["content"] + "<|im_end|>"
        assert sample.meta["id"] == source["id"]
        check_states(target, sample)

    manifest = Manifest.read(output)
    assert manifest.complete
    assert manifest.counts.samples == 8
    assert manifest.counts.tokens == sum(len(sample.input_ids) for sample in samples.values())
    assert manifest.counts.supervised_tokens == sum(
        int(sample.loss_mask.sum()) for sample in samples.values()
    )
    assert manifest.counts.dropped == {"no_assistant_turn": 1, "not_json": 1}
    assert manifest.layer_ids == DEFAULT_LAYERS
    assert manifest.target.fingerprint == target.fingerprint
    assert max(manifest.proof[f"{name}_difference"] for name in ("layer", "logit", "row")) < 1e-5
    verify.run(CaptureVerifyConfig(dataset=str(output), target=TargetConfig(path=str(target_path))))


def test_the_side_a_tokenizer_pads_on_changes_nothing(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    for side in ("left", "right"):
        folder = tiny_llama(tmp_path / side / "target", vocab_size=272)
        chat.make_tokenizer(padding_side=side).save_pretrained(folder)
        run(make_config(folder, rows, tmp_path / side / "data"))
    left, right = (hashes(tmp_path / side / "data") for side in ("left", "right"))
    del left["manifest.json"], right["manifest.json"]
    assert left == right


def test_a_finished_capture_is_left_alone_whatever_its_quota(target_path, tmp_path, capsys):
    rows, output = write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "data"
    run(make_config(target_path, rows, output))
    before = snapshot(output)
    run(make_config(target_path, rows, output))
    run(make_config(target_path, rows, output, dataset={"codec": "fp32", "quota": "1GB"}))
    assert snapshot(output) == before
    assert "complete already" in capsys.readouterr().err


def test_folders_of_something_else_are_refused_and_left_alone(target_path, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    before = snapshot(mine)
    with pytest.raises(ConfigError, match=r"holds other files and no capture\.yaml"):
        run(make_config(target_path, rows, mine))
    assert snapshot(mine) == before

    output = tmp_path / "data"
    run(make_config(target_path, rows, output))
    before = snapshot(output)
    with pytest.raises(ConfigError, match=r"other settings \(they differ in: input;"):
        run(make_config(target_path, rows, output, input={"path": str(rows), "limit": 3}))
    write_rows(rows, [*ROWS[:-1], conversation("another?", "so so")])
    with pytest.raises(ConfigError, match="other content behind the same paths"):
        run(make_config(target_path, rows, output))
    assert snapshot(output) == before

    with pytest.raises(ConfigError, match="is a file; accepted: a folder"):
        run(make_config(target_path, rows, rows))


def test_what_cannot_start_leaves_no_folder(target_path, tmp_path):
    rows, output = write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "data"
    with pytest.raises(ConfigError, match=r"input\.path=.*there is no such file"):
        run(make_config(target_path, tmp_path / "none.jsonl", output))
    small = {"codec": "fp32", "quota": "20KB"}
    with pytest.raises(ConfigError, match=r"dataset\.quota=20KB: the dataset would take 0\.\d MB"):
        run(make_config(target_path, rows, output, dataset=small))
    with pytest.raises(ConfigError, match="eagle3_layers_to_capture holds 8"):
        chosen = {"output_directory": str(output), "eagle3_layers_to_capture": {8}}
        run(make_config(target_path, rows, output, speculative_config=chosen))
    unanswered = write_rows(tmp_path / "u.jsonl", [{"messages": [user(q)]} for q in QUESTIONS])
    with pytest.raises(ConfigError, match=r"leaves no sample.*'no_assistant_turn': 8"):
        run(make_config(target_path, unanswered, output))
    with pytest.raises(ConfigError, match=r"leaves no sample.*'longer_than_target': 1"):
        long = write_rows(tmp_path / "long.jsonl", [conversation("q", "word " * 80)])
        run(make_config(target_path, long, output))
    assert not output.exists()
    # None of these starts holds the next one to its settings.
    run(make_config(target_path, rows, output))
    assert Manifest.read(output).counts.samples == 8


def test_the_quota_is_the_size_told_before(target_path, tmp_path, capsys):
    rows, output = write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "data"
    run(make_config(target_path, rows, output))
    told = float(capsys.readouterr().err.split(" MB to write")[0].split()[-1])
    taken = sum(path.stat().st_size for path in output.glob("data-*")) / 1e6
    assert told == pytest.approx(taken, rel=0.1, abs=0.05)


def test_a_target_without_a_tokenizer_takes_tokens(tmp_path):
    folder = tiny_llama(tmp_path / "target")
    rows = [
        {"input_ids": [1, 5, 6, 7, 2], "loss_mask": [0, 0, 1, 1, 1]},
        {"input_ids": [1, 40], "output_ids": [41, 42, 2]},
        {"input_ids": [1, 97], "loss_mask": [0, 1]},
    ]
    output = tmp_path / "data"
    run(make_config(folder, write_rows(tmp_path / "rows.jsonl", rows), output))
    samples = by_row(output)
    assert {row: sample.input_ids.tolist() for row, sample in samples.items()} == {
        1: [1, 5, 6, 7, 2],
        2: [1, 40, 41, 42, 2],
    }
    assert samples[2].loss_mask.tolist() == [0, 0, 1, 1, 1]
    manifest = Manifest.read(output)
    assert manifest.tokenizer_fingerprint is None
    assert manifest.counts.dropped == {"token_out_of_range": 1}
    for sample in samples.values():
        check_states(load_target(TargetConfig(path=str(folder), dtype="float32")), sample)

    talk = write_rows(tmp_path / "talk.jsonl", ROWS)
    for more in ({}, {"regenerate": {"max_new_tokens": 2}}):
        with pytest.raises(ConfigError, match=r"target\.path.*has no tokenizer"):
            run(make_config(folder, talk, tmp_path / "other", **more))


def test_layers_minus_one_keeps_the_post_norm_state_only(target_path, target, tmp_path):
    rows, output = write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "data"
    command = ["capture", "run", "--target", str(target_path), "--dtype", "float32"]
    command += ["--input", str(rows), "--output", str(output), "--codec", "fp32", "--layers", "-1"]
    assert cli.main(command) == 0
    assert Manifest.read(output).layer_ids == [-1]
    samples = by_row(output)
    assert len(samples) == 8
    for sample in samples.values():
        assert sample.aux_hidden_states is None
        with torch.no_grad():
            logits = target.model(sample.input_ids[None].long()).logits[0]
        ours = target.logits(sample.hidden_states)
        torch.testing.assert_close(ours, logits, rtol=0, atol=1e-4)


REGENERATE = {"max_new_tokens": 6, "batch_size": 1}


def test_regenerated_answers_are_the_targets_own(target_path, target, tmp_path):
    prompts = [{"turns": [QUESTIONS[0]]}, ROWS[1], {"text": "no conversation"}, "not json"]
    rows, output = write_rows(tmp_path / "rows.jsonl", prompts), tmp_path / "data"
    run(make_config(target_path, rows, output, regenerate=REGENERATE))
    samples = by_row(output)
    assert sorted(samples) == [1, 2]
    for row, sample in samples.items():
        prompt = target.tokenizer.apply_chat_template(
            [user(QUESTIONS[row - 1])], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        ids = torch.tensor([prompt])
        expected = target.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=6,
            do_sample=False,
            eos_token_id=sorted(target.stop_token_ids),
            pad_token_id=0,
        )[0].tolist()
        assert sample.input_ids.tolist() == expected
        assert sample.loss_mask.tolist() == [0] * len(prompt) + [1] * (len(expected) - len(prompt))
        assert sample.meta["generation"]["max_new_tokens"] == 6
        assert sample.meta["finish_reason"] in ("length", "stop")
        check_states(target, sample)
    manifest = Manifest.read(output)
    assert manifest.counts.dropped == {"not_json": 1, "not_regenerable": 1}
    assert manifest.generation["max_new_tokens"] == 6


# Each capture dies in a process of its own, forked before torch has threads.
KILLED = """
import os, signal, sys
from draftsmith.capture import regenerate
from draftsmith.capture.dataset import shard, writer
from draftsmith.capture.job import run
from draftsmith.configs.capture import CaptureConfig
from draftsmith.configs.loading import load_config

PLACES = {
    "sample": (shard.OpenShard, "append", 5),
    "listing": (writer, "write_rows", 2),
    "answers": (regenerate, "write_atomically", 2),
}

def die_at(owner, name, number):
    real, calls = getattr(owner, name), []
    def deadly(*arguments):
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    setattr(owner, name, deadly)

for place in sys.argv[2:]:
    if os.fork() == 0:
        die_at(*PLACES[place])
        run(load_config(CaptureConfig, f"{sys.argv[1]}/{place}.yaml"))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_killed_and_run_again_the_bytes_are_those_of_an_undisturbed_run(target_path, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    sampled = {**REGENERATE, "temperature": 1.0, "seed": 3}
    changes = {"sample": {}, "listing": {}, "answers": {"regenerate": sampled}}
    configs = {
        place: make_config(target_path, rows, tmp_path / place, **change)
        for place, change in changes.items()
    }
    for place, config in configs.items():
        write_config(config, tmp_path / f"{place}.yaml")
    command = [sys.executable, "-c", KILLED, str(tmp_path), *configs]
    died = subprocess.run(command, capture_output=True, text=True)
    assert died.stdout.split() == [str(-signal.SIGKILL)] * 3, died.stderr

    left = {place: snapshot(tmp_path / place) for place in configs}
    assert {".data-r000.tar.tmp", "data-r000-000003.tar"} <= left["sample"].keys()
    assert "data-r000-000006.tar" in left["listing"]
    assert "data-r000-000006.index.parquet" not in left["listing"]
    assert list(left["answers"]) == ["answers/group-000000.jsonl", "capture.yaml", "identity.json"]

    straight = {}
    for name, change in (("plain", {}), ("regenerated", {"regenerate": sampled})):
        run(make_config(target_path, rows, tmp_path / name, **change))
        straight[name] = hashes(tmp_path / name)
    for place, config in configs.items():
        run(config)
        now = snapshot(tmp_path / place)
        assert (
            hashes(tmp_path / place) == straight["regenerated" if place == "answers" else "plain"]
        )
        kept = [name for name in left[place] if name.startswith(("data-", "answers/"))]
        assert kept
        assert all(now[name] == left[place][name] for name in kept)
