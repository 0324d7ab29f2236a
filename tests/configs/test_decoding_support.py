"""The table of what the engine does with each field is complete, and it is what happens."""

from pathlib import Path

import pytest
from decoding_samples import NEEDED, make

from draftsmith.configs import (
    EagleDecodingConfig,
    SaveHiddenStatesDecodingConfig,
)
from draftsmith.configs.base import ConfigError
from draftsmith.configs.support import SUPPORT, WHOLE, refuse_unsupported
from draftsmith.configs.support_page import render_page

PAGE = Path(__file__).parents[2] / "docs" / "decoding-configs.md"

# For every field that may be refused: settings that take it away from its default.
AWAY = {
    "max_draft_len": {"max_draft_len": 2},
    "speculative_model": {"speculative_model": "other"},
    "max_concurrency": {"max_concurrency": 2},
    "draft_len_schedule": {"draft_len_schedule": {1: 2}},
    "load_format": {"load_format": "dummy"},
    "acceptance_rate_window_size": {"acceptance_rate_window_size": 3},
    "acceptance_rate_threshold": {"acceptance_rate_threshold": 0.5},
    "use_rejection_sampling": {"use_rejection_sampling": True},
    "advanced_sampling_mode": {"advanced_sampling_mode": "no_topk"},
    "enable_penalty": {"enable_penalty": True},
    "eagle_choices": {"eagle_choices": [[0]], "max_draft_len": 1},
    "greedy_sampling": {"greedy_sampling": False},
    "posterior_threshold": {"posterior_threshold": 0.1},
    "use_dynamic_tree": {"use_dynamic_tree": True, "dynamic_tree_max_topK": 2},
    "dynamic_tree_max_topK": {"use_dynamic_tree": True, "dynamic_tree_max_topK": 2},
    "max_non_leaves_per_layer": {"max_non_leaves_per_layer": 1},
    "eagle3_model_arch": {"eagle3_model_arch": "mistral_large3"},
}
RESTRICTED = [
    (kind, row)
    for kind, rows in SUPPORT.items()
    if kind not in WHOLE
    for row in rows
    if row.status == "refused" or row.takes is not None
]


@pytest.mark.parametrize("kind", NEEDED)
def test_every_field_has_one_row_and_every_row_a_field(kind):
    rows = [row.field for row in SUPPORT[kind]]
    assert sorted(rows) == sorted(kind.model_fields)
    assert all(row.what for row in SUPPORT[kind])


def test_the_table_holds_every_class():
    assert set(SUPPORT) == set(NEEDED)
    assert set(WHOLE) <= set(SUPPORT)


@pytest.mark.parametrize(("kind", "row"), RESTRICTED)
def test_what_the_engine_cannot_do_is_refused(kind, row):
    config = make(kind, **AWAY[row.field])
    with pytest.raises(ConfigError) as caught:
        refuse_unsupported(config)
    value = AWAY[row.field][row.field]
    shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
    lines = [line for line in str(caught.value).splitlines() if f".{row.field}=" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"{kind.__name__}.{row.field}=")
    assert str(shown).replace(" ", "") in lines[0].replace('"', "").replace(" ", "")
    assert row.what in lines[0]
    assert "accepted: " in lines[0]


@pytest.mark.parametrize("kind", WHOLE)
def test_some_configs_are_refused_whole(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__}: {WHOLE[kind]}; accepted: Save"):
        refuse_unsupported(make(kind))
    # There every field counts as refused, except those that never do anything.
    assert {row.status for row in SUPPORT[kind]} == {"refused", "informational"}


def test_a_class_of_ones_own_is_refused():
    class Mine(EagleDecodingConfig):
        pass

    with pytest.raises(ConfigError, match=r"Mine: unknown.*EagleDecodingConfig"):
        refuse_unsupported(Mine(max_draft_len=1, speculative_model="x"))


@pytest.mark.parametrize("kind", [SaveHiddenStatesDecodingConfig, EagleDecodingConfig])
def test_a_plain_config_is_taken(kind):
    refuse_unsupported(make(kind))


@pytest.mark.parametrize(
    "settings",
    [
        {"load_format": "auto"},
        {"load_format": "safetensors"},
        {"greedy_sampling": None},
        {"acceptance_rate_window_size": 0},
        {"max_concurrency": 4},
        {"draft_len_schedule": {1: 4, 8: 2}},
        {"eagle3_layers_to_capture": {1, 2, 3}},
        {"max_total_draft_tokens": 4},
    ],
)
def test_what_the_engine_takes(settings):
    refuse_unsupported(EagleDecodingConfig(max_draft_len=4, speculative_model="x", **settings))


@pytest.mark.parametrize("kind", NEEDED)
def test_informational_fields_do_nothing(kind):
    values = {"allow_advanced_sampling": True, "moe_backend": "VANILLA", "num_eagle_layers": 2}
    for row in SUPPORT[kind]:
        if row.status != "informational" or row.field not in values:
            continue
        with pytest.warns(Warning, match=row.field):
            config = make(kind, **{row.field: values[row.field]})
        assert config == make(kind)


def test_several_refusals_come_together():
    config = EagleDecodingConfig(
        max_draft_len=4, speculative_model="x", enable_penalty=True, load_format="dummy"
    )
    with pytest.raises(ConfigError) as caught:
        refuse_unsupported(config)
    assert str(caught.value).splitlines() == [
        "EagleDecodingConfig.load_format=dummy: weights are read from safetensors files; "
        "accepted: null | auto | safetensors",
        "EagleDecodingConfig.enable_penalty=true: penalties are not applied yet; accepted: false",
    ]


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render_page(), (
        "python -m draftsmith.configs.support > docs/decoding-configs.md"
    )
