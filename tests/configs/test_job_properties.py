"""Any accepted job config survives being written and read."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftsmith.configs import MoeBackend, SaveHiddenStatesDecodingConfig
from draftsmith.configs.capture import CaptureConfig, CaptureVerifyConfig, DatasetConfig
from draftsmith.configs.cli import COMMANDS, load
from draftsmith.configs.drafter import DFlashConfig, DSparkConfig
from draftsmith.configs.fields import bounds, get_args, get_origin, is_model, members
from draftsmith.configs.infer import EvalConfig, GenerateConfig
from draftsmith.configs.loading import dump_config, load_config, write_config
from draftsmith.configs.objective import DFlashObjectiveConfig, DSparkObjectiveConfig
from draftsmith.configs.train import BudgetConfig, OptimizerConfig, TrainConfig

JOBS = [CaptureConfig, CaptureVerifyConfig, TrainConfig, GenerateConfig, EvalConfig]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNTS = st.integers(1, 1 << 40)
LAYERS = st.none() | st.lists(st.integers(-1, 90), min_size=1, max_size=5)


def configs(model):
    """Configs of a model: any value for every field, within what its class checks by itself."""
    own = CHECKED.get(model, {})
    fields = {
        name: own[name] if name in own else values(field)
        for name, field in model.model_fields.items()
    }
    made = st.fixed_dictionaries(fields).map(REPAIRED.get(model, lambda given: given))
    return made.map(lambda given: model(**given))


def values(field):
    limits = bounds(field)
    return st.one_of([values_of(kind, limits) for kind in members(field.annotation)])


def values_of(kind, limits):
    if kind is type(None):
        return st.none()
    if is_model(kind):
        return configs(kind)
    if get_origin(kind) is not None:
        return st.sampled_from(get_args(kind))  # words
    if kind is bool:
        return st.booleans()
    low = next((getattr(x, n) for x in limits for n in ("gt", "ge") if hasattr(x, n)), 0)
    high = next((getattr(x, n) for x in limits for n in ("lt", "le") if hasattr(x, n)), None)
    outside = {
        "exclude_min": any(hasattr(x, "gt") for x in limits),
        "exclude_max": any(hasattr(x, "lt") for x in limits),
    }
    if kind is int:
        return st.integers(low + outside["exclude_min"], 1 << 40)
    if kind is float:
        # Without a bound above, all but infinity, which YAML's numbers here do not have.
        return st.floats(low, high, allow_nan=False, allow_infinity=False, **outside)
    assert kind is str, kind
    return TEXTS


CHECKED = {
    DatasetConfig: {"quota": st.sampled_from([None, "20GB", "1.5 tib", "7B"])},
    OptimizerConfig: {"betas": st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2)},
    DFlashConfig: {"target_layer_ids": LAYERS, "block_size": st.integers(2, 64)},
    DSparkConfig: {"target_layer_ids": LAYERS},
    DSparkObjectiveConfig: {"ce_weight": st.floats(0, 9, exclude_min=True)},
    SaveHiddenStatesDecodingConfig: {
        **{name: st.just(None) for name in ("max_concurrency", "draft_len_schedule")},
        "eagle3_layers_to_capture": LAYERS.map(lambda ids: None if ids is None else set(ids)),
        "file_prefix": st.sampled_from(["data", "ω 1", "no"]),
        "moe_backend": st.none() | st.sampled_from(MoeBackend),
        "allow_advanced_sampling": st.just(False),
        "advanced_sampling_mode": st.just("full"),
        "max_total_draft_tokens": st.just(1),
        "speculative_model": st.none() | TEXTS,
        "load_format": st.sampled_from([None, "auto", "dummy"]),
    },
}


def some_budget(given):
    return given if any(given.values()) else {**given, "max_steps": 1}


def drafter_for_drafts(given):
    return {**given, "max_draft_len": 0} if given["drafter"] is None else given


def a_gamma_for_decay(given):
    gamma = None if given["weights"] == "d-pace" else given["decay_gamma"] or 5.0
    return {**given, "decay_gamma": gamma}


def heads_that_exist(given):
    both = given["confidence_head"] and given["markov_rank"] > 0
    return {**given, "confidence_head_with_markov": both and given["confidence_head_with_markov"]}


def objective_of_drafter(given):
    same = given["objective"].type == given["drafter"].type
    if same:
        return given
    objective = {"type": given["drafter"].type}
    if objective["type"] == "dflash":
        objective["decay_gamma"] = 2.5
    return {**given, "objective": objective}


REPAIRED = {
    BudgetConfig: some_budget,
    GenerateConfig: drafter_for_drafts,
    DFlashObjectiveConfig: a_gamma_for_decay,
    DSparkConfig: heads_that_exist,
    TrainConfig: objective_of_drafter,
}


def test_every_command_takes_one_of_these():
    assert {load(c.config) for room in COMMANDS.values() for c in room.values()} == set(JOBS)


@pytest.mark.parametrize("model", JOBS)
def test_a_written_config_is_read_back(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("job") / "job.yaml"

    @settings(deadline=None, max_examples=40)
    @given(configs(model))
    def check(config):
        with warnings.catch_warnings():
            # What was ignored with a warning is not written.
            warnings.simplefilter("error")
            write_config(config, file)
            found = load_config(model, file)
        assert found == config
        assert dump_config(found) == file.read_text(encoding="utf-8")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()
