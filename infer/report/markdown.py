"""The report as Markdown: short tables for a terminal, a pull request or a notebook."""

import re
from collections.abc import Sequence

from draftsmith.infer.report.facts import (
    CATEGORY_COLUMNS,
    POSITION_COLUMNS,
    SPEED_COLUMNS,
    category_rows,
    count_sentence,
    environment,
    headline,
    position_rows,
    report_title,
    speed_rows,
    speed_setting,
)
from draftsmith.infer.report.schema import Report


def render_markdown(report: Report) -> str:
    """The whole report; cells are escaped, so names from data cannot break a table."""
    sections = [
        f"# {_text(report_title(report))}",
        _warnings(report),
        _table(("", ""), headline(report)),
        _positions(report),
        _categories(report),
        _speed(report),
        _environment(report),
        _definitions(report),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _warnings(report: Report) -> str:
    return "\n".join(f"> **Warning:** {_text(warning)}\n>" for warning in report.warnings)


def _positions(report: Report) -> str:
    table = _table(POSITION_COLUMNS, position_rows(report), num_left=0)
    return f"## By drafted position\n\n{count_sentence(report)}\n\n{table}"


def _categories(report: Report) -> str:
    rows = category_rows(report)
    return f"## By category\n\n{_table(CATEGORY_COLUMNS, rows)}" if rows else ""


def _speed(report: Report) -> str:
    rows = speed_rows(report)
    if not rows or report.speed is None:
        return ""
    how = f"Tokens per second of wall clock, {speed_setting(report.speed)}."
    return f"## Speed\n\n{how}\n\n{_table(SPEED_COLUMNS, rows, 2)}"


def _environment(report: Report) -> str:
    return f"## Prompts, machine and versions\n\n{_table(('', ''), environment(report))}"


def _definitions(report: Report) -> str:
    lines = [f"- **{_text(name)}**: {_text(text)}" for name, text in report.definitions.items()]
    return "## Definitions\n\n" + "\n".join(lines) if lines else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> str:
    """A table whose first `num_left` columns stand left; the others are numbers, right.

    A two-column table is a list of names and values, all left.
    """
    left = len(columns) if len(columns) == 2 else num_left
    rule = ["---" if i < left else "---:" for i in range(len(columns))]
    lines = [columns, rule, *[[_text(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(text: str) -> str:
    """Text as Markdown shows it: one line, with no character that starts markup."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", " ".join(text.split()))
