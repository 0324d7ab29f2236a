"""The shipped recipes resolve against a target of their family, tiny in width and real in depth."""

from pathlib import Path

import pytest
import torch
from tiny import SIZES
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import draftsmith.configs.presets
from draftsmith.configs.capture import CaptureConfig
from draftsmith.configs.loading import load_config
from draftsmith.configs.target import TargetConfig
from draftsmith.configs.train import TrainConfig
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.target import load_target
from draftsmith.train.drafter import eagle3_settings

PRESETS = Path(next(iter(draftsmith.configs.presets.__path__)))
# Depth and vocabulary are the real ones, which the recipes name; widths are not.
FAMILIES = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"num_hidden_layers": 36, "vocab_size": 151936}),
    "llama": (LlamaConfig, LlamaForCausalLM, {"num_hidden_layers": 32, "vocab_size": 128256}),
}
NARROW = {"hidden_size": 8, "intermediate_size": 16, "head_dim": 4, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("family", "preset"), [("qwen3", "qwen3-4b"), ("qwen3", "qwen3-8b"), ("llama", "llama-3.1-8b")]
)
def test_a_recipe_resolves_against_its_family(tmp_path, family, preset):
    make_config, make_model, real = FAMILIES[family]
    torch.manual_seed(0)
    config = make_config(**{**SIZES, **NARROW, **real, "num_key_value_heads": 1})
    make_model(config).save_pretrained(tmp_path)
    target = load_target(TargetConfig(path=str(tmp_path), dtype="float32", device="cpu"))

    capture = load_config(CaptureConfig, PRESETS / preset / "capture.yaml")
    layer_ids = capture.speculative_config.resolve_layers(target.num_layers)
    train = load_config(TrainConfig, PRESETS / preset / "eagle3.yaml")
    settings = eagle3_settings(train.drafter, target, train.drafter.draft_vocab_size, layer_ids)
    drafter = Eagle3Drafter(settings)
    assert drafter.fc.weight.shape == (8, 5 * 8)
    assert drafter.lm_head.weight.shape == (32000, 8)

    for name in ("dflash", "dspark"):
        block = load_config(TrainConfig, PRESETS / preset / f"{name}.yaml").drafter
        assert set(block.target_layer_ids) <= set(layer_ids)
        # The embedding has a row for the mask token.
        mask = torch.tensor([block.mask_token_id])
        assert target.model.get_input_embeddings()(mask).shape == (1, 8)
