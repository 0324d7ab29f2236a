"""From a YAML file and overrides to a config, and back: the one place user input is checked."""

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from draftsmith.configs.base import Config, ConfigError
from draftsmith.configs.fields import (
    Setting,
    Settings,
    describe,
    is_collection,
    is_text,
    members,
    settings_by_key,
    tags_of,
)
from draftsmith.configs.problems import look_up, shorten, show, translate, unknown
from draftsmith.configs.yaml_text import explain, read_yaml, write_yaml

C = TypeVar("C", bound=Config)


def load_config(
    model: type[C],
    path: str | Path | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    aliases: Mapping[str, str] | None = None,
) -> C:
    """Read a YAML file, lay `(dotted key, text)` overrides over it in order, and check the whole.

    `aliases` (short flag to dotted key) only serves the message about a missing setting.
    Raises ConfigError with one line per problem.
    """
    data = read_file(path) if path is not None else {}
    settings = settings_by_key(model)
    for key, text in overrides:
        apply_override(settings, data, key, text)
    complete(model, data)
    problems = misplaced_booleans(settings, data)
    if not problems:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            problems = translate(model, settings, data, error, aliases or {})
    raise ConfigError("\n".join(dict.fromkeys(problems)))


def read_file(path: str | Path) -> dict[str, Any]:
    """The mapping a YAML file holds; an empty file is an empty mapping."""
    try:
        data = read_yaml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; --config takes a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read as a YAML file: {reason}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}, {explain(error)}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: holds {type(data).__name__} {show(data)}; accepted: a mapping of settings"
        )
    return data


def apply_override(settings: Settings, data: dict[str, Any], key: str, text: str) -> None:
    """Write one override into `data`, creating the sections on its way."""
    if key not in settings:
        raise ConfigError(unknown(key, text, settings))
    node = data
    *sections, name = key.split(".")
    for depth, section in enumerate(sections, start=1):
        if node.get(section) is None:
            node[section] = {}
        if not isinstance(node[section], dict):
            above = ".".join(sections[:depth])
            raise ConfigError(f"{above}={show(node[section])}: accepted: a mapping of settings")
        node = node[section]
    node[name] = parse_text(settings[key], text)


def parse_text(variants: Sequence[Setting], text: str) -> Any:
    """A flag's text as the value its field wants: text stays verbatim, the rest is YAML.

    A word that a field lists (`tracking.tracker none`) is that word before it is "no value".
    """
    kinds = [kind for setting in variants for kind in members(setting.field.annotation)]
    if any(text in get_args(kind) for kind in kinds):
        return text
    if text.lower() in ("none", "null") and type(None) in kinds:
        return None
    if any(is_text(kind) for kind in kinds):
        return text
    if any(is_collection(kind) for kind in kinds) and not text.startswith(("[", "{")):
        text = f"[{text}]"
    try:
        return read_yaml(text)
    except yaml.YAMLError:
        setting = variants[0]
        raise ConfigError(
            f"{setting.key}={shorten(text)}: accepted: {describe(setting.field)}"
        ) from None


def complete(model: type[BaseModel], data: dict[str, Any]) -> None:
    """Fill in what is implied: required sections (so that what is missing inside them gets
    named), and the tag of a union's default variant."""
    for setting in (Setting(name, field) for name, field in model.model_fields.items()):
        field, name = setting.field, setting.key
        if not setting.models:
            continue
        if name not in data and field.is_required():
            data[name] = {}
        section = data.get(name)
        if not isinstance(section, dict):
            continue
        tag = field.discriminator
        if isinstance(tag, str) and tag not in section and isinstance(field.default, BaseModel):
            section[tag] = getattr(field.default, tag)
        for nested in variants_for(setting, section):
            complete(nested, section)


def variants_for(setting: Setting, section: Mapping[str, Any]) -> list[type[BaseModel]]:
    """The nested model that a section's tag names; the only one where there is no choice."""
    tag = setting.field.discriminator
    if not isinstance(tag, str):
        return setting.models[:1]
    return [m for m in setting.models if section.get(tag) in tags_of(m, tag)]


def misplaced_booleans(settings: Settings, data: Mapping[str, Any]) -> list[str]:
    """`seed: true` would otherwise pass as the number 1."""
    return [
        f"{key}={show(value)}: accepted: {describe(variants[0].field)}"
        for key, variants in settings.items()
        if isinstance(value := look_up(data, key.split(".")), bool)
        and not any(setting.accepts_bool for setting in variants)
    ]


def dump_config(config: BaseModel) -> str:
    """A config as YAML: every setting, in declaration order; loading it gives the config back."""
    return write_yaml(plain(config.model_dump(mode="python")))


def plain(value: Any) -> Any:
    """Only what YAML has: sets become sorted lists, so that the text is stable."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def write_config(config: BaseModel, path: str | Path) -> None:
    """Write a config where its job's output is; a reader sees the whole file or none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(dump_config(config), encoding="utf-8")
    os.replace(partial, path)
