"""Every rule of the decoding configs, on its good and its bad side."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from decoding_samples import NEEDED, TAGS, make
from pydantic import TypeAdapter, ValidationError

from draftsmith.configs import (
    AdvancedSamplingMode,
    DecodingBaseConfig,
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    MoeBackend,
    SaveHiddenStatesDecodingConfig,
    SpecDecMode,
    read_decoding_config,
)
from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding import DecodingConfig

Base, Save, Eagle = DecodingBaseConfig, SaveHiddenStatesDecodingConfig, EagleDecodingConfig
DFlash, DSpark = DFlashDecodingConfig, DSparkDecodingConfig

COMMON = {
    "max_draft_len": None,
    "max_total_draft_tokens": None,
    "speculative_model": None,
    "max_concurrency": None,
    "draft_len_schedule": None,
    "load_format": None,
    "acceptance_rate_window_size": None,
    "acceptance_rate_threshold": None,
    "use_rejection_sampling": False,
    "allow_advanced_sampling": False,
    "advanced_sampling_mode": AdvancedSamplingMode.FULL,
    "enable_penalty": False,
}
OWN = {
    Base: {},
    Save: {
        "decoding_type": "SaveState",
        "max_total_draft_tokens": 1,
        "output_directory": "out",
        "write_interval": 20,
        "file_prefix": "data",
        "eagle3_layers_to_capture": None,
        "moe_backend": None,
    },
    Eagle: {
        "decoding_type": "Eagle",
        "max_draft_len": 4,
        "max_total_draft_tokens": 4,
        "speculative_model": "drafter",
        "eagle_choices": None,
        "greedy_sampling": True,
        "posterior_threshold": None,
        "use_dynamic_tree": False,
        "dynamic_tree_max_topK": None,
        "num_eagle_layers": 4,
        "max_non_leaves_per_layer": None,
        "eagle3_one_model": True,
        "eagle3_layers_to_capture": None,
        "eagle3_model_arch": "llama3",
    },
    DFlash: {
        "decoding_type": "DFlash",
        "mask_token_id": None,
        "target_layer_ids": None,
        "attention_backend": "VANILLA",
    },
    DSpark: {
        "decoding_type": "DSpark",
        "max_draft_len": 4,
        "max_total_draft_tokens": 4,
        "mask_token_id": None,
        "target_layer_ids": None,
        "block_size": 4,
        "markov_rank": None,
        "markov_head_type": None,
        "attention_backend": "AUTO",
        "moe_backend": None,
    },
}


def test_importing_configs_imports_no_torch():
    code = (
        "import sys, draftsmith.configs, draftsmith.configs.support_page\n"
        "print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize("kind", NEEDED)
def test_fields_and_their_defaults(kind):
    config = make(kind)
    found = {name: getattr(config, name) for name in kind.model_fields}
    assert found == {**COMMON, **OWN[kind]}


@pytest.mark.parametrize("kind", NEEDED)
def test_fields_are_given_by_keyword_and_unknown_ones_are_refused(kind):
    with pytest.raises(TypeError):
        kind("drafter")
    with pytest.raises(ValidationError, match=r"draft_length[\s\S]*input_value=3"):
        make(kind, draft_length=3)
    with pytest.raises(ValidationError, match="frozen"):
        make(kind).max_draft_len = 3


@pytest.mark.parametrize("kind", NEEDED)
def test_the_json_schema_lists_the_fields(kind):
    schema = kind.model_json_schema()
    assert set(schema["properties"]) == set(kind.model_fields)
    assert schema["additionalProperties"] is False
    assert all(part.get("description") for part in schema["properties"].values())
    json.dumps(schema)


@pytest.mark.parametrize("kind", [Eagle, DFlash])
def test_only_save_state_and_dspark_have_a_moe_backend(kind):
    with pytest.raises(ValidationError, match="moe_backend"):
        make(kind, moe_backend="AUTO")


TREE = [[0], [1], [0, 0], [0, 1], [0, 0, 0]]

GOOD = [
    (Base, {"max_draft_len": 0}, {"max_draft_len": 0, "max_total_draft_tokens": 0}),
    (Base, {"max_draft_len": 3}, {"max_total_draft_tokens": 3, "is_linear_tree": True}),
    (Base, {"max_draft_len": 3, "max_total_draft_tokens": 7}, {"is_linear_tree": False}),
    (Base, {"max_total_draft_tokens": 7}, {"tokens_per_gen_step": 8}),
    (Base, {}, {"tokens_per_gen_step": 1, "is_linear_tree": True}),
    (Base, {"speculative_model": Path("a/b")}, {"speculative_model": Path("a/b")}),
    (Base, {"speculative_model_dir": "a/b"}, {"speculative_model": "a/b"}),
    (Base, {"max_concurrency": 1}, {"max_concurrency": 1}),
    (Base, {"draft_len_schedule": {8: 2, 1: 4}}, {"draft_len_schedule": {1: 4, 8: 2}}),
    (Base, {"draft_len_schedule": {"8": 2}}, {"draft_len_schedule": {8: 2}}),
    (
        Base,
        {"draft_len_schedule": {2: 3, 4: 0, 8: 3}, "max_draft_len": 3},
        {"draft_len_schedule": {2: 3, 4: 0, 8: 3}},
    ),
    *[(Base, {"load_format": x}, {"load_format": x}) for x in (None, "auto", "safetensors")],
    (Base, {"load_format": "dummy"}, {"load_format": "dummy"}),
    (Base, {"acceptance_rate_window_size": 0}, {"acceptance_rate_window_size": 0}),
    (Base, {"acceptance_rate_threshold": 0}, {"acceptance_rate_threshold": 0.0}),
    (Base, {"acceptance_rate_threshold": 1}, {"acceptance_rate_threshold": 1.0}),
    (Base, {"use_rejection_sampling": True}, {"use_rejection_sampling": True}),
    (Base, {"enable_penalty": True}, {"enable_penalty": True}),
    *[
        (Base, {"advanced_sampling_mode": name}, {"advanced_sampling_mode": mode})
        for name, mode in {
            "full": AdvancedSamplingMode.FULL,
            "no_topk": AdvancedSamplingMode.NO_TOPK,
            "no_topp": AdvancedSamplingMode.NO_TOPP,
            "no_topk_no_topp": AdvancedSamplingMode.NO_TOPK_NO_TOPP,
        }.items()
    ],
    (Save, {"decoding_type": "SaveState", "max_total_draft_tokens": 1}, {"tokens_per_gen_step": 2}),
    (Save, {"eagle3_layers_to_capture": [3, 1, 3]}, {"eagle3_layers_to_capture": {1, 3}}),
    (Save, {"eagle3_layers_to_capture": [3, 1]}, {"num_capture_layers": 3}),
    (Save, {"eagle3_layers_to_capture": [3, -1]}, {"num_capture_layers": 2}),
    (Save, {"eagle3_layers_to_capture": [-1]}, {"num_capture_layers": 1}),
    (Save, {}, {"num_capture_layers": 4, "is_linear_tree": False}),
    (Save, {"write_interval": 1}, {"write_interval": 1}),
    (Eagle, {}, {"num_capture_layers": 3, "is_linear_tree": True, "tokens_per_gen_step": 5}),
    (Eagle, {"max_total_draft_tokens": 4}, {"max_total_draft_tokens": 4}),
    (Eagle, {"eagle3_layers_to_capture": {1, 2}}, {"num_capture_layers": 2}),
    (
        Eagle,
        {"eagle3_model_arch": "mistral_large3"},
        {"eagle3_layers_to_capture": {-1}, "num_capture_layers": 1},
    ),
    (
        Eagle,
        {"eagle3_model_arch": "mistral_large3", "eagle3_layers_to_capture": {5}},
        {"eagle3_layers_to_capture": {5}},
    ),
    (Eagle, {"greedy_sampling": False}, {"posterior_threshold": 0.09}),
    (
        Eagle,
        {"greedy_sampling": False, "posterior_threshold": 0.2},
        {"posterior_threshold": 0.2},
    ),
    (Eagle, {"greedy_sampling": None}, {"greedy_sampling": None, "posterior_threshold": None}),
    (Eagle, {"eagle3_one_model": None}, {"eagle3_one_model": True}),
    (Eagle, {"use_dynamic_tree": None}, {"is_linear_tree": False, "max_total_draft_tokens": 4}),
    (
        Eagle,
        {"eagle_choices": TREE[::-1] + TREE, "max_draft_len": None},
        {
            "eagle_choices": TREE,
            "max_draft_len": 3,
            "max_total_draft_tokens": 5,
            "num_eagle_layers": 3,
            "is_linear_tree": False,
            "tokens_per_gen_step": 6,
        },
    ),
    (Eagle, {"eagle_choices": TREE, "max_draft_len": 3}, {"max_draft_len": 3}),
    (
        Eagle,
        {"eagle_choices": " [[0], [0, 1]]", "max_draft_len": 2},
        {"eagle_choices": [[0], [0, 1]]},
    ),
    (
        Eagle,
        {"eagle_choices": [[0], [10], [2]], "max_draft_len": 1, "max_total_draft_tokens": 3},
        {"eagle_choices": [[0], [2], [10]]},
    ),
    (
        Eagle,
        {"use_dynamic_tree": True, "dynamic_tree_max_topK": 10},
        {"max_total_draft_tokens": 40, "is_linear_tree": False},
    ),
    *[
        (
            Eagle,
            {"use_dynamic_tree": True, "dynamic_tree_max_topK": 10, "max_total_draft_tokens": n},
            {"max_total_draft_tokens": n, "tokens_per_gen_step": n + 1},
        )
        for n in (4, 40)
    ],
    (Eagle, {"max_non_leaves_per_layer": 4}, {"max_non_leaves_per_layer": 4}),
    (DFlash, {"max_draft_len": 7}, {"max_total_draft_tokens": 7, "tokens_per_gen_step": 8}),
    (DFlash, {"target_layer_ids": [5, 1, 5]}, {"target_layer_ids": [5, 1, 5]}),
    (DFlash, {"attention_backend": "TRTLLM"}, {"attention_backend": "TRTLLM"}),
    (DSpark, {"block_size": 4}, {"block_size": 4, "tokens_per_gen_step": 5}),
    (DSpark, {"max_draft_len": 7}, {"block_size": 7, "max_total_draft_tokens": 7}),
    (DSpark, {"markov_rank": 0}, {"markov_rank": 0}),
    *[(DSpark, {"markov_head_type": x}, {"markov_head_type": x}) for x in ("gated", "rnn", None)],
    *[
        (DSpark, {"attention_backend": x}, {"attention_backend": x})
        for x in ("VANILLA", "TRTLLM", "CUTEDSL")
    ],
    *[(DSpark, {"moe_backend": x.value}, {"moe_backend": x}) for x in MoeBackend],
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("kind", "settings", "expected"), GOOD)
def test_accepted_settings(kind, settings, expected):
    config = make(kind, **settings)
    assert {name: getattr(config, name) for name in expected} == expected


def test_the_twelve_moe_backends():
    assert " ".join(MoeBackend) == (
        "AUTO CUTLASS CUTEDSL CUTEDSL_FC12 TRTLLM DEEPGEMM DENSEGEMM VANILLA TRITON MARLIN "
        "MEGAMOE_DEEPGEMM MEGAMOE_CUTEDSL"
    )


# Class, settings, and what the message must hold: the field, the value, what is accepted.
BAD = [
    *[(kind, {"max_draft_len": -1}, ["max_draft_len", "-1", ">= 0"]) for kind in NEEDED],
    (Base, {"max_draft_len": "many"}, ["max_draft_len", "many", "integer"]),
    (Base, {"max_concurrency": 0}, ["max_concurrency", "0", "> 0"]),
    (Base, {"draft_len_schedule": {}}, ["draft_len_schedule", "{}", "at least one"]),
    (Base, {"draft_len_schedule": {0: 4}}, ["draft_len_schedule", "{0: 4}", ">= 1"]),
    (Base, {"draft_len_schedule": {1: -1}}, ["draft_len_schedule", "{1: -1}", ">= 0"]),
    (Base, {"draft_len_schedule": {1: "x"}}, ["draft_len_schedule", "{1: 'x'}", ">= 0"]),
    (
        Base,
        {"draft_len_schedule": {1: 3, 8: 2}, "max_draft_len": 4},
        ["draft_len_schedule", "{1: 3, 8: 2}", "max_draft_len=4 at the smallest"],
    ),
    (
        Base,
        {"draft_len_schedule": {1: 4, 8: 5}, "max_draft_len": 4},
        ["draft_len_schedule", "{1: 4, 8: 5}", "no more than that"],
    ),
    (
        Base,
        {"draft_len_schedule": {1: 4}, "max_concurrency": 8},
        ["draft_len_schedule={1: 4}", "max_concurrency=8", "one of them"],
    ),
    (Base, {"load_format": "gguf"}, ["load_format", "gguf", "auto, safetensors, dummy"]),
    (Base, {"acceptance_rate_window_size": -1}, ["acceptance_rate_window_size", "-1", ">= 0"]),
    (Base, {"acceptance_rate_threshold": -0.1}, ["acceptance_rate_threshold", "-0.1", ">= 0"]),
    (Base, {"acceptance_rate_threshold": 1.1}, ["acceptance_rate_threshold", "1.1", "<= 1"]),
    (Base, {"acceptance_rate_threshold": float("nan")}, ["acceptance_rate_threshold", "number"]),
    (Base, {"advanced_sampling_mode": "some"}, ["advanced_sampling_mode", "some", "no_topk"]),
    (
        Base,
        {"speculative_model": "a", "speculative_model_dir": "b"},
        ["speculative_model=a", "speculative_model_dir=b", "one of them"],
    ),
    (Save, {"output_directory": None}, ["output_directory", "text"]),
    (Save, {"max_total_draft_tokens": 2}, ["max_total_draft_tokens", "2", "1"]),
    (Save, {"max_total_draft_tokens": None}, ["max_total_draft_tokens", "1"]),
    (Save, {"write_interval": 0}, ["write_interval", "0", "> 0"]),
    (Save, {"file_prefix": "../x"}, ["file_prefix", "../x", "file name"]),
    (Save, {"eagle3_layers_to_capture": []}, ["eagle3_layers_to_capture=[]", "at least one"]),
    (Save, {"eagle3_layers_to_capture": "1"}, ["eagle3_layers_to_capture", "1", "integers"]),
    (Save, {"moe_backend": "FAST"}, ["moe_backend", "FAST", "VANILLA"]),
    (Eagle, {"max_draft_len": 0}, ["max_draft_len=0", "integer > 0"]),
    (Eagle, {"max_draft_len": None}, ["max_draft_len=none", "integer > 0"]),
    (Eagle, {"speculative_model": None}, ["speculative_model: required", "Hub id"]),
    (Eagle, {"speculative_model": ""}, ["speculative_model: required", "Hub id"]),
    (Eagle, {"max_total_draft_tokens": 5}, ["max_total_draft_tokens=5", "accepted: 4"]),
    (Eagle, {"eagle3_layers_to_capture": []}, ["eagle3_layers_to_capture=[]", "at least one"]),
    (Eagle, {"eagle3_model_arch": "gpt2"}, ["eagle3_model_arch", "gpt2", "mistral_large3"]),
    (Eagle, {"posterior_threshold": float("inf")}, ["posterior_threshold", "number"]),
    (
        Eagle,
        {"greedy_sampling": False, "use_rejection_sampling": True},
        ["greedy_sampling=false", "use_rejection_sampling=true", "one of them"],
    ),
    (Eagle, {"eagle_choices": []}, ["eagle_choices=[]", "at least one path"]),
    (Eagle, {"eagle_choices": "[[0]"}, ["eagle_choices", "[[0]", "[[0], [0, 1]]"]),
    (Eagle, {"eagle_choices": "__import__('os')"}, ["eagle_choices", "__import__", "list"]),
    (Eagle, {"eagle_choices": "3"}, ["eagle_choices", "3", "list"]),
    (Eagle, {"eagle_choices": [[]]}, ["eagle_choices", "[]", "one or more"]),
    (Eagle, {"eagle_choices": [[-1]]}, ["eagle_choices", "[-1]", ">= 0"]),
    (Eagle, {"eagle_choices": [[0], [1, 0]]}, ["eagle_choices", "[1, 0]", "prefix [1]"]),
    (
        Eagle,
        {"eagle_choices": TREE, "max_draft_len": 3, "max_total_draft_tokens": 4},
        ["max_total_draft_tokens=4", "5 paths", "accepted: 5"],
    ),
    (
        Eagle,
        {"eagle_choices": [[0]], "use_dynamic_tree": True},
        ["eagle_choices=[[0]]", "use_dynamic_tree=true", "one of them"],
    ),
    (Eagle, {"use_dynamic_tree": True}, ["dynamic_tree_max_topK=none", "> 0"]),
    (
        Eagle,
        {"use_dynamic_tree": True, "dynamic_tree_max_topK": 0},
        ["dynamic_tree_max_topK=0", "> 0"],
    ),
    *[
        (
            Eagle,
            {"use_dynamic_tree": True, "dynamic_tree_max_topK": 10, "max_total_draft_tokens": n},
            [f"max_total_draft_tokens={n}", "accepted: 4", "to 40"],
        )
        for n in (3, 41)
    ],
    (
        DFlash,
        {"max_draft_len": 7, "max_total_draft_tokens": 8},
        ["max_total_draft_tokens=8", "accepted: 7"],
    ),
    (DFlash, {"max_total_draft_tokens": 8}, ["max_total_draft_tokens=8", "accepted: none"]),
    (DFlash, {"attention_backend": "AUTO"}, ["attention_backend", "AUTO", "VANILLA", "TRTLLM"]),
    (DSpark, {"max_draft_len": 0}, ["max_draft_len=0", "integer > 0"]),
    (DSpark, {"max_draft_len": None}, ["max_draft_len=none", "integer > 0"]),
    (DSpark, {"max_total_draft_tokens": 5}, ["max_total_draft_tokens=5", "accepted: 4"]),
    (DSpark, {"block_size": 0}, ["block_size", "0", "> 0"]),
    (DSpark, {"block_size": 5}, ["block_size=5", "max_draft_len=4"]),
    (DSpark, {"markov_rank": -1}, ["markov_rank", "-1", ">= 0"]),
    (DSpark, {"markov_head_type": "lstm"}, ["markov_head_type", "lstm", "gated"]),
    (DSpark, {"attention_backend": "FLASH"}, ["attention_backend", "FLASH", "CUTEDSL"]),
]


@pytest.mark.parametrize(("kind", "settings", "words"), BAD)
def test_refused_settings(kind, settings, words):
    with pytest.raises(ValidationError) as direct:
        make(kind, **settings)
    assert words[0] in str(direct.value)
    # The common rules are read through a class that has a name.
    kind = DFlash if kind is Base else kind
    with pytest.raises(ConfigError) as caught:
        read_decoding_config({"decoding_type": TAGS[kind], **NEEDED[kind], **settings})
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("kind", TAGS)
@pytest.mark.parametrize("name", ["speculative_model", "speculative_model_dir"])
def test_both_names_of_the_drafter(kind, name):
    needed = {k: v for k, v in NEEDED[kind].items() if k != "speculative_model"}
    config = kind(**needed, **{name: "drafter"})
    assert config.speculative_model == "drafter"
    assert config.model_dump()["speculative_model"] == "drafter"


WARNINGS = [
    *[
        (kind, {"allow_advanced_sampling": True}, FutureWarning, {"allow_advanced_sampling": False})
        for kind in NEEDED
    ],
    *[
        (Save, {"moe_backend": backend.value}, UserWarning, {"moe_backend": None})
        for backend in MoeBackend
    ],
    (Eagle, {"num_eagle_layers": 2}, FutureWarning, {"num_eagle_layers": 4}),
    (Eagle, {"num_eagle_layers": 4}, FutureWarning, {"num_eagle_layers": 4}),
    (Eagle, {"eagle3_one_model": False}, UserWarning, {"eagle3_one_model": True}),
    (
        Eagle,
        {"dynamic_tree_max_topK": 4},
        UserWarning,
        {"dynamic_tree_max_topK": None, "max_total_draft_tokens": 4, "is_linear_tree": True},
    ),
    (
        Eagle,
        {"max_draft_len": 7, "eagle_choices": TREE},
        UserWarning,
        {"max_draft_len": 3, "max_total_draft_tokens": 5},
    ),
]


@pytest.mark.parametrize(("kind", "settings", "category", "expected"), WARNINGS)
def test_warnings(kind, settings, category, expected):
    field, value = next(iter(settings.items()))
    shown = json.dumps(value) if isinstance(value, bool) else str(value)
    with pytest.warns(category, match=f"{field}={shown}: ") as caught:
        config = kind(**{**NEEDED[kind], **settings})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_schedule_is_checked_against_the_depth_of_the_tree():
    config = make(Eagle, eagle_choices=TREE, max_draft_len=None, draft_len_schedule={4: 3, 8: 1})
    assert [config.draft_len_for(size) for size in (4, 5, 8, 9)] == [3, 1, 1, 0]
    with pytest.raises(ValidationError, match="max_draft_len=3 at the smallest"):
        make(Eagle, eagle_choices=TREE, max_draft_len=None, draft_len_schedule={4: 4})


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        ({}, {1: 0, 100: 0}),
        ({"max_draft_len": 4}, {1: 4, 100: 4}),
        ({"max_draft_len": 4, "max_concurrency": 8}, {1: 4, 8: 4, 9: 0}),
        ({"max_concurrency": 8}, {1: 0, 9: 0}),
        ({"draft_len_schedule": {16: 1, 2: 5, 4: 0, 8: 3}}, {1: 5, 2: 5, 3: 0, 5: 3, 8: 3, 9: 1}),
        ({"draft_len_schedule": {16: 1, 2: 5}}, {3: 1, 16: 1, 17: 0}),
    ],
)
def test_draft_length_by_batch_size(settings, lengths):
    config = DecodingBaseConfig(**settings)
    assert {size: config.draft_len_for(size) for size in lengths} == lengths
    with pytest.raises(ValueError, match="batch_size=0"):
        config.draft_len_for(0)


def test_a_defaulted_rejection_sampling_gives_way_and_an_explicit_one_does_not():
    class Sampled(EagleDecodingConfig):
        use_rejection_sampling: bool = True

    assert make(Eagle).use_rejection_sampling is False
    settings = {"max_draft_len": 4, "speculative_model": "drafter"}
    assert Sampled(**settings).use_rejection_sampling is True
    assert Sampled(**settings, greedy_sampling=False).use_rejection_sampling is False
    with pytest.raises(ValidationError, match="use_rejection_sampling=true and greedy_sampling"):
        Sampled(**settings, greedy_sampling=False, use_rejection_sampling=True)


@pytest.mark.parametrize(
    ("kind", "mode", "separate"),
    [
        (Base, SpecDecMode.NONE, True),
        (Save, SpecDecMode.SAVE_HIDDEN_STATES, False),
        (Eagle, SpecDecMode.EAGLE3, True),
        (DFlash, SpecDecMode.DFLASH, True),
        (DSpark, SpecDecMode.DSPARK, True),
    ],
)
def test_what_a_class_says_of_its_method(kind, mode, separate):
    config = make(kind, speculative_model="owner/drafter")
    assert config.spec_dec_mode is mode
    assert config.needs_separate_draft_weights is separate
    assert config.uses_external_draft_model is separate
    assert config.uses_replacement_heads is False
    assert config.supports_backend("pytorch") is True
    assert config.get_runtime_tokens_per_gen_step(3) == 4


@pytest.mark.parametrize("kind", [Base, DFlash, DSpark])
def test_without_captured_layers_their_count_is_a_method(kind):
    assert make(kind).num_capture_layers() == 0


def test_eagle_choices_can_be_checked_again():
    make(Eagle).check_eagle_choices()
    config = make(Eagle, eagle_choices=TREE, max_draft_len=3)
    config.check_eagle_choices()
    with pytest.raises(ConfigError, match=r"eagle_choices.*\[5, 0\].*prefix \[5\]"):
        config.model_copy(update={"eagle_choices": [[0], [5, 0]]}).check_eagle_choices()


@pytest.mark.parametrize("kind", TAGS)
def test_the_tag_chooses_the_class(kind):
    mapping = {"decoding_type": TAGS[kind], **NEEDED[kind]}
    assert read_decoding_config(mapping) == make(kind)
    assert type(TypeAdapter(DecodingConfig).validate_python(mapping)) is kind


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({}, ["decoding_type: required", "SaveState | Eagle | DFlash | DSpark"]),
        ({"decoding_type": "MTP"}, ["decoding_type=MTP", "SaveState | Eagle | DFlash | DSpark"]),
        ({"decoding_type": ["Eagle"]}, ["decoding_type=", "Eagle"]),
        (["Eagle"], ["mapping", "decoding_type"]),
        ({"decoding_type": "SaveState"}, ["output_directory: required"]),
        ({"decoding_type": "DFlash", "max_draft_len": True}, ["max_draft_len=true", "integer"]),
        ({"decoding_type": "DFlash", "max_drft_len": 3}, ["max_drft_len=3", "max_draft_len?"]),
    ],
)
def test_a_mapping_that_is_no_decoding_config(mapping, words):
    with pytest.raises(ConfigError) as caught:
        read_decoding_config(mapping)
    assert [word for word in words if word not in str(caught.value)] == []
