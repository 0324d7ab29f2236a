"""Reports: the schema round-trips, files are whole, and the page stands alone."""

import json
import math
import re
from html.parser import HTMLParser

import pytest
from pydantic import ValidationError

from draftsmith.configs.base import ConfigError
from draftsmith.infer import report as reports
from draftsmith.infer.metrics import AcceptanceCounts, Round

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and keeps what the tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((data, tuple(self.open)))

    def named(self, tag):
        return [attrs for name, attrs, _ in self.tags if name == tag]


def make_counts(max_draft_len=3, accepted=(2, 0, 3)):
    counts = AcceptanceCounts(max_draft_len)
    start, rounds = 0, []
    for num in accepted:
        rounds.append(Round(start, tuple(range(max_draft_len)), num, 9))
        start += num + 1
    counts.add(rounds, 1 + start)
    return counts


def make_report(counts=None, **changes):
    counts = make_counts() if counts is None else counts
    speed = reports.Speed.from_repeats(
        [
            reports.SpeedRepeat(
                first="plain",
                plain_seconds=10.0,
                plain_tokens=100,
                speculative_seconds=5.0,
                speculative_tokens=100,
            ),
            reports.SpeedRepeat(
                first="speculative",
                plain_seconds=8.0,
                plain_tokens=100,
                speculative_seconds=5.0,
                speculative_tokens=100,
            ),
        ],
        num_prompts=3,
        batch_size=1,
    )
    parity = reports.Parity(num_prompts=4, num_equal=4, dtype="float32")
    fields = {
        "target": "tiny-target",
        "draft": "tiny-draft",
        "summary": reports.Summary(
            acceptance_length=counts.acceptance_length,
            acceptance_length_interval=(1.5, 3.5),
            acceptance_rate=counts.acceptance_rate,
            speedup=speed.median_ratio,
            tokens_per_second=speed.tokens_per_second,
            lossless=parity.lossless,
            dtype="bfloat16",
            max_draft_len=counts.max_draft_len,
            num_prompts=4,
        ),
        "acceptance": reports.AcceptanceFigures(**counts.figures()),
        "speed": speed,
        "parity": parity,
        "by_category": {
            "code": reports.CategoryFigures(
                acceptance_length=2.5, acceptance_rate=0.5, num_prompts=4
            )
        },
        "prompts": reports.PromptSet(path="prompts.jsonl", split="held_out", num_prompts=4),
        "settings": {"target": {"path": "tiny"}, "seed": 0},
        "versions": reports.collect_versions(),
        "machine": reports.Machine(
            cpu="A processor", num_cores=2, num_threads=2, memory_gib=8.0, device="cpu"
        ),
    }
    return reports.Report(**fields | changes)


def make_empty_report():
    counts = AcceptanceCounts(2)
    summary = reports.Summary(
        acceptance_length=None,
        acceptance_rate=None,
        dtype="float32",
        max_draft_len=2,
        num_prompts=0,
    )
    return make_report(
        counts,
        summary=summary,
        speed=reports.Speed.from_repeats([], num_prompts=0, batch_size=1),
        parity=None,
        by_category={},
    )


def test_speed_figures_are_worked_out_by_repeat():
    speed = make_report().speed
    assert speed.ratios == (2.0, 1.6)
    assert speed.median_ratio == pytest.approx(1.8)
    assert speed.tokens_per_second.plain == pytest.approx((10.0 + 12.5) / 2)
    assert speed.tokens_per_second.speculative == pytest.approx(20.0)


def test_report_json_round_trips_and_holds_the_documented_summary(tmp_path):
    report = make_report(warnings=["one", "two"])
    path = reports.write_report(report, tmp_path)[0]
    assert reports.read_report(path) == report
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    assert document["summary"] == {
        "acceptance_length": 8 / 3,
        "acceptance_length_interval": [1.5, 3.5],
        "acceptance_rate": 5 / 9,
        "speedup": 1.8,
        "tokens_per_second": {"plain": 11.25, "speculative": 20.0},
        "lossless": True,
        "dtype": "bfloat16",
        "max_draft_len": 3,
        "num_prompts": 4,
    }
    assert document["acceptance"] == make_counts().figures()
    assert document["warnings"] == ["one", "two"]
    assert "acceptance_length" in document["definitions"]


def test_unmeasured_figures_are_null_in_json_and_a_dash_for_people(tmp_path):
    json_path, markdown_path, html_path = reports.write_report(make_empty_report(), tmp_path)

    def refuse(name):
        raise AssertionError(f"{name} in report.json")

    document = json.loads(json_path.read_text(), parse_constant=refuse)
    assert document["summary"]["acceptance_length"] is None
    assert document["speed"]["median_ratio"] is None
    assert document["acceptance"]["survival"] == [None, None]
    for path in (markdown_path, html_path):
        text = path.read_text()
        assert "nan" not in text.lower().split()
        assert "\N{EN DASH}" in text
    Page(html_path.read_text())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_json_lacks_are_refused(value):
    with pytest.raises(ValidationError, match="acceptance_rate"):
        reports.CategoryFigures(acceptance_length=1.0, acceptance_rate=value, num_prompts=1)


def test_settings_never_put_nan_into_the_file(tmp_path):
    path = reports.write_report(make_report(settings={"limit": math.inf}), tmp_path)[0]
    assert json.loads(path.read_text())["settings"] == {"limit": None}


def test_lists_of_another_length_are_refused():
    figures = make_counts().figures() | {"survival": [1.0]}
    with pytest.raises(ValidationError, match="survival has 1 entries: must have 3"):
        reports.AcceptanceFigures(**figures)


def test_writing_replaces_and_leaves_nothing_unfinished(tmp_path):
    directory = tmp_path / "runs" / "one"
    reports.write_report(make_empty_report(), directory)
    paths = reports.write_report(make_report(), directory)
    assert [path.name for path in paths] == ["report.json", "report.md", "report.html"]
    assert sorted(path.name for path in directory.iterdir()) == sorted(path.name for path in paths)
    assert reports.read_report(paths[0]) == make_report()


def test_a_failed_write_keeps_the_older_report(tmp_path, monkeypatch):
    path = reports.write_report(make_report(), tmp_path)[0]
    before = path.read_bytes()

    def fail(_descriptor):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        reports.write_report(make_empty_report(), tmp_path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_that_is_no_report_is_named(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"schema_version": 2}')
    with pytest.raises(ConfigError, match=r"report\.json: schema_version"):
        reports.read_report(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"report\.json: the file"):
        reports.read_report(path)


def test_page_needs_nothing_from_elsewhere():
    text = reports.render_html(make_report())
    page = Page(text)
    assert not re.search(r"https?:|@import|url\(", text)
    loading = {"script", "link", "img", "iframe", "object", "embed"}
    assert loading.isdisjoint(tag for tag, _, _ in page.tags)
    assert not [attrs for _, attrs, _ in page.tags if {"src", "href"} & attrs.keys()]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.named(
        "meta"
    )
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("num_accepted", [(0, 0), (3, 3), (2, 0, 3)])
@pytest.mark.parametrize("max_draft_len", [3, 12, 40])
def test_every_plot_is_described_in_words_and_stays_in_its_box(max_draft_len, num_accepted):
    page = Page(reports.render_html(make_report(make_counts(max_draft_len, num_accepted))))
    plots = page.named("svg")
    assert len(plots) == 2
    ids = [attrs["id"] for _, attrs, _ in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in plots:
        assert attrs["role"] == "img"
        assert set(attrs["aria-labelledby"].split()) <= set(ids)
        assert attrs["viewbox"] == "0 0 400 260"
    titles = [text for text, parents in page.texts if parents[-2:] == ("svg", "title")]
    assert titles == ["Acceptance by drafted position", "Drafted tokens accepted per round"]
    for attrs in page.named("text"):
        assert 0 <= float(attrs["x"]) <= 400
        assert 8 <= float(attrs["y"]) <= 258
    for attrs in page.named("rect"):
        assert float(attrs["height"]) >= 0
        assert 0 <= float(attrs["x"]) <= 400 - float(attrs["width"])


def test_plot_prints_its_values():
    page = Page(reports.render_html(make_report()))
    printed = [text for text, parents in page.texts if parents[-2:] == ("svg", "text")]
    # Survival 2/3, 2/3, 1/3 and conditional acceptance 2/3, 1, 1/2 of make_counts.
    assert printed.count("67") == 3
    assert {"33", "100", "50"} <= set(printed)
    assert "drafted position (0 is the first)" in printed


def test_a_gap_in_the_line_where_nothing_was_reached():
    counts = AcceptanceCounts(4)
    counts.add([Round(0, (1, 2, 3, 4), 0, 9)], 2)
    page = Page(reports.render_html(make_report(counts)))
    assert len(page.named("circle")) == 1


def test_hostile_names_are_shown_as_text():
    hostile = '<script>alert("x")</script>|`*'
    report = make_report(
        draft=hostile,
        prompts=reports.PromptSet(path=hostile, split=hostile, num_prompts=1),
        by_category={
            hostile: reports.CategoryFigures(
                acceptance_length=1.0, acceptance_rate=0.0, num_prompts=1
            )
        },
        settings={hostile: hostile},
        warnings=[hostile],
        definitions={hostile: hostile},
    )
    text = reports.render_html(report)
    assert "<script" not in text
    page = Page(text)
    assert page.named("script") == []
    assert any(data == hostile for data, parents in page.texts if parents[-1:] == ("td",))
    markdown = reports.render_markdown(report)
    assert "<script" not in markdown.replace("\\<", "")
    row = next(line for line in markdown.splitlines() if line.endswith("| 1.00 | 0.0 % | 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_markdown_holds_the_figures_with_their_counts():
    text = reports.render_markdown(make_report(warnings=["Sampled, so not compared."]))
    assert text.startswith("# tiny-draft on tiny-target\n")
    assert "| Acceptance length | 2.67 (95 %: 1.50 to 3.50) |" in text
    assert "| Speed-up | 1.80\N{MULTIPLICATION SIGN} |" in text
    assert "| Lossless | yes (4 of 4 outputs equal, float32) |" in text
    assert "8 tokens emitted in 3 rounds; 5 of 9 drafted tokens accepted." in text
    assert "| 1 | 3 | 2 | 2 | 100.0 % | 66.7 % |" in text
    assert "> **Warning:** Sampled, so not compared." in text


def test_a_failed_parity_check_is_plain_to_see():
    parity = reports.Parity(num_prompts=4, num_equal=3, dtype="float32")
    assert parity.lossless is False
    summary = make_report().summary.model_copy(update={"lossless": False})
    text = reports.render_html(make_report(parity=parity, summary=summary))
    assert '<dd class="figure bad">No</dd>' in text
    assert "3 of 4 outputs equal" in text


def test_environment_is_described():
    machine = reports.describe_machine()
    assert machine.cpu and machine.num_cores >= 1 and machine.num_threads >= 1
    assert machine.memory_gib is None or machine.memory_gib > 0
    assert machine.device == "cpu"
    versions = reports.collect_versions()
    assert versions.torch and versions.transformers and versions.draftsmith
