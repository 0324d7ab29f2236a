"""The eval job: its report says what its rounds give by hand, and stays as it was."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
from tiny import tiny_target
from toy_drafter import toy_drafter

from draftsmith.configs.base import ConfigError
from draftsmith.configs.infer import EvalConfig
from draftsmith.infer.drafters.checkpoint import save_drafter
from draftsmith.infer.engine import Engine
from draftsmith.infer.evaluate import run
from draftsmith.infer.request import Request

PROMPTS = [[5, 6, 7], [90], list(range(3, 30)), [8, 8, 8, 8]]
MAX_NEW_TOKENS = 16
FILES = ["eval.yaml", "report.html", "report.json", "report.md", "results.jsonl"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A target, prompts, and a drafter that only ever drafts one token the target likes."""
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny_target(folder / "target")
    requests = [Request(str(i), tuple(ids), MAX_NEW_TOKENS) for i, ids in enumerate(PROMPTS)]
    outputs = [result.output_ids for result in Engine(target, num_slots=4).generate(requests)]
    ((liked, _),) = Counter(token for output in outputs for token in output[1:]).most_common(1)
    save_drafter(toy_drafter(target, [liked]), folder / "draft", target=target, training={})
    rows = [
        {"id": f"p{i}", "input_ids": ids, "category": "odd" if i % 2 else "even"}
        for i, ids in enumerate(PROMPTS)
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SimpleNamespace(folder=folder, liked=liked, outputs=outputs)


def make_config(tiny, output, **changes):
    values = {
        "target": {"path": str(tiny.folder / "target"), "dtype": "float32", "device": "cpu"},
        "drafter": str(tiny.folder / "draft"),
        "prompts": {"path": str(tiny.folder / "p.jsonl")},
        "output": str(output),
        "sampling": {"max_new_tokens": MAX_NEW_TOKENS, "ignore_eos": True},
        "max_draft_len": 3,
        "batch_size": 2,
        "speed": {"num_prompts": 1, "repeats": 2},
        "parity_prompts": 2,
    }
    return EvalConfig.model_validate(values | changes)


def figures(lines):
    """(emitted, rounds, drafted, accepted) of result lines: past the end nothing is drafted."""
    emitted = rounds = drafted = accepted = 0
    for line in lines:
        left = line["num_output_tokens"] - 1
        for proposed, kept in zip(line["proposed"], line["accepted"], strict=True):
            drafted += min(proposed, left)
            accepted += min(kept, left)
            emitted += min(kept + 1, left)
            rounds += 1
            left -= min(kept + 1, left)
        assert left == 0
    return emitted, rounds, drafted, accepted


def test_the_report_is_what_the_rounds_give_by_hand(tiny, tmp_path, capsys):
    output = tmp_path / "report"
    run(make_config(tiny, output))
    assert sorted(path.name for path in output.iterdir()) == FILES
    lines = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["p0", "p1", "p2", "p3"]
    assert {line["num_output_tokens"] for line in lines} == {MAX_NEW_TOKENS}
    emitted, rounds, drafted, accepted = figures(lines)
    assert emitted == 4 * (MAX_NEW_TOKENS - 1)
    assert accepted > 0

    # A drafter of one word accepts exactly where the target says that word in a row.
    by_hand = 0
    for tokens in tiny.outputs:
        place = 1
        while place < len(tokens):
            run_length = 0
            while run_length < 3 and tokens[place : place + 1] == (tiny.liked,):
                run_length, place = run_length + 1, place + 1
            by_hand, place = by_hand + 1, place + 1
    assert rounds == by_hand

    report = json.loads((output / "report.json").read_text())
    summary = report["summary"]
    assert summary["acceptance_length"] == pytest.approx(emitted / rounds)
    assert summary["acceptance_rate"] == pytest.approx(accepted / drafted)
    assert summary["num_prompts"] == 4
    assert summary["max_draft_len"] == 3
    assert summary["lossless"] is True
    low, high = summary["acceptance_length_interval"]
    assert low <= summary["acceptance_length"] <= high
    acceptance = report["acceptance"]
    counts = [acceptance[f"num_{name}"] for name in ("emitted", "rounds", "drafted", "accepted")]
    assert counts == [emitted, rounds, drafted, accepted]
    repeats = report["speed"]["repeats"]
    assert [repeat["first"] for repeat in repeats] == ["plain", "speculative"]
    for mode in ("plain", "speculative"):
        rates = [MAX_NEW_TOKENS / repeat[f"{mode}_seconds"] for repeat in repeats]
        assert summary["tokens_per_second"][mode] == pytest.approx(sum(rates) / 2)
    ratios = [repeat["plain_seconds"] / repeat["speculative_seconds"] for repeat in repeats]
    assert summary["speedup"] == pytest.approx(sum(ratios) / 2)
    for name, half in (("even", lines[::2]), ("odd", lines[1::2])):
        emitted, rounds, drafted, accepted = figures(half)
        assert report["by_category"][name]["acceptance_length"] == pytest.approx(emitted / rounds)
        assert report["by_category"][name]["acceptance_rate"] == pytest.approx(accepted / drafted)
    assert "Acceptance length" in capsys.readouterr().out


def test_a_report_is_left_alone_and_not_mixed_with_another(tiny, tmp_path, capsys):
    output = tmp_path / "report"
    run(make_config(tiny, output))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.iterdir()}
    capsys.readouterr()
    run(make_config(tiny, output))
    told = capsys.readouterr()
    assert "already measured" in told.err
    assert "Acceptance length" in told.out
    with pytest.raises(ConfigError, match=r"holds the report of another run.*name another folder"):
        run(make_config(tiny, output, max_draft_len=2))
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.iterdir()}
    assert after == before


def test_exactness_is_compared_greedily_even_where_answers_are_sampled(tiny, tmp_path):
    sampling = {"max_new_tokens": 8, "ignore_eos": True, "temperature": 1.0}
    output = tmp_path / "report"
    run(make_config(tiny, output, sampling=sampling, parity_prompts=4, speed={"repeats": 1}))
    report = json.loads((output / "report.json").read_text())
    assert report["parity"] == {"num_prompts": 4, "num_equal": 4, "dtype": "float32"}


def test_without_a_comparison_nothing_is_claimed(tiny, tmp_path):
    config = make_config(tiny, tmp_path / "report", parity_prompts=0, speed={"repeats": 1})
    run(config)
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert report["summary"]["lossless"] is None
    assert report["parity"] is None


def test_what_cannot_be_measured_writes_no_report(tiny, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"input_ids": [5]}\n{"input_ids": [97]}\n')
    prompts = {"path": str(tmp_path / "p.jsonl")}
    with pytest.raises(ValueError, match=r"1 of 2 prompts could not be decoded.*token 97"):
        run(make_config(tiny, tmp_path / "report", prompts=prompts))
    assert not list((tmp_path / "report").iterdir())
    with pytest.raises(OSError, match=r"p\.jsonl"):
        run(make_config(tiny, tmp_path / "p.jsonl"))
