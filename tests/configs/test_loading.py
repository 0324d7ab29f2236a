"""YAML and overrides become a config, or a message that says what to change."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from draftsmith.configs.base import Config, ConfigError
from draftsmith.configs.loading import dump_config, load_config, write_config
from draftsmith.configs.yaml_text import read_yaml, write_yaml


class Mode(Enum):
    FULL = "full"
    NO_TOPK = "no_topk"


class Small(Config):
    type: Literal["small"] = "small"
    width: int = 1


class Large(Config):
    type: Literal["large", "huge"] = "large"
    depth: int = Field(default=2, gt=0, le=8)


class Optimizer(Config):
    lr: float = Field(default=0.1, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    layers: set[int] | None = None


class Answer(Config):
    seed: int = 0
    path: str = "answers"

    @model_validator(mode="after")
    def check_seed(self) -> "Answer":
        if self.seed == 13:
            raise ValueError("seed=13: accepted: any other")
        if self.seed == 14:
            raise ValueError("two settings disagree")
        return self


class Job(Config):
    path: str
    optimizer: Optimizer = Optimizer()
    answer: Answer | None = None
    model: Annotated[Small | Large, Field(discriminator="type")] = Small()
    mode: Mode = Mode.FULL
    tracker: Literal["none", "wandb"] | None = "none"
    file: Path | None = None
    label: str | None = None
    flag: bool = False
    steps: dict[int, int] | None = None
    choices: list[list[int]] | None = None

    @model_validator(mode="after")
    def check_label(self) -> "Job":
        if self.label == "bad":
            raise ValueError("label and path do not go together")
        return self


class Outer(Config):
    job: Job
    answer: Answer


PATH = ("path", "p")


def load(*overrides, model=Job, file=None, aliases=None):
    return load_config(model, file, [PATH, *overrides] if model is Job else overrides, aliases)


def failure(*overrides, **kwargs):
    with pytest.raises(ConfigError) as caught:
        load(*overrides, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("path", "1e5", "1e5"),
        ("path", "on", "on"),
        ("path", "null", "null"),
        ("path", "{a: 1}", "{a: 1}"),
        ("path", "", ""),
        ("label", "none", None),
        ("label", "null", None),
        ("label", "007", "007"),
        ("file", "1.5", Path("1.5")),
        ("file", "none", None),
        ("optimizer.lr", "1e-4", 1e-4),
        ("optimizer.lr", "3", 3.0),
        ("optimizer.betas", "0.8,0.9", (0.8, 0.9)),
        ("optimizer.betas", "[0.8, 0.9]", (0.8, 0.9)),
        ("optimizer.layers", "1,14,26", {1, 14, 26}),
        ("optimizer.layers", "-1", {-1}),
        ("optimizer.layers", "-1,5", {-1, 5}),
        ("optimizer.layers", "none", None),
        ("answer.seed", "3", 3),
        ("answer.path", "12", "12"),
        ("answer", "none", None),
        ("model.width", "4", 4),
        ("mode", "no_topk", Mode.NO_TOPK),
        ("tracker", "none", "none"),
        ("tracker", "wandb", "wandb"),
        ("tracker", "null", None),
        ("flag", "true", True),
        ("flag", "false", False),
        ("steps", "{1: 4, 8: 2}", {1: 4, 8: 2}),
        ("choices", "[[0], [0, 1]]", [[0], [0, 1]]),
    ],
)
def test_an_override_becomes_the_value_its_field_wants(key, text, value):
    found = load((key, text))
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("optimizer.lr", "abc", "optimizer.lr=abc: accepted: number > 0"),
        ("optimizer.lr", "-1", "optimizer.lr=-1: accepted: number > 0"),
        ("optimizer.lr", "true", "optimizer.lr=true: accepted: number > 0"),
        ("optimizer.lr", "[1", "optimizer.lr=[1: accepted: number > 0"),
        ("optimizer.lr", "none", "optimizer.lr=none: accepted: number > 0"),
        ("answer.seed", "1.5", "answer.seed=1.5: accepted: integer"),
        ("answer", "yes", "answer=yes: accepted: mapping of settings, or none"),
        (
            "optimizer.betas",
            "0.9",
            "optimizer.betas=[0.9]: accepted: 2 comma-separated numbers",
        ),
        (
            "optimizer.layers",
            "1,x",
            'optimizer.layers=[1, "x"]: accepted: comma-separated integers, or none',
        ),
        ("mode", "half", "mode=half: accepted: full | no_topk"),
        ("tracker", "mlflow", "tracker=mlflow: accepted: none | wandb, or none"),
        ("flag", "maybe", "flag=maybe: accepted: true | false"),
        ("model.type", "medium", "model.type=medium: accepted: small | large | huge"),
        ("model", "small", "model=small: accepted: settings with type: small | large | huge"),
        ("answer.seed", "13", "answer.seed=13: accepted: any other"),
        ("answer.seed", "14", "answer: two settings disagree"),
        ("label", "bad", "label and path do not go together"),
        ("optimzer.lr", "1", "optimzer.lr=1: unknown setting; did you mean optimizer.lr?"),
        ("lr", "1", "lr=1: unknown setting; did you mean optimizer.lr?"),
        (
            "optimizer.layer",
            "1",
            "optimizer.layer=1: unknown setting; did you mean optimizer.layers?",
        ),
        ("Optimizer.LR", "1", "Optimizer.LR=1: unknown setting; did you mean optimizer.lr?"),
        ("answer.zzz", "1", "answer.zzz=1: unknown setting; answer takes seed, path"),
    ],
)
def test_a_bad_override_is_named_shown_and_told_what_fits(key, text, message):
    assert failure((key, text)) == message


def test_later_overrides_win_over_earlier_ones_and_over_the_file(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("path: a\noptimizer: {lr: 1e-3, betas: [0.5, 0.6]}\n")
    config = load_config(Job, file, [("optimizer.lr", "2e-3"), ("optimizer.lr", "3e-3")])
    assert config.path == "a"
    assert config.optimizer == Optimizer(lr=3e-3, betas=(0.5, 0.6))


def test_naming_a_setting_of_an_absent_section_creates_the_section(tmp_path):
    assert load().answer is None
    assert load(("answer.seed", "1")).answer == Answer(seed=1)
    file = tmp_path / "job.yaml"
    file.write_text("answer: null\n")
    assert load(("answer.seed", "1"), file=file).answer == Answer(seed=1)
    assert load(("answer.seed", "1"), ("answer", "null"), file=file).answer is None


def test_the_tag_of_a_union_chooses_the_model():
    assert load(("model.type", "large"), ("model.depth", "3")).model == Large(depth=3)
    assert load(("model.depth", "3"), ("model.type", "huge")).model == Large(type="huge", depth=3)
    assert load(("model.width", "3")).model == Small(width=3)


def test_a_setting_of_another_variant_is_refused():
    assert failure(("model.depth", "3")) == "model.depth=3: does not go with model.type=small"
    message = failure(("model.type", "large"), ("model.depth", "9"))
    assert message == "model.depth=9: accepted: integer > 0 and <= 8"


def test_missing_settings_are_named_with_their_flag_and_all_at_once():
    message = failure(model=Outer, aliases={"where": "job.path"})
    assert message == "job.path: required; give --where, or job.path in the config file"
    message = failure(("answer.seed", "x"), model=Outer)
    assert message.splitlines() == [
        "job.path: required; give --job.path, or job.path in the config file",
        "answer.seed=x: accepted: integer",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path: a\nflag: [1\n", "line 3"),
        ("path: a\npath: b\n", "line 2: path is given twice"),
        ("path: a\noptimizer:\n  lr: 1\n  lr: 2\n", "line 4: lr is given twice"),
        ("- a\n- b\n", 'holds list ["a", "b"]; accepted: a mapping of settings'),
        ("path: !!python/name:os.system\n", "line 1: could not determine a constructor"),
        ("path: 1e5\n", "path=100000.0: accepted: text (put quotes around it)"),
        ("path: a\noptimizer: {lrr: 1}\n", "optimizer.lrr=1: unknown setting; did you mean"),
        ("path: a\n1: 2\n", "1=2: unknown setting; accepted: path, optimizer"),
        ("path: a\nanswer: {seed: true}\n", "answer.seed=true: accepted: integer"),
        ("path: a\noptimizer: 3\n", "optimizer=3: accepted: mapping of settings"),
    ],
)
def test_a_bad_file_is_refused_with_line_or_key(tmp_path, text, message):
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(Job, file)
    assert message in str(caught.value)
    if "line" in message or "holds" in message:
        assert str(file) in str(caught.value)


def test_an_override_below_a_plain_value_of_the_file_is_refused(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("optimizer: fast\n")
    message = failure(("optimizer.lr", "1"), file=file)
    assert message == "optimizer=fast: accepted: a mapping of settings"


def test_unreadable_files_are_refused(tmp_path):
    assert "absent.yaml: no such file" in failure(file=tmp_path / "absent.yaml")
    assert "cannot be read" in failure(file=tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"path: \xff\xfe")
    assert "not UTF-8 text" in failure(file=binary)


def test_an_empty_file_holds_no_settings(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("# nothing yet\n")
    assert load(file=file) == Job(path="p")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("012", "012"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("~", None),
        ("", None),
    ],
)
def test_yaml_scalars_follow_version_1_2(text, value):
    assert read_yaml(text) == value
    assert type(read_yaml(text)) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        "1e5",
        "on",
        "no",
        "null",
        "",
        "1",
        "true",
        "a: b",
        "é",
        1e-9,
        "a\x85b",
        "\x85",
        "\u2028\n\x85 ",
    ],
)
def test_what_is_written_is_read_back(value):
    assert read_yaml(write_yaml({"key": value})) == {"key": value}
    assert read_yaml(write_yaml({value: [value]})) == {value: [value]}


def test_a_dumped_config_loads_to_the_same_config_and_the_same_text(tmp_path):
    config = load(
        ("path", "1e5"),
        ("optimizer.lr", "1e-5"),
        ("optimizer.layers", "26,-1,14"),
        ("model.type", "huge"),
        ("mode", "no_topk"),
        ("file", "x/y"),
        ("answer.seed", "3"),
        ("steps", "{8: 2, 1: 4}"),
    )
    text = dump_config(config)
    assert "layers: [-1, 14, 26]" in text
    file = tmp_path / "deep" / "job.yaml"
    write_config(config, file)
    assert file.read_text() == text
    assert load_config(Job, file) == config
    assert dump_config(load_config(Job, file)) == text
    assert os.listdir(file.parent) == ["job.yaml"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "job.yaml"
    write_config(Job(path="old"), file)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_config(Job(path="new"), file)
    assert load_config(Job, file).path == "old"


def test_long_values_are_cut_in_messages():
    message = failure(("optimizer.lr", "x" * 500))
    assert message.startswith("optimizer.lr=xxx") and "..." in message
    assert len(message) < 140
