"""The job models: shipped presets load, aliases lead somewhere, bad combinations are refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

import draftsmith.configs.presets
from draftsmith.configs.base import Config, ConfigError
from draftsmith.configs.capture import (
    RUN_ALIASES,
    CaptureConfig,
    CaptureVerifyConfig,
    DatasetConfig,
)
from draftsmith.configs.fields import settings_by_key
from draftsmith.configs.infer import EvalConfig, GenerateConfig
from draftsmith.configs.loading import dump_config, load_config
from draftsmith.configs.train import TrainConfig
from draftsmith.configs.yaml_text import read_yaml

DEMO = Path(next(iter(draftsmith.configs.presets.__path__))) / "demo"
PRESETS = {"capture": CaptureConfig, "train": TrainConfig, "eval": EvalConfig}
TRAIN = [("target.path", "t"), ("data", "d"), ("output", "o")]
GENERATE = [("target.path", "t"), ("input", "i"), ("output", "o")]
CAPTURE = [
    ("target.path", "t"),
    ("input.path", "i"),
    ("speculative_config.output_directory", "o"),
]


def test_every_shipped_preset_is_known():
    assert {path.stem for path in DEMO.glob("*.yaml")} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_says_what_its_file_says_and_survives_a_round_trip(name, tmp_path):
    config = load_config(PRESETS[name], DEMO / f"{name}.yaml")
    resolved = read_yaml(dump_config(config))
    for key, value in leaves(read_yaml((DEMO / f"{name}.yaml").read_text())):
        assert look_up(resolved, key) == value, key
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_config(config))
    assert load_config(PRESETS[name], copy) == config


def test_the_presets_fit_together():
    capture = load_config(CaptureConfig, DEMO / "capture.yaml")
    train = load_config(TrainConfig, DEMO / "train.yaml")
    evaluate = load_config(EvalConfig, DEMO / "eval.yaml")
    assert train.data == capture.speculative_config.output_directory
    assert evaluate.drafter == train.output
    assert evaluate.prompts.path == capture.input.path
    assert (capture.input.split, evaluate.prompts.split) == ("train", "heldout")
    assert capture.input.heldout_fraction == evaluate.prompts.heldout_fraction
    assert capture.target.path == train.target.path == evaluate.target.path


def leaves(mapping, prefix=()):
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def look_up(mapping, key):
    for part in key:
        mapping = mapping[part]
    return mapping


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (TrainConfig, TRAIN, "budget: give at least one of"),
        (
            TrainConfig,
            [*TRAIN, ("budget.max_steps", "0")],
            "budget.max_steps=0: accepted: integer > 0",
        ),
        (
            TrainConfig,
            [*TRAIN, ("budget.max_minutes", "0")],
            "budget.max_minutes=0: accepted: number > 0",
        ),
        (
            TrainConfig,
            [*TRAIN, ("optimizer.betas", "0.9,1")],
            "optimizer.betas=[0.9, 1]: accepted: 2",
        ),
        (
            TrainConfig,
            [*TRAIN, ("objective.num_steps", "0")],
            "objective.num_steps=0: accepted: integer >= 1",
        ),
        (TrainConfig, [*TRAIN, ("optimizer.warmup_ratio", "1")], "accepted: number >= 0 and < 1"),
        (TrainConfig, [*TRAIN, ("mixed_precision", "fp16")], "accepted: no | bf16 | auto"),
        (GenerateConfig, [*GENERATE, ("max_draft_len", "4")], "max_draft_len=4 needs a drafter"),
        (GenerateConfig, [*GENERATE, ("sampling.temperature", "-1")], "accepted: number >= 0"),
        (
            CaptureConfig,
            CAPTURE[:2],
            "speculative_config.output_directory: required; give --output",
        ),
        (
            CaptureConfig,
            [*CAPTURE, ("dataset.quota", "20 parsecs")],
            "dataset.quota=20 parsecs: accepted: a number and a unit",
        ),
        (
            CaptureConfig,
            [*CAPTURE, ("dataset.quota", "0GB")],
            "dataset.quota=0GB: accepted: a size above zero",
        ),
        (
            CaptureConfig,
            [*CAPTURE, ("dataset.overwrite", "true")],
            "dataset.overwrite=true: unknown setting",
        ),
        (
            CaptureConfig,
            [*CAPTURE, ("input.heldout_fraction", "1")],
            "accepted: number > 0 and < 1",
        ),
        (CaptureConfig, [*CAPTURE, ("input.min_supervised_tokens", "0")], "accepted: integer >= 1"),
        (CaptureVerifyConfig, [], "dataset: required"),
    ],
)
def test_bad_settings_are_refused(model, given, message):
    with pytest.raises(ConfigError) as caught:
        load_config(model, None, given, RUN_ALIASES if model is CaptureConfig else None)
    assert message in str(caught.value)


def test_one_limit_is_a_budget():
    for key in ("num_epochs", "max_steps", "max_minutes"):
        config = load_config(TrainConfig, None, [*TRAIN, (f"budget.{key}", "2")])
        assert getattr(config.budget, key) == 2


def test_the_draft_length_follows_the_drafter():
    assert load_config(GenerateConfig, None, GENERATE).max_draft_len == 0
    assert load_config(GenerateConfig, None, [*GENERATE, ("drafter", "d")]).max_draft_len == 4
    given = [*GENERATE, ("drafter", "d"), ("max_draft_len", "0")]
    assert load_config(GenerateConfig, None, given).max_draft_len == 0


def test_regeneration_is_off_until_one_of_its_settings_is_named():
    assert load_config(CaptureConfig, None, CAPTURE).regenerate is None
    given = [*CAPTURE, (RUN_ALIASES["max-new-tokens"], "9")]
    assert load_config(CaptureConfig, None, given).regenerate.max_new_tokens == 9


def test_layers_are_given_as_a_list():
    given = [*CAPTURE, (RUN_ALIASES["layers"], "26,1,14")]
    config = load_config(CaptureConfig, None, given)
    assert config.speculative_config.eagle3_layers_to_capture == {1, 14, 26}


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("20GB", 20 * 10**9),
        ("1.5 tb", 1_500 * 10**9),
        ("512MiB", 512 * 2**20),
        ("7B", 7),
        (None, None),
    ],
)
def test_a_quota_is_a_number_of_bytes(text, num_bytes):
    assert DatasetConfig(quota=text).quota_bytes == num_bytes


@pytest.mark.parametrize("text", ["", "20", "GB", "-1GB", "1e3GB", "20GBs"])
def test_what_is_not_a_size_is_no_quota(text):
    with pytest.raises(ValidationError, match="a number and a unit"):
        DatasetConfig(quota=text)


@pytest.mark.parametrize(
    "model", [CaptureConfig, CaptureVerifyConfig, TrainConfig, GenerateConfig, EvalConfig]
)
def test_every_section_is_frozen_and_refuses_unknown_keys(model):
    sections = [nested for found in settings_by_key(model).values() for nested in found[0].models]
    for section in (model, *sections):
        assert issubclass(section, Config)
        assert section.model_config["frozen"] and section.model_config["extra"] == "forbid"
