"""The page about decoding configs, made from the models and the table of what is done with them."""

import inspect
import types
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from draftsmith.configs.decoding import DecodingBaseConfig
from draftsmith.configs.fields import describe
from draftsmith.configs.help import default_of, spell
from draftsmith.configs.loading import plain
from draftsmith.configs.problems import show
from draftsmith.configs.support import SUPPORT, WHOLE, Behaviour

HEAD = """\
# Decoding configs

The settings of speculative decoding. Names, defaults and rules are those of TensorRT-LLM's classes
of the same names, so that a config written for one works in the other. `decoding_type` says which
class a mapping is read as; unknown keys are errors.

The last column says what the engine does with a field today. *Alive*: what it says. *Refused*: a
value other than the default is an error when an engine is built. *Informational*: nothing, for the
reason given.

This page is printed by `python -m draftsmith.configs.support`.
"""


def render_page() -> str:
    """The whole page, as Markdown."""
    sections = [HEAD]
    for kind, behaviours in SUPPORT.items():
        sections.append(f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n")
        if kind in WHOLE:
            sections.append(f"The engine refuses this config whole: {WHOLE[kind]}.\n")
        rows = {behaviour.field: behaviour for behaviour in behaviours}
        lines = [
            "| field | type | default | accepted | what the engine does |",
            "| --- | --- | --- | --- | --- |",
        ]
        for name, field in kind.model_fields.items():
            lines.append(describe_row(kind, name, field, rows[name]))
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def describe_row(
    kind: type[DecodingBaseConfig], name: str, field: FieldInfo, behaviour: Behaviour
) -> str:
    default = "required" if field.is_required() else spell(default_of(field))
    takes = ""
    if behaviour.takes is not None:
        words = ", ".join(show(plain(value)) for value in behaviour.takes)
        takes = f" except {words}" if behaviour.status == "refused" else f", only {words}"
    cells = (
        f"`{name}`",
        type_in_words(field.annotation),
        default,
        describe(field).replace(" | ", ", "),
        f"*{behaviour.status}*{takes}: {behaviour.what}",
    )
    return "| " + " | ".join(cells) + " |"


def type_in_words(annotation: Any) -> str:
    """A type as a reader of Python writes it, without the bar that would end a table's cell."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(type_in_words(argument) for argument in arguments)
    if origin is Literal:
        return "literal"
    if annotation is type(None):
        return "None"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(type_in_words(argument) for argument in arguments)}]"
    if issubclass(annotation, (BaseModel, Enum)):
        return f"enum {annotation.__name__}"
    return str(annotation.__name__)
