"""What is wrong with a config, in words: the key, the value, and what is accepted."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from draftsmith.configs.fields import Setting, Settings, describe, nearest, tags_of

SHOWN = 80


def translate(
    model: type[BaseModel],
    settings: Settings,
    data: Mapping[str, Any],
    error: ValidationError,
    aliases: Mapping[str, str],
) -> list[str]:
    """A validation error in our words: one line a problem, each with key, value and what fits."""
    flags = {key: alias for alias, key in reversed(list(aliases.items()))}
    lines = []
    for problem in error.errors(include_url=False):
        path = key_path(model, problem["loc"])
        kind = problem["type"]
        if kind in ("extra_forbidden", "invalid_key"):
            lines.append(misplaced(settings, data, path, problem["loc"]))
            continue
        while path and ".".join(map(str, path)) not in settings:
            path, kind = path[:-1], "bad_item"  # name the list, not its item
        key = ".".join(map(str, path))
        if kind == "missing":
            flag = f"--{flags[key]}" if key in flags else f"--{key}"
            lines.append(f"{key}: required; give {flag}, or {key} in the config file")
            continue
        if kind == "union_tag_invalid":
            tags = settings[key][0].tags
            key = f"{key}.{settings[key][0].field.discriminator}"
            lines.append(f"{key}={problem['ctx']['tag']}: accepted: {' | '.join(map(str, tags))}")
            continue
        value = look_up(data, path)
        shown = f"{key}={show(value)}" if not isinstance(value, dict) else key
        if kind in ("value_error", "assertion_error"):
            message = str(problem["ctx"]["error"])
            culprit = f"{key}.{message}"
            if re.split(r"[=:\s]", culprit, maxsplit=1)[0] in settings:
                lines.append(culprit)  # a section's own check, which names the field
                continue
        else:
            message = f"accepted: {accepted(settings[key])}"
            if kind == "string_type" and isinstance(value, (bool, int, float)):
                message += " (put quotes around it)"
        lines.append(f"{shown}: {message}" if shown else message)
    return lines


def misplaced(
    settings: Settings,
    data: Mapping[str, Any],
    path: list[int | str],
    location: Sequence[int | str],
) -> str:
    """A key that its section does not have, though another variant of the section may."""
    key, value = ".".join(map(str, path)), show(look_up(data, path))
    if key not in settings:
        return unknown(key, value, settings)
    section = ".".join(map(str, path[:-1]))
    tag = settings[section][0].field.discriminator
    # Before the key, pydantic's location holds the variant, which the data may leave to a default.
    return f"{key}={value}: does not go with {section}.{tag}={location[-2]}"


def accepted(variants: Sequence[Setting]) -> str:
    """What a setting takes: for a tagged union, the tags of all its variants."""
    setting = variants[0]
    tag = setting.field.discriminator
    if not isinstance(tag, str):
        return describe(setting.field)
    return f"settings with {tag}: {' | '.join(map(str, setting.tags))}"


def key_path(model: type[BaseModel], location: Iterable[int | str]) -> list[int | str]:
    """A pydantic error's location without the union tags it contains."""
    path: list[int | str] = []
    setting: Setting | None = None
    current: type[BaseModel] | None = model
    for part in location:
        if current is None and setting is not None and setting.models:
            current = next(
                (m for m in setting.models if part in tags_of(m, str(setting.field.discriminator))),
                None,
            )
            continue
        path.append(part)
        field = current.model_fields.get(str(part)) if current is not None else None
        setting = Setting(str(part), field) if field is not None else None
        # With several models the next part is the tag of the one that was chosen.
        models = setting.models if setting is not None else []
        current = models[0] if len(models) == 1 else None
    return path


def unknown(key: str, text: str, settings: Settings) -> str:
    hint = nearest(key, settings)
    if hint is not None:
        return f"{key}={shorten(text)}: unknown setting; did you mean {hint}?"
    section = key.rpartition(".")[0]
    siblings = [name.rpartition(".")[2] for name in settings if name.rpartition(".")[0] == section]
    place = f"{section} takes" if section else "accepted:"
    return f"{key}={shorten(text)}: unknown setting; {place} {', '.join(siblings)}"


def look_up(data: Any, path: Iterable[int | str]) -> Any:
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
    return data


def show(value: Any) -> str:
    """A value the way a user would write it."""
    return shorten(value if isinstance(value, str) else json.dumps(value, default=str))


def shorten(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
