"""Reports of an evaluation: report.json for programs, report.md and report.html for people."""

from draftsmith.infer.report.environment import collect_versions, describe_machine
from draftsmith.infer.report.html import render_html
from draftsmith.infer.report.markdown import render_markdown
from draftsmith.infer.report.schema import (
    AcceptanceFigures,
    CategoryFigures,
    Machine,
    Parity,
    PromptSet,
    Report,
    Speed,
    SpeedRepeat,
    Summary,
    TokensPerSecond,
    Versions,
)
from draftsmith.infer.report.writer import read_report, write_report

__all__ = [
    "AcceptanceFigures",
    "CategoryFigures",
    "Machine",
    "Parity",
    "PromptSet",
    "Report",
    "Speed",
    "SpeedRepeat",
    "Summary",
    "TokensPerSecond",
    "Versions",
    "collect_versions",
    "describe_machine",
    "read_report",
    "render_html",
    "render_markdown",
    "write_report",
]
