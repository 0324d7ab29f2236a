"""Any accepted decoding config survives being written and read, and keeps its own promises."""

import json
import warnings
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from draftsmith.configs import (
    AdvancedSamplingMode,
    DecodingConfig,
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    MoeBackend,
    SaveHiddenStatesDecodingConfig,
    read_decoding_config,
)
from draftsmith.configs.loading import dump_config
from draftsmith.configs.yaml_text import read_yaml

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
MODELS = NAMES | NAMES.map(lambda name: Path(name.replace("\0", "0")))
LAYERS = st.none() | st.sets(st.integers(-1, 90), min_size=1, max_size=5)
SIZES = st.integers(1, 64)


@st.composite
def schedules(draw, longest):
    sizes = draw(st.lists(SIZES, min_size=1, max_size=4, unique=True))
    lengths = {size: draw(st.integers(0, longest)) for size in sizes}
    return {**lengths, min(sizes): longest}


@st.composite
def common(draw, longest):
    """Fields of the base; `longest` is the draft length the config ends up with."""
    which = draw(st.sampled_from(["none", "concurrency", "schedule"]))
    return {
        "max_concurrency": draw(SIZES) if which == "concurrency" else None,
        "draft_len_schedule": draw(schedules(longest)) if which == "schedule" else None,
        "load_format": draw(st.sampled_from([None, "auto", "safetensors", "dummy"])),
        "acceptance_rate_window_size": draw(st.none() | st.integers(0, 100)),
        "acceptance_rate_threshold": draw(st.none() | st.floats(0, 1)),
        "allow_advanced_sampling": draw(st.booleans()),
        "advanced_sampling_mode": draw(st.sampled_from(AdvancedSamplingMode)),
        "enable_penalty": draw(st.booleans()),
    }


@st.composite
def trees(draw):
    """Paths in any order, with repeats, each grown from one already there."""
    paths = [[draw(st.integers(0, 5))]]
    for _ in range(draw(st.integers(0, 8))):
        stem = draw(st.sampled_from([[], *paths]))
        paths.append([*stem, draw(st.integers(0, 5))])
    return draw(st.permutations(paths))


@st.composite
def saved(draw):
    length = draw(st.none() | st.integers(0, 9))
    prefix = NAMES.map(lambda name: name.replace("/", "-").replace("\\", "-").replace("\0", "-"))
    return SaveHiddenStatesDecodingConfig(
        **draw(common(length or 0)),
        max_draft_len=length,
        speculative_model=draw(st.none() | MODELS),
        use_rejection_sampling=draw(st.booleans()),
        output_directory=draw(NAMES),
        write_interval=draw(SIZES),
        file_prefix=draw(prefix),
        eagle3_layers_to_capture=draw(LAYERS),
        moe_backend=draw(st.none() | st.sampled_from(MoeBackend)),
    )


@st.composite
def eagle(draw):
    shape = draw(st.sampled_from(["chain", "static", "dynamic"]))
    length, own = draw(st.integers(1, 9)), {}
    if shape == "static":
        paths = draw(trees())
        length = max(map(len, paths))
        own = {"eagle_choices": draw(st.sampled_from([paths, str(paths)]))}
        own["max_draft_len"] = draw(st.sampled_from([None, length, length + 1]))
    else:
        own["max_draft_len"] = length
    if shape == "dynamic":
        width = draw(st.integers(1, 9))
        total = draw(st.none() | st.integers(length, length * width))
        own |= {"use_dynamic_tree": True, "max_total_draft_tokens": total}
        own["dynamic_tree_max_topK"] = width
    else:
        own["dynamic_tree_max_topK"] = draw(st.none() | st.integers(-1, 9))
    greedy = draw(st.sampled_from([True, False, None]))
    return EagleDecodingConfig(
        **draw(common(length)),
        **own,
        speculative_model=draw(MODELS),
        use_rejection_sampling=False if greedy is False else draw(st.booleans()),
        greedy_sampling=greedy,
        posterior_threshold=draw(st.none() | st.floats(0, 1)),
        num_eagle_layers=draw(st.none() | SIZES),
        max_non_leaves_per_layer=draw(st.none() | SIZES),
        eagle3_one_model=draw(st.sampled_from([True, False, None])),
        eagle3_layers_to_capture=draw(LAYERS),
        eagle3_model_arch=draw(st.sampled_from(["llama3", "mistral_large3"])),
    )


@st.composite
def dflash(draw):
    length = draw(st.none() | st.integers(0, 16))
    return DFlashDecodingConfig(
        **draw(common(length or 0)),
        max_draft_len=length,
        speculative_model=draw(st.none() | MODELS),
        mask_token_id=draw(st.none() | st.integers(0, 1 << 20)),
        target_layer_ids=draw(st.none() | st.lists(st.integers(-1, 90), max_size=5)),
        attention_backend=draw(st.sampled_from(["VANILLA", "TRTLLM"])),
    )


@st.composite
def dspark(draw):
    length = draw(st.integers(1, 16))
    return DSparkDecodingConfig(
        **draw(common(length)),
        max_draft_len=length,
        speculative_model=draw(st.none() | MODELS),
        block_size=draw(st.sampled_from([None, length])),
        markov_rank=draw(st.none() | st.integers(0, 512)),
        markov_head_type=draw(st.sampled_from([None, "vanilla", "gated", "rnn"])),
        attention_backend=draw(st.sampled_from(["AUTO", "VANILLA", "TRTLLM", "CUTEDSL"])),
        moe_backend=draw(st.none() | st.sampled_from(MoeBackend)),
    )


@st.composite
def configs(draw):
    # Ignored values warn when the config is made; once made, it holds none of them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw(saved() | eagle() | dflash() | dspark())


def with_text_path(config):
    """A path becomes text on its way through a file."""
    if isinstance(config.speculative_model, Path):
        return config.model_copy(update={"speculative_model": str(config.speculative_model)})
    return config


def read_silently(mapping):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_decoding_config(mapping)


@settings(deadline=None)
@given(configs())
def test_through_json(config):
    expected = with_text_path(config)
    mapping = config.model_dump(mode="json")
    found = read_silently(json.loads(json.dumps(mapping)))
    assert found == expected
    assert type(found) is type(config)
    assert found.model_dump(mode="json") == mapping
    adapter = TypeAdapter(DecodingConfig)
    assert adapter.validate_json(config.model_dump_json()) == expected
    layers = mapping.get("eagle3_layers_to_capture")
    assert layers is None or layers == sorted(layers)


@settings(deadline=None)
@given(configs())
def test_through_yaml(config):
    assert read_silently(read_yaml(dump_config(config))) == with_text_path(config)


@settings(deadline=None)
@given(configs(), st.integers(1, 80))
def test_draft_lengths_never_exceed_the_longest(config, batch_size):
    length = config.draft_len_for(batch_size)
    assert (
        0
        <= length
        <= (config.max_draft_len or max([0, *(config.draft_len_schedule or {}).values()]))
    )
    assert config.get_runtime_tokens_per_gen_step(length) == length + 1
    if isinstance(config, EagleDecodingConfig):
        config.check_eagle_choices()
        assert config.max_total_draft_tokens >= config.max_draft_len == config.num_eagle_layers
    elif not isinstance(config, SaveHiddenStatesDecodingConfig):
        assert config.is_linear_tree
