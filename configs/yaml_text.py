"""YAML as configs read and write it: version 1.2 scalars, no key given twice.

PyYAML follows version 1.1, where `no` and `on` are booleans and `1e-4` is text: a config that says
`mixed_precision: no` or `lr: 1e-4` would be read as something else.
"""

import re
from typing import Any

import yaml

NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
SCALARS = {
    "bool": (re.compile("true|True|TRUE|false|False|FALSE"), "tTfF"),
    "int": (re.compile(r"[-+]?(0|[1-9][0-9]*)"), "-+0123456789"),
    "float": (NUMBER, "-+.0123456789"),
    "null": (re.compile("~|null|Null|NULL|"), ["~", "n", "N", ""]),
}


class Loader(yaml.SafeLoader):
    """Safe loading with the scalars above; a repeated key is an error at its line."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own attribute)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return mapping


class Dumper(yaml.SafeDumper):
    """Quotes every text that either version of YAML would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Written plain, U+0085 is a line break to PyYAML's reader; quoted, it is an escape.
        style = '"' if "\x85" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


for name, (pattern, first) in SCALARS.items():
    full = re.compile(f"(?:{pattern.pattern})$")
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", full, list(first))
Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{NUMBER.pattern})$"), list("-+.0123456789")
)


Dumper.add_representer(str, Dumper.represent_str)
Dumper.add_representer(list, Dumper.represent_list)


def read_yaml(text: str) -> Any:
    """The value a YAML text holds; raises yaml.YAMLError."""
    # A safe loader builds plain values only.
    return yaml.load(text, Loader=Loader)


def write_yaml(value: Any) -> str:
    """Plain values as YAML, keys in their own order."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def explain(error: yaml.YAMLError) -> str:
    """A parser's complaint in one line, with the line it is about."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else problem
