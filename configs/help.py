"""The help texts, built from the command table and from the docstrings of config fields."""

import shutil
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from draftsmith.configs.fields import Setting, describe, walk

WIDTH = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
COLUMN = 32


def overview(usage: str, entries: Iterable[tuple[str, str]], closing: str) -> str:
    """The help of a level that only leads to commands: each with its summary."""
    entries = list(entries)
    column = max(len(name) for name, _ in entries) + 4
    rows = [f"  {name:<{column - 2}}{summary}" for name, summary in entries]
    return "\n".join([f"usage: {usage}", "", *rows, "", closing])


def command_help(
    name: str, summary: str, model: type[BaseModel], aliases: Mapping[str, str]
) -> str:
    """Every setting of a command, by section: flags, meaning, what is accepted, the default."""
    blocks = [
        f"draftsmith {name}: {summary}",
        f"usage: draftsmith {name} [--config FILE.yaml] [--key value | --key=value]...",
        "\n".join(
            [
                entry("--config FILE.yaml", "Settings as YAML, nested by section; flags win."),
                entry("--help", "This text."),
                *rows(model, "", aliases),
            ]
        ),
    ]
    seen: set[str] = set()
    for setting in walk(model):
        for nested in setting.models:
            alone = len(setting.models) == 1
            title = setting.key if alone else variant_title(setting, nested)
            if title in seen:
                continue
            seen.add(title)
            meaning = setting.field.description if alone else nested.__doc__
            doc = paragraph(f"{title}: {meaning or ''}")
            blocks.append("\n".join([doc, *rows(nested, f"{setting.key}.", aliases)]))
    return "\n\n".join(blocks)


def variant_title(setting: Setting, model: type[BaseModel]) -> str:
    tag = str(setting.field.discriminator)
    return f"{setting.key} ({tag} {model.model_fields[tag].default})"


def rows(model: type[BaseModel], prefix: str, aliases: Mapping[str, str]) -> list[str]:
    """One entry for each plain value of a model, its own before those it shares with others.

    Sections are listed apart.
    """
    lines = []
    own = vars(model).get("__annotations__", {})
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] not in own):
        setting = Setting(f"{prefix}{name}", field)
        if setting.models:
            continue
        flags = [f"--{alias}" for alias, key in aliases.items() if key == setting.key]
        if f"--{setting.key}" not in flags:
            flags.append(f"--{setting.key}")
        lines.append(entry(", ".join(flags), f"{field.description or ''} {limits(field)}"))
    return lines


def limits(field: FieldInfo) -> str:
    """What a field accepts, and its default: `[integer > 0; default 4]`.

    A default of none says that none is accepted, so only other defaults leave it in the words.
    """
    if field.is_required():
        return f"[{describe(field)}; required]"
    accepted, default = describe(field), spell(default_of(field))
    if default == "none":
        accepted = accepted.removesuffix(", or none")
    return f"[{accepted}; default {default}]"


def default_of(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def spell(value: Any) -> str:
    """A default the way it is given on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(spell(item) for item in value)
    return str(getattr(value, "value", value))


def entry(flags: str, text: str) -> str:
    """Flags on the left and wrapped text on the right, or below when the flags are long."""
    margin = " " * COLUMN
    lines = textwrap.wrap(" ".join(text.split()), WIDTH - COLUMN) or [""]
    if len(flags) + 4 > COLUMN:
        return "\n".join([f"  {flags}", *(margin + line for line in lines)])
    first = f"  {flags:<{COLUMN - 2}}{lines[0]}"
    return "\n".join([first, *(margin + line for line in lines[1:])])


def paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)
