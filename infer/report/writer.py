"""Writing a report as files, each whole or absent, and reading one back."""

import os
from pathlib import Path

from pydantic import ValidationError

from draftsmith.configs.base import ConfigError
from draftsmith.infer.report.html import render_html
from draftsmith.infer.report.markdown import render_markdown
from draftsmith.infer.report.schema import Report


def write_report(report: Report, directory: str | Path) -> list[Path]:
    """Write report.json, report.md and report.html into `directory`, made if absent.

    Each file is written under another name, then renamed over an older one, so a reader never sees
    half a report. Returns the three paths in that order.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.json": report.model_dump_json(indent=2) + "\n",
        "report.md": render_markdown(report),
        "report.html": render_html(report),
    }
    # report.json comes last, because its presence says that the report is whole.
    for name in reversed(texts):
        _replace(directory / name, texts[name])
    return [directory / name for name in texts]


def read_report(path: str | Path) -> Report:
    """The report in a report.json. Raises ConfigError naming file and field if it is not one."""
    path = Path(path)
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(
            f"{path}: {field}: {first['msg']}; must be a report.json of schema_version 1"
        ) from error


def _replace(path: Path, text: str) -> None:
    # The process id keeps two writers of one directory from sharing an unfinished file.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
