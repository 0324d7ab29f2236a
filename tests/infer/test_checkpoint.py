"""Drafters on disk: they come back bit for bit, or are refused by name."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_target
from toy_drafter import toy_drafter

from draftsmith.configs.base import ConfigError
from draftsmith.infer.drafters.checkpoint import load_drafter, save_drafter

VOCABULARY = [3, 5, 8, 13, 21, 34, 55, 89, 90, 91, 92, 93, 94, 95, 96, 2]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tiny_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def folder(target, tmp_path):
    """A saved drafter over 16 of 97 tokens, not in order."""
    save_drafter(toy_drafter(target, VOCABULARY), tmp_path / "d", target=target, training={"n": 1})
    return tmp_path / "d"


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("vocabulary", [VOCABULARY, None])
@pytest.mark.parametrize("norm_before_residual", [True, False])
def test_a_drafter_comes_back_bit_for_bit(target, tmp_path, vocabulary, norm_before_residual):
    drafter = toy_drafter(
        target, vocabulary, norm_before_residual=norm_before_residual, target_layer_ids=(6, 0, 6)
    )
    save_drafter(drafter, tmp_path, target=target, training={})
    back = load_drafter(tmp_path, target)
    assert back.settings == drafter.settings
    ours, theirs = drafter.state_dict(), back.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name])
        assert ours[name].dtype == theirs[name].dtype
    assert back.draft_to_target.tolist() == (vocabulary or list(range(97)))
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(1, 6, 96, generator=generator)
    embeds = torch.randn(1, 6, 32, generator=generator)
    positions = torch.arange(6)[None]

    def attend(query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )

    with torch.no_grad():
        one, two = (
            model.logits(model.decode(embeds, model.fc(features), positions, attend))
            for model in (drafter.eval(), back)
        )
    assert torch.equal(one, two)


def test_the_config_says_what_other_readers_look_for(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == 16
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 4, 6]
    assert config["tie_word_embeddings"] is False
    assert config["draftsmith"]["training"] == {"n": 1}
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["fc.weight", "lm_head.weight", "norm.weight", "d2t", "t2d"])
def test_a_missing_tensor_is_named(target, folder, name):
    edit_tensors(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(ConfigError, match=rf"model\.safetensors: missing tensors \['{name}'\]"):
        load_drafter(folder, target)


def test_an_extra_tensor_is_named(target, folder):
    edit_tensors(folder, lambda tensors: tensors.update({"midlayer.gate": torch.ones(2)}))
    with pytest.raises(ConfigError, match=r"unexpected tensors \['midlayer\.gate'\]"):
        load_drafter(folder, target)


def test_a_tensor_of_another_shape_or_kind_is_named(target, folder):
    edit_tensors(folder, lambda tensors: tensors.update({"fc.weight": torch.ones(32, 64)}))
    with pytest.raises(ConfigError, match=r"fc\.weight has shape \[32, 64\]; expected \[32, 96\]"):
        load_drafter(folder, target)


def test_maps_of_another_size_or_kind_are_refused(target, folder):
    kept = load_file(folder / "model.safetensors")["d2t"]
    edit_tensors(folder, lambda tensors: tensors.update({"d2t": kept[:15].clone()}))
    with pytest.raises(ConfigError, match=r"d2t has shape \[15\]; expected \[16\]"):
        load_drafter(folder, target)
    edit_tensors(folder, lambda tensors: tensors.update({"d2t": kept + 0.5}))
    with pytest.raises(ConfigError, match=r"d2t has dtype torch\.float32; expected torch\.int64"):
        load_drafter(folder, target)


@pytest.mark.parametrize(("index", "offset"), [(0, -1), (0, 97), (1, 2)])
def test_a_map_that_leaves_the_vocabulary_or_repeats_is_refused(target, folder, index, offset):
    edit_tensors(folder, lambda tensors: tensors["d2t"].__setitem__(index, offset))
    with pytest.raises(ConfigError, match="d2t does not map to distinct ids below 97"):
        load_drafter(folder, target)


def test_maps_that_disagree_are_refused(target, folder):
    def swap(tensors):
        tensors["t2d"][3], tensors["t2d"][4] = False, True

    edit_tensors(folder, swap)
    with pytest.raises(ConfigError, match="t2d and d2t name different tokens"):
        load_drafter(folder, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("draftsmith"), "no `draftsmith` section"),
        (lambda c: c["draftsmith"].update(format_version=9), r"format_version=9; accepted: 1"),
        (lambda c: c["draftsmith"]["conventions"].pop("d2t"), r"draftsmith\.conventions="),
        (lambda c: c["draftsmith"].pop("target"), r"trained for target None"),
        (lambda c: c.update(vocab_size=96), "vocab_size=96; the target has 97"),
        (lambda c: c.pop("rope_parameters"), "lacks 'rope_parameters'"),
        (lambda c: c.pop("eagle_config"), "lacks 'eagle_config'"),
        (lambda c: c.update(hidden_size="wide"), "describes no drafter that can be built"),
        (lambda c: c.update(hidden_act="unheard-of"), "describes no drafter.*unheard-of"),
        (lambda c: c["rope_parameters"].update(rope_type="spiral"), "describes no drafter.*spiral"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(target, folder, change, message):
    edit_config(folder, change)
    with pytest.raises(ConfigError, match=message):
        load_drafter(folder, target)


def test_a_drafter_of_another_target_is_refused(folder, tmp_path):
    other = tiny_target(tmp_path / "other", initializer_range=0.1)
    with pytest.raises(ConfigError, match=f"was trained for target .*{other.fingerprint}"):
        load_drafter(folder, other)


def test_a_folder_without_a_drafter_is_refused(target, folder, tmp_path):
    with pytest.raises(ConfigError, match=r"drafter=.*no config\.json there"):
        load_drafter(tmp_path / "none", target)
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read"):
        load_drafter(folder, target)
    (folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json is not readable JSON"):
        load_drafter(folder, target)


def test_the_full_vocabulary_has_no_maps(target, tmp_path):
    save_drafter(toy_drafter(target), tmp_path, target=target, training={})
    assert not {"d2t", "t2d"} & load_file(tmp_path / "model.safetensors").keys()
    assert load_drafter(tmp_path, target).d2t is None


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "rope",
    [{"rope_type": "default", "rope_theta": 5e5}, LLAMA3, YARN],
    ids=["theta", "llama3", "yarn"],
)
def test_rotary_settings_survive(tmp_path, rope):
    target = tiny_target(tmp_path / "target", rope_parameters=rope)
    drafter = toy_drafter(target)
    save_drafter(drafter, tmp_path / "d", target=target, training={})
    back = load_drafter(tmp_path / "d", target)
    positions = torch.tensor([[0, 63, 200]])
    ours, theirs = (one.rotary(positions, torch.float32) for one in (drafter, back))
    targets = target.decoder.rotary_emb(torch.zeros(1), positions)
    for before, after, expected in zip(ours, theirs, targets, strict=True):
        assert torch.equal(before, after)
        assert torch.equal(after, expected)
    slowest = theirs[0][0, 2, 3].item()
    plain = math.cos(200 * 10000.0 ** (-3 / 4))
    assert abs(slowest - plain) > 1e-3
    if rope["rope_type"] == "default":
        assert slowest == pytest.approx(math.cos(200 * 5e5 ** (-3 / 4)), abs=1e-6)
    config = json.loads((tmp_path / "d/config.json").read_text())
    assert config["rope_theta"] == rope["rope_theta"]
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    if rope["rope_type"] == "default":
        assert config["rope_scaling"] is None
    else:
        assert scaling.items() <= config["rope_scaling"].items()
