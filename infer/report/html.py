"""The report as one HTML page that needs nothing else: no network, no scripts, no fonts to load."""

import json
from collections.abc import Sequence
from html import escape

from draftsmith.infer.report import numerals
from draftsmith.infer.report.facts import (
    CATEGORY_COLUMNS,
    POSITION_COLUMNS,
    SPEED_COLUMNS,
    category_rows,
    count_sentence,
    environment,
    position_rows,
    report_title,
    speed_rows,
    speed_setting,
)
from draftsmith.infer.report.figure import draw_histogram, draw_positions
from draftsmith.infer.report.schema import Report
from draftsmith.infer.report.stylesheet import STYLESHEET


def render_html(report: Report) -> str:
    """The whole page; every text from the report is escaped."""
    title = escape(report_title(report))
    sections = [
        _header(report, title),
        _warnings(report),
        _cards(report),
        _plots(report),
        _positions(report),
        _categories(report),
        _speed(report),
        _section("Prompts, machine and versions", _list(environment(report))),
        _section("What the measures mean", _list(list(report.definitions.items()))),
        _settings(report),
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{STYLESHEET}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _header(report: Report, title: str) -> str:
    summary = report.summary
    split = f" ({report.prompts.split})" if report.prompts.split else ""
    facts = [
        f"{numerals.write_count(summary.num_prompts)} prompts from {report.prompts.path}{split}",
        f"up to {summary.max_draft_len} drafted tokens a round",
        f"{summary.dtype} on {report.machine.device}",
    ]
    line = " · ".join(escape(fact) for fact in facts)
    return f'<header><h1>{title}</h1><p class="quiet">{line}</p></header>'


def _warnings(report: Report) -> str:
    if not report.warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    return f'<section class="warnings" aria-label="Warnings"><ul>{items}</ul></section>'


def _cards(report: Report) -> str:
    summary = report.summary
    speeds = summary.tokens_per_second
    interval = "tokens per round"
    if summary.acceptance_length_interval is not None:
        bounds = numerals.write_interval(summary.acceptance_length_interval)
        interval += f", 95\N{NO-BREAK SPACE}% within {bounds}"
    counts = report.acceptance
    drafted = (
        f"{numerals.write_count(counts.num_accepted)} of "
        f"{numerals.write_count(counts.num_drafted)} drafted tokens"
    )
    rates = "not timed"
    if speeds.plain is not None and speeds.speculative is not None:
        rates = (
            f"{numerals.write_rate(speeds.plain)} → "
            f"{numerals.write_rate(speeds.speculative)} tokens per second"
        )
    parity = "output not compared"
    if report.parity is not None:
        parity = (
            f"{report.parity.num_equal} of {report.parity.num_prompts} outputs equal, "
            f"{report.parity.dtype}"
        )
    lossless = numerals.write_lossless(summary.lossless)
    verdict = "figure bad" if summary.lossless is False else "figure"
    cards = [
        ("Acceptance length", numerals.write_length(summary.acceptance_length), interval, "figure"),
        ("Acceptance rate", numerals.write_percent(summary.acceptance_rate), drafted, "figure"),
        ("Speed-up", numerals.write_ratio(summary.speedup), rates, "figure"),
        ("Lossless", lossless.capitalize(), parity, verdict),
    ]
    items = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd class="{kind}">{escape(value)}</dd>'
        f'<dd class="quiet">{escape(note)}</dd></div>'
        for name, value, note, kind in cards
    )
    return f'<dl class="cards">{items}</dl>'


def _plots(report: Report) -> str:
    figures = report.acceptance
    if not figures.num_rounds or not figures.max_draft_len:
        return _section("Acceptance", '<p class="quiet">No round drafted anything.</p>')
    positions = (
        "<figure><figcaption><b>Acceptance by position</b>"
        '<span class="keys"><span><i class="swatch-bar"></i>survival</span>'
        '<span><i class="swatch-line"></i>conditional</span></span></figcaption>'
        f"{draw_positions(figures.survival, figures.conditional_acceptance)}</figure>"
    )
    histogram = (
        "<figure><figcaption><b>Accepted per round</b>"
        f'<span class="keys">{numerals.write_count(figures.num_rounds)} rounds</span></figcaption>'
        f"{draw_histogram(figures.accepted_length_histogram)}</figure>"
    )
    return f'<div class="plots">{positions}{histogram}</div>'


def _positions(report: Report) -> str:
    table = _table(POSITION_COLUMNS, position_rows(report), "By drafted position")
    note = f'<p class="quiet">{escape(count_sentence(report))}</p>'
    return _section("By drafted position", note + table)


def _categories(report: Report) -> str:
    rows = category_rows(report)
    if not rows:
        return ""
    return _section("By category", _table(CATEGORY_COLUMNS, rows, "By category"))


def _speed(report: Report) -> str:
    rows = speed_rows(report)
    if not rows or report.speed is None:
        return ""
    how = f"Tokens per second of wall clock, {speed_setting(report.speed)}."
    note = f'<p class="quiet">{escape(how)}</p>'
    return _section("Speed", note + _table(SPEED_COLUMNS, rows, "Speed by repeat", num_left=2))


def _settings(report: Report) -> str:
    if not report.settings:
        return ""
    text = json.dumps(report.settings, indent=2, ensure_ascii=False)
    return f"<details><summary>Settings</summary><pre>{escape(text)}</pre></details>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs
    )
    return f'<dl class="facts">{items}</dl>'


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], label: str, num_left: int = 1
) -> str:
    """A table that scrolls by itself when wide; its first `num_left` columns hold words."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="word">{escape(cell)}</{tag}>'
            if i < num_left
            else f"<{tag}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table>'
        f"<thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table></div>"
    )
