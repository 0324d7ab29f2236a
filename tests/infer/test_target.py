"""Loading a target: what is refused, what identifies its weights, where it stops."""

import json

import chat
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_llama, tiny_target

from draftsmith.configs.base import ConfigError
from draftsmith.configs.target import TargetConfig
from draftsmith.infer.target import load_target


def load(path, **changes):
    options = {"dtype": "float32", "device": "cpu", **changes}
    return load_target(TargetConfig(path=str(path), **options))


def rewrite(folder, change):
    """Apply `change` to the tensors of a model folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("name", ["absent", "absent/model", "a/b/c"])
def test_a_missing_path_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"target\.path=.*does not exist; accepted: a Hugging"):
        load(tmp_path / name if name != "a/b/c" else name)


def test_files_that_hold_no_model_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(ConfigError, match=r"notes\.txt' is a file; accepted: .*\.gguf"):
        load(tmp_path / "notes.txt")
    (tmp_path / "model.gguf").write_bytes(b"no such format" * 40)
    for path in (tmp_path / "model.gguf", tmp_path):
        with pytest.raises(ConfigError, match=r"target\.path=.*cannot be loaded: .*GGUF"):
            load(path)


def test_folders_that_hold_no_model_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json and not exactly one \.gguf.*none"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"target\.path=.*cannot be loaded"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    with pytest.raises(ConfigError, match=r"target\.path=.*cannot be loaded: .*unheard-of"):
        load(tmp_path)


@pytest.mark.parametrize("device", ["banana", "meta", "cuda:99", "cpu:x", ""])
def test_devices_that_are_not_there_are_refused(tmp_path, device):
    with pytest.raises(ConfigError, match=rf"target\.device='{device}'"):
        load(tmp_path, device=device)


def test_a_revision_of_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"target\.revision='main'"):
        load(tiny_llama(tmp_path), revision="main")


def test_weights_that_are_not_there_are_not_made_up(tmp_path):
    folder = tiny_llama(tmp_path / "headless")
    rewrite(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ConfigError, match=r"lacks tensors of LlamaForCausalLM: lm_head\.weight"):
        load(folder)
    folder = tiny_llama(tmp_path / "other")
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(5)}))
    with pytest.raises(ConfigError, match=r"target\.path=.*cannot be loaded"):
        load(folder)
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ConfigError, match=r"target\.path=.*cannot be loaded"):
        load(folder)


def test_the_fingerprint_is_the_weights(tmp_path):
    folder = tiny_llama(tmp_path / "one")
    fingerprint = load(folder).fingerprint
    assert len(fingerprint) == 32
    assert load(folder, dtype="bfloat16").fingerprint == fingerprint
    assert load(tiny_llama(tmp_path / "same")).fingerprint == fingerprint

    def move(tensors):
        tensors["model.layers.3.mlp.up_proj.weight"].view(-1)[0] += 0.25

    rewrite(folder, move)
    assert load(folder).fingerprint != fingerprint
    assert load(tiny_llama(tmp_path / "wider", intermediate_size=72)).fingerprint != fingerprint


def test_tied_embeddings_are_one_tensor(tmp_path):
    folder = tiny_llama(tmp_path, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    target = load(folder)
    assert target.head_weight is target.embed_tokens.weight
    hidden = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(target.logits(hidden), hidden @ target.embed_tokens.weight.T)


def test_sizes_are_the_models_own(tmp_path):
    target = tiny_target(tmp_path)
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (8, 32, 97)
    assert target.max_positions == 256
    assert target.dtype == torch.float32
    assert not any(weight.requires_grad for weight in target.model.parameters())
    assert not target.model.training


def test_it_stops_where_model_or_tokenizer_say(tmp_path):
    folder = tiny_llama(tmp_path, vocab_size=272)
    assert load(folder).tokenizer is None
    assert load(folder).stop_token_ids == {2}
    tokenizer = chat.make_tokenizer(eos_token="</s>")
    tokenizer.save_pretrained(folder)
    assert load(folder).stop_token_ids == {2, tokenizer.eos_token_id}
    generation = json.loads((folder / "generation_config.json").read_text())
    generation["eos_token_id"] = [2, 261]
    (folder / "generation_config.json").write_text(json.dumps(generation))
    assert load(folder).stop_token_ids == {2, 261, tokenizer.eos_token_id}
