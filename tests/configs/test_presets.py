"""Every shipped preset loads, and the recipes fit the real sizes of the targets they are for."""

from pathlib import Path
from typing import NamedTuple

import pytest

import draftsmith.configs.presets
from draftsmith.configs.capture import CaptureConfig
from draftsmith.configs.infer import EvalConfig
from draftsmith.configs.loading import dump_config, load_config
from draftsmith.configs.train import TrainConfig
from draftsmith.configs.yaml_text import read_yaml

PRESETS = Path(next(iter(draftsmith.configs.presets.__path__)))
MODELS = {"capture": CaptureConfig, "eval": EvalConfig}
FILES = sorted(path.relative_to(PRESETS).as_posix() for path in PRESETS.rglob("*.yaml"))
DRAFTERS = ("eagle3", "dflash", "dspark")


class Family(NamedTuple):
    """The sizes of a target, from its own config.json and tokenizer.

    text_ids: ids below this are text; those from it on are special, reserved or unassigned.
    spoken: special tokens that its chat template writes or its answers hold.
    """

    num_layers: int
    hidden_size: int
    vocab_size: int
    text_ids: int
    spoken: range


# Qwen3: 26 special tokens at 151643 ... 151668, <think> and tool calls among them. Llama 3.1:
# begin and end of text, two reserved, padding, one reserved, then headers, turns and tools.
QWEN_SPOKEN = range(151643, 151669)
FAMILIES = {
    "qwen3-4b": Family(36, 2560, 151936, 151643, QWEN_SPOKEN),
    "qwen3-8b": Family(36, 4096, 151936, 151643, QWEN_SPOKEN),
    "llama-3.1-8b": Family(32, 4096, 128256, 128000, range(128004, 128011)),
}
RECIPES = [(family, drafter) for family in FAMILIES for drafter in DRAFTERS]


def load(file):
    return load_config(MODELS.get(Path(file).stem, TrainConfig), PRESETS / file)


def test_a_family_has_a_recipe_for_every_job():
    names = {"capture", "eval", *DRAFTERS}
    assert {folder.name for folder in PRESETS.iterdir() if folder.is_dir()} >= {*FAMILIES, "demo"}
    for family in FAMILIES:
        assert {path.stem for path in (PRESETS / family).glob("*.yaml")} == names


@pytest.mark.parametrize("file", FILES)
def test_every_preset_loads_is_explained_and_survives_a_round_trip(file, tmp_path):
    assert (PRESETS / file).read_text().startswith("# ")
    config = load(file)
    resolved = read_yaml(dump_config(config))
    for key, value in leaves(read_yaml((PRESETS / file).read_text())):
        found = resolved
        for part in key:
            found = found[part]
        assert found == value, key
    copy = tmp_path / Path(file).name
    copy.write_text(dump_config(config))
    assert load_config(type(config), copy) == config


def leaves(mapping, prefix=()):
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


@pytest.mark.parametrize("family", FAMILIES)
def test_the_captured_layers_follow_the_published_rule(family):
    num_layers = FAMILIES[family].num_layers
    captured = load(f"{family}/capture.yaml").speculative_config.resolve_layers(num_layers)
    # Five, evenly from 1 to L-3.
    assert list(captured) == [round(1 + i * (num_layers - 4) / 4) for i in range(5)]
    published = {36: (1, 9, 17, 25, 33), 32: (1, 8, 15, 22, 29)}
    assert captured == published[num_layers]


@pytest.mark.parametrize(("family", "drafter"), RECIPES)
def test_a_recipe_fits_its_target(family, drafter):
    sizes, train = FAMILIES[family], load(f"{family}/{drafter}.yaml")
    captured = load(f"{family}/capture.yaml").speculative_config.resolve_layers(sizes.num_layers)
    assert train.drafter.type == drafter == train.objective.type
    if drafter == "eagle3":
        assert train.drafter.draft_vocab_size <= sizes.vocab_size
        return
    assert set(train.drafter.target_layer_ids) <= set(captured)
    assert all(0 <= layer_id < sizes.num_layers for layer_id in train.drafter.target_layer_ids)
    mask = train.drafter.mask_token_id
    # It has a row in the embedding, and no text, template or answer holds it.
    assert sizes.text_ids <= mask < sizes.vocab_size
    assert mask not in sizes.spoken


@pytest.mark.parametrize(("family", "drafter"), RECIPES)
def test_a_recipe_has_the_published_settings(family, drafter):
    train = load(f"{family}/{drafter}.yaml")
    assert train.optimizer.lr == (1e-4 if drafter == "eagle3" else 6e-4)
    assert train.optimizer.warmup_ratio == 0.04
    assert train.budget.num_epochs == 10
    assert train.batch.max_length == 4096 <= train.batch.tokens
    if drafter == "eagle3":
        assert (train.objective.num_steps, train.objective.step_decay) == (7, 0.8)
    else:
        assert (train.drafter.block_size, train.drafter.num_layers) == (7, 5)
        assert (train.objective.num_anchors, train.objective.decay_gamma) == (512, 4)


@pytest.mark.parametrize(("family", "drafter"), RECIPES)
def test_a_step_sees_512_conversations_on_8_processes(family, drafter):
    batch = load(f"{family}/{drafter}.yaml").batch
    # 38 TB of 6 states of 2560 bf16 numbers, over 1.3 million conversations.
    mean = 38e12 / (6 * 2560 * 2) / 1.3e6
    assert 940 < mean < 960
    conversations = 8 * batch.tokens * batch.accumulation / mean
    # Padding takes the rest.
    assert 512 <= conversations <= 560


@pytest.mark.parametrize("family", FAMILIES)
def test_the_jobs_of_a_family_fit_together(family):
    capture, evaluate = load(f"{family}/capture.yaml"), load(f"{family}/eval.yaml")
    trainings = [load(f"{family}/{drafter}.yaml") for drafter in DRAFTERS]
    for train in trainings:
        assert train.data == capture.speculative_config.output_directory
        assert train.target == capture.target == evaluate.target
    outputs = [train.output for train in trainings]
    assert len({*outputs, evaluate.output, trainings[0].data}) == len(outputs) + 2
    assert evaluate.drafter in outputs
    assert evaluate.prompts.path == capture.input.path
    assert (capture.input.split, evaluate.prompts.split) == ("train", "heldout")
    assert capture.input.heldout_fraction == evaluate.prompts.heldout_fraction
    assert capture.input.max_length == trainings[0].batch.max_length
    assert capture.regenerate is not None
    assert capture.regenerate.max_new_tokens < capture.input.max_length
    # As many tokens are drafted as every recipe was trained to.
    steps = trainings[0].objective.num_steps
    assert evaluate.max_draft_len == steps == trainings[1].drafter.block_size


def test_a_wrong_layer_is_noticed():
    sizes = FAMILIES["llama-3.1-8b"]
    config = load("qwen3-8b/capture.yaml").speculative_config
    with pytest.raises(ValueError, match="holds 33, but the target has 32 layers"):
        config.resolve_layers(sizes.num_layers)
