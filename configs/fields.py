"""The settings of a config model: their dotted keys, and what each accepts in words."""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

SCALARS: dict[Any, str] = {bool: "true | false", int: "integer", float: "number"}
COLLECTIONS = (list, set, frozenset, tuple)
SYMBOLS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@dataclass(frozen=True)
class Setting:
    """One field of a config, at any depth: `key` is its dotted path from the top."""

    key: str
    field: FieldInfo

    @property
    def models(self) -> list[type[BaseModel]]:
        """The models this field nests: several for a tagged union, none for a plain value."""
        return [kind for kind in members(self.field.annotation) if is_model(kind)]

    @property
    def tags(self) -> list[Any]:
        """The names that choose among the models of a tagged union; none for other fields."""
        tag = self.field.discriminator
        if not isinstance(tag, str):
            return []
        return [name for model in self.models for name in tags_of(model, tag)]

    @property
    def accepts_bool(self) -> bool:
        return bool in members(self.field.annotation)


Settings = Mapping[str, Sequence[Setting]]
"""Dotted key to its settings: more than one where variants of a union share a name."""


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """Every field in declaration order, a section before its fields; variants share keys."""
    for name, field in model.model_fields.items():
        setting = Setting(f"{prefix}{name}", field)
        yield setting
        for nested in setting.models:
            yield from walk(nested, f"{setting.key}.")


def settings_by_key(model: type[BaseModel]) -> Settings:
    """All settings of a model by their dotted key."""
    found: dict[str, list[Setting]] = {}
    for setting in walk(model):
        found.setdefault(setting.key, []).append(setting)
    return found


def tags_of(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """The names under which a variant of a union goes, in its field `tag`."""
    return get_args(model.model_fields[tag].annotation)


def members(annotation: Any) -> list[Any]:
    """The alternatives of a type: `int | None` gives both, anything else itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for part in get_args(annotation) for kind in members(part)]
    return [annotation]


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_collection(kind: Any) -> bool:
    return kind in COLLECTIONS or get_origin(kind) in COLLECTIONS


def is_text(kind: Any) -> bool:
    """Whether values of this type are written as text: str, a path, or one of some words."""
    if get_origin(kind) is Literal:
        return any(isinstance(choice, str) for choice in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, (str, Path, Enum))


def describe(field: FieldInfo) -> str:
    """What a field accepts, in words: `integer > 0, or none`."""
    kinds = members(field.annotation)
    words = [describe_kind(kind) for kind in kinds if kind is not type(None)]
    limits = [
        f"{symbol} {getattr(limit, name):g}"
        for limit in bounds(field)
        for name, symbol in SYMBOLS.items()
        if getattr(limit, name, None) is not None
    ]
    text = " | ".join(dict.fromkeys(words))
    if limits:
        text += " " + " and ".join(limits)
    if type(None) in kinds:
        text += ", or none"
    return text


def bounds(field: FieldInfo) -> list[Any]:
    """Limits given on the field, and those given on a type inside its annotation."""
    inner = [
        extra
        for part in (field.annotation, *get_args(field.annotation))
        if get_origin(part) is Annotated
        for extra in get_args(part)[1:]
    ]
    return [*field.metadata, *inner]


def describe_kind(kind: Any) -> str:
    if kind in SCALARS:
        return SCALARS[kind]
    if get_origin(kind) is Literal:
        return " | ".join(str(getattr(choice, "value", choice)) for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(str(choice.value) for choice in kind)
    if is_collection(kind):
        return describe_collection(kind)
    if kind is dict or get_origin(kind) is dict:
        return "mapping"
    return "mapping of settings" if is_model(kind) else "text"


def describe_collection(kind: Any) -> str:
    items = [item for item in get_args(kind) if item is not Ellipsis]
    if any(is_collection(item) for item in items):
        return "list of lists"
    plural = {int: "integers", float: "numbers"}.get(items[0] if items else str, "words")
    fixed = get_origin(kind) is tuple and Ellipsis not in get_args(kind)
    return f"{len(items)} comma-separated {plural}" if fixed else f"comma-separated {plural}"


def nearest(word: str, keys: Iterable[str]) -> str | None:
    """The key a mistyped word most likely meant: its last part must be close, then its section."""
    section, leaf = split_key(word.lower())

    def closeness(key: str) -> tuple[float, float]:
        its_section, its_leaf = split_key(key)
        return similarity(leaf, its_leaf), similarity(section, its_section)

    best = max(keys, key=closeness, default=None)
    return best if best is not None and closeness(best)[0] >= 0.6 else None


def split_key(key: str) -> tuple[str, str]:
    section, _, leaf = key.replace("-", "_").rpartition(".")
    return section, leaf


def similarity(one: str, other: str) -> float:
    """From 0 to 1; a word that the other contains is close, however much longer that one is."""
    floor = 0.65 if len(one) >= 4 and one in other else 0.0
    return max(floor, difflib.SequenceMatcher(None, one, other).ratio())
