"""The kinds of drafter a training config describes, and what each is fitted to."""

import pytest
from pydantic import ValidationError

from draftsmith.configs.base import ConfigError
from draftsmith.configs.fields import settings_by_key
from draftsmith.configs.loading import dump_config, load_config
from draftsmith.configs.support import TRAINED, refuse_untrained
from draftsmith.configs.train import (
    BudgetConfig,
    DFlashConfig,
    DFlashObjectiveConfig,
    DSparkConfig,
    DSparkObjectiveConfig,
    Eagle3Config,
    Eagle3ObjectiveConfig,
    TrainConfig,
)
from draftsmith.train.job import run

NEEDED = [("target.path", "t"), ("data", "d"), ("output", "o"), ("budget.max_steps", "1")]
DFLASH = [("drafter.type", "dflash"), ("drafter.layout", "shifted")]
DSPARK = [("drafter.type", "dspark")]


def load(*given):
    return load_config(TrainConfig, None, [*NEEDED, *given])


def failure(*given):
    with pytest.raises(ConfigError) as caught:
        load(*given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "drafter", "objective"),
    [
        ([], Eagle3Config(), Eagle3ObjectiveConfig()),
        (
            [("objective.num_steps", "3")],
            Eagle3Config(),
            Eagle3ObjectiveConfig(num_steps=3),
        ),
        (DFLASH, DFlashConfig(layout="shifted"), DFlashObjectiveConfig(decay_gamma=7)),
        (
            [*DFLASH, ("drafter.block_size", "7"), ("objective.num_anchors", "5")],
            DFlashConfig(layout="shifted", block_size=7),
            DFlashObjectiveConfig(decay_gamma=4, num_anchors=5),
        ),
        (
            [*DFLASH, ("drafter.block_size", "9"), ("objective.decay_gamma", "5")],
            DFlashConfig(layout="shifted", block_size=9),
            DFlashObjectiveConfig(decay_gamma=5),
        ),
        (
            [*DFLASH, ("objective.weights", "d-pace")],
            DFlashConfig(layout="shifted"),
            DFlashObjectiveConfig(weights="d-pace"),
        ),
        (DSPARK, DSparkConfig(), DSparkObjectiveConfig()),
        (
            [*DSPARK, ("objective.type", "dspark"), ("objective.ce_weight", "1")],
            DSparkConfig(),
            DSparkObjectiveConfig(ce_weight=1),
        ),
        (
            [*DSPARK, ("drafter.target_layer_ids", "9,1,-1")],
            DSparkConfig(target_layer_ids=[9, 1, -1]),
            DSparkObjectiveConfig(),
        ),
    ],
)
def test_the_objective_follows_the_drafter(given, drafter, objective):
    config = load(*given)
    assert (config.drafter, config.objective) == (drafter, objective)
    made = TrainConfig(
        target=config.target,
        data="d",
        output="o",
        drafter=drafter,
        objective=objective,
        budget=BudgetConfig(max_steps=1),
    )
    assert made == config


def test_the_published_settings_are_the_defaults():
    dspark, objective = DSparkConfig(), DSparkObjectiveConfig()
    assert (dspark.block_size, dspark.num_layers, dspark.markov_rank) == (7, 5, 256)
    assert (objective.ce_weight, objective.l1_weight, objective.confidence_weight) == (0.1, 0.9, 1)
    assert (objective.decay_gamma, objective.num_anchors) == (4, 512)
    dflash = DFlashConfig(layout="anchor_first")
    assert (dflash.block_size, dflash.num_layers) == (16, 5)
    assert Eagle3ObjectiveConfig().num_steps == 7


def test_a_made_config_takes_the_objective_of_its_drafter():
    shared = {"target": {"path": "t"}, "data": "d", "output": "o", "budget": {"max_steps": 1}}
    config = TrainConfig(**shared, drafter=DFlashConfig(layout="shifted", block_size=7))
    assert config.objective == DFlashObjectiveConfig(decay_gamma=4)
    with pytest.raises(ValidationError, match=r"does not go with drafter\.type=dspark"):
        TrainConfig(**shared, drafter=DSparkConfig(), objective=Eagle3ObjectiveConfig())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [*DSPARK, ("objective.type", "eagle3")],
            "objective.type=eagle3: does not go with drafter.type=dspark; accepted: dspark, or "
            "leave it out",
        ),
        (
            [*DSPARK, ("objective.num_steps", "3")],
            "objective.num_steps=3: does not go with objective.type=dspark",
        ),
        (
            [("drafter.markov_rank", "3")],
            "drafter.markov_rank=3: does not go with drafter.type=eagle3",
        ),
        (
            [*DSPARK, ("drafter.layout", "shifted")],
            "drafter.layout=shifted: does not go with drafter.type=dspark",
        ),
        (
            [("drafter.type", "dflahs"), ("objective.num_anchors", "3")],
            "drafter.type=dflahs: accepted: eagle3 | dflash | dspark",
        ),
        (
            [*DSPARK, ("objective.type", "dsprak")],
            "objective.type=dsprak: accepted: eagle3 | dflash | dspark",
        ),
        (
            [("drafter.type", "dflash")],
            "drafter.layout: required; give --drafter.layout, or drafter.layout in the config file",
        ),
        (
            [*DFLASH, ("drafter.layout", "anchor_last")],
            "drafter.layout=anchor_last: accepted: shifted | anchor_first",
        ),
        (
            [*DFLASH, ("drafter.layout", "anchor_first"), ("drafter.block_size", "1")],
            "drafter.block_size=1: drafts nothing with layout=anchor_first; accepted: integer >= 2",
        ),
        (
            [*DFLASH, ("drafter.block_size", "12")],
            "objective.decay_gamma=none: there is no published value for drafter.block_size=12; "
            "accepted: number > 0",
        ),
        (
            [*DFLASH, ("objective.weights", "d-pace"), ("objective.decay_gamma", "4")],
            "objective.decay_gamma=4: unused with weights=d-pace; accepted: none",
        ),
        (
            [*DFLASH, ("drafter.target_layer_ids", "[]")],
            "drafter.target_layer_ids=[]: accepted: one or more ids of decoder blocks from 0, or "
            "-1 for the state after the final norm; or none",
        ),
        ([*DSPARK, ("drafter.target_layer_ids", "1,-2")], "drafter.target_layer_ids=[1, -2]: acc"),
        ([*DSPARK, ("drafter.mask_token_id", "-1")], "drafter.mask_token_id=-1: accepted: integ"),
        (
            [
                *DSPARK,
                ("drafter.markov_rank", "0"),
                ("drafter.confidence_head_with_markov", "true"),
            ],
            "drafter.confidence_head_with_markov=true: there is none with markov_rank=0; "
            "accepted: false",
        ),
        (
            [
                *DSPARK,
                ("drafter.confidence_head", "false"),
                ("drafter.confidence_head_with_markov", "true"),
            ],
            "drafter.confidence_head_with_markov=true: there is none with confidence_head=false",
        ),
        (
            [*DSPARK, ("objective.ce_weight", "0"), ("objective.l1_weight", "0")],
            "objective.ce_weight=0: nothing to fit with l1_weight=0; accepted: one above 0",
        ),
        (
            [*DSPARK, ("drafter.markov_rnak", "3")],
            "drafter.markov_rnak=3: unknown setting; did you mean drafter.markov_rank?",
        ),
        (
            [*DSPARK, ("objective.num_anchor", "3")],
            "objective.num_anchor=3: unknown setting; did you mean objective.num_anchors?",
        ),
        ([("drafter.lr", "3")], "drafter.lr=3: unknown setting; did you mean optimizer.lr?"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given, message):
    assert failure(*given).startswith(message)


def test_the_confidence_head_reads_the_markov_embedding_where_there_is_one():
    assert DSparkConfig().confidence_head_with_markov
    assert not DSparkConfig(markov_rank=0).confidence_head_with_markov
    assert not DSparkConfig(confidence_head=False).confidence_head_with_markov
    assert not DSparkConfig(confidence_head_with_markov=False).confidence_head_with_markov


def test_a_section_without_a_type_in_a_file_follows_the_drafter(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text("drafter: {type: dspark}\nobjective: {num_anchors: 9}\n")
    config = load_config(TrainConfig, file, NEEDED)
    assert config.objective == DSparkObjectiveConfig(num_anchors=9)
    file.write_text(dump_config(config))
    assert load_config(TrainConfig, file) == config


def test_the_trainer_refuses_what_it_does_not_fit_before_any_work(tmp_path):
    kinds = settings_by_key(TrainConfig)["drafter"][0].tags
    assert set(TRAINED) < set(kinds)
    refuse_untrained(load())
    for kind, given in (("dflash", DFLASH), ("dspark", DSPARK)):
        output = tmp_path / kind
        config = load(*given, ("output", str(output)))
        with pytest.raises(ConfigError) as caught:
            run(config)
        assert str(caught.value) == (
            f"drafter.type={kind}: the trainer fits eagle3 drafters; accepted: eagle3"
        )
        assert not output.exists()
