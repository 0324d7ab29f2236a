"""What decoding configs make of a target's depth and of a drafter's checkpoint."""

import json

import pytest
from decoding_samples import make

from draftsmith.configs import (
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    SaveHiddenStatesDecodingConfig,
)
from draftsmith.configs.base import ConfigError

Save, Eagle = SaveHiddenStatesDecodingConfig, EagleDecodingConfig
DFlash, DSpark = DFlashDecodingConfig, DSparkDecodingConfig


@pytest.mark.parametrize(
    ("layer_ids", "num_target_layers", "expected"),
    [
        (None, 1, (0,)),
        (None, 7, (1, 2, 3)),
        (None, 30, (1, 14, 26)),
        ({2, 0}, 4, (0, 2)),
        ({3, -1, 0}, 4, (0, 3, -1)),
        ({-1}, 4, ()),
    ],
)
def test_layers_to_save(layer_ids, num_target_layers, expected):
    config = make(Save, eagle3_layers_to_capture=layer_ids)
    assert config.resolve_layers(num_target_layers) == expected


@pytest.mark.parametrize("num_target_layers", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("kind", [Save, Eagle])
def test_the_default_layers_need_a_target_of_seven(kind, num_target_layers):
    with pytest.raises(ConfigError, match=f"eagle3_layers_to_capture.*has {num_target_layers};"):
        make(kind).resolve_layers(num_target_layers)


@pytest.mark.parametrize("layer_id", [4, -2])
@pytest.mark.parametrize("kind", [Save, Eagle])
def test_a_layer_the_target_does_not_have(kind, layer_id):
    with pytest.raises(ConfigError, match=rf"eagle3_layers_to_capture holds {layer_id},.*0 to 3"):
        make(kind, eagle3_layers_to_capture={0, layer_id}).resolve_layers(4)


def test_the_layers_an_eagle_drafter_reads():
    assert make(Eagle).resolve_layers(30) == (1, 14, 26)
    assert make(Eagle).resolve_layers(4, [2, 0, 2]) == (2, 0, 2)
    asked = make(Eagle, eagle3_layers_to_capture={0, 2, -1})
    assert asked.resolve_layers(4) == (0, 2, -1)
    assert asked.resolve_layers(4, [2, -1, 0, 2]) == (2, -1, 0, 2)
    with pytest.raises(ConfigError, match=r"eagle3_layers_to_capture=\[0, 2, -1\].*\[0, 2\]"):
        asked.resolve_layers(4, [0, 2])
    with pytest.raises(ConfigError, match="holds 9"):
        make(Eagle).resolve_layers(4, [9])


@pytest.mark.parametrize(
    ("draft_config", "expected"),
    [
        (
            {
                "mask_token_id": 4,
                "dspark_mask_token_id": 3,
                "dflash_config": {"mask_token_id": 2},
                "dspark_config": {"mask_token_id": 1},
            },
            1,
        ),
        (
            {
                "mask_token_id": 4,
                "dspark_mask_token_id": 3,
                "dflash_config": {"mask_token_id": 0},
                "dspark_config": {"mask_token_id": None},
            },
            0,
        ),
        ({"mask_token_id": 4, "dspark_mask_token_id": 3, "dflash_config": None}, 3),
        ({"mask_token_id": 4}, 4),
        ({}, None),
    ],
)
def test_where_a_drafters_config_holds_a_setting(draft_config, expected):
    assert make(DSpark).resolve(draft_config, "mask_token_id") == expected
    assert make(DFlash).resolve_mask_token_id(draft_config) == expected
    assert make(DFlash, mask_token_id=9).resolve_mask_token_id(draft_config) == 9


def test_the_layers_of_a_dflash_drafter():
    draft_config = {"dflash_config": {"target_layer_ids": [3, 1]}}
    assert make(DFlash).resolve_target_layer_ids(draft_config) == [3, 1]
    assert make(DFlash, target_layer_ids=[2]).resolve_target_layer_ids(draft_config) == [2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, None),
        ({"mask_token_id": 5, "target_layer_ids": [1, 3], "markov_rank": 8}, None),
        ({"markov_rank": 0}, None),
        ({"mask_token_id": 6}, "mask_token_id=6.*accepted: 5"),
        ({"target_layer_ids": [3, 1]}, r"target_layer_ids=\[3, 1\].*accepted: \[1, 3\]"),
        ({"max_draft_len": 5}, "block_size=5.*accepted: 4"),
        ({"markov_rank": 16}, "markov_rank=16.*accepted: 8"),
        ({"markov_head_type": "rnn"}, "markov_head_type=rnn.*accepted: gated"),
    ],
)
def test_a_dspark_config_must_agree_with_the_drafters(settings, words):
    draft_config = {
        "dspark_block_size": 4,
        "mask_token_id": 5,
        "target_layer_ids": [1, 3],
        "markov_rank": 8,
        "markov_head_type": "gated",
    }
    config = make(DSpark, **settings)
    if words is None:
        config.check_draft_config(draft_config)
        return
    with pytest.raises(ConfigError, match=words):
        config.check_draft_config(draft_config)


def write_header(folder, *names):
    header = json.dumps(
        {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names}
    ).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def test_a_draft_embedded_in_the_target(tmp_path):
    def embedded():
        config = make(DSpark, speculative_model=tmp_path)
        assert config.needs_separate_draft_weights is not config.draft_is_embedded_in_target
        return config.draft_is_embedded_in_target

    assert make(DSpark).draft_is_embedded_in_target is True
    assert make(DSpark).needs_separate_draft_weights is False
    assert make(DSpark, speculative_model="owner/name").draft_is_embedded_in_target is False
    assert embedded() is False
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v4"}')
    assert embedded() is True
    write_header(tmp_path, "layers.0.mlp.up_proj.weight")
    assert embedded() is False
    write_header(tmp_path, "layers.0.mlp.up_proj.weight", "mtp.0.norm.weight")
    assert embedded() is True
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"norm.weight": "a.safetensors"}}')
    assert embedded() is False
    index.write_text('{"weight_map": {"mtp.0.norm.weight": "a.safetensors"}}')
    assert embedded() is True


def test_the_draft_is_looked_for_once(tmp_path):
    config = make(DSpark, speculative_model=tmp_path)
    assert config.draft_is_embedded_in_target is False
    write_header(tmp_path, "mtp.0.norm.weight")
    assert config.draft_is_embedded_in_target is False
    assert config == make(DSpark, speculative_model=tmp_path)
    assert "draft_is_embedded_in_target" not in config.model_dump()
