"""Codecs keep what they promise and refuse what they cannot keep."""

import pytest
import torch

from draftsmith.capture.dataset import DatasetError
from draftsmith.capture.dataset.codec import CODECS, get_codec

LAYER_IDS = [0, 2, 5]


def spread(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[7, 3*16]: layers 1000 times apart, one row of zeros, one outlier."""
    values = torch.randn(7, 3, 16, generator=torch.Generator().manual_seed(0))
    values *= torch.tensor([1e-2, 1.0, 1e3])[None, :, None]
    values[2] = 0.0
    values[4, 1, 3] = 900.0
    return values.flatten(1).to(dtype)


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp32"])
def test_a_float_codec_returns_its_own_dtype_bit_for_bit(name: str) -> None:
    codec = get_codec(name)
    states = spread(codec.dtype)
    decoded = codec.decode("x", codec.encode("x", states, layer_ids=LAYER_IDS))
    assert decoded.dtype == codec.dtype
    assert torch.equal(decoded, states)


@pytest.mark.parametrize(
    ("name", "relative", "absolute"),
    [("fp32", 0.0, 0.0), ("bf16", 2**-8, 0.0), ("fp16", 2**-11, 2**-25)],
)
def test_rounding_stays_within_the_documented_error(
    name: str, relative: float, absolute: float
) -> None:
    codec, states = get_codec(name), spread()
    decoded = codec.decode("x", codec.encode("x", states, layer_ids=LAYER_IDS)).double()
    error = (decoded - states.double()).abs()
    assert (error <= torch.clamp(states.double().abs() * relative, min=absolute)).all()


@pytest.mark.parametrize(
    ("name", "relative", "of_scale"), [("fp8_e4m3", 2**-4, 2**-10), ("int8", 0.0, 0.5)]
)
def test_a_scale_per_token_and_layer_bounds_the_error(
    name: str, relative: float, of_scale: float
) -> None:
    codec, states = get_codec(name), spread()
    stored = codec.encode("aux_hidden_states", states, layer_ids=LAYER_IDS)
    scale = stored["aux_hidden_states_scale"]
    blocks = states.view(7, 3, 16)
    torch.testing.assert_close(
        scale, blocks.abs().amax(2).clamp_min(1e-37) / codec.largest_code, rtol=1e-6, atol=1e-37
    )
    decoded = codec.decode("aux_hidden_states", stored).view(7, 3, 16)
    assert decoded.dtype == torch.float32
    bound = torch.maximum(blocks.abs() * relative, scale[:, :, None] * of_scale)
    assert ((decoded - blocks).abs() <= bound * (1 + 1e-5)).all()
    assert torch.equal(decoded[2], torch.zeros(3, 16))


def test_the_scale_of_the_final_state_is_a_vector() -> None:
    stored = get_codec("int8").encode("hidden_states", spread()[:, :16], layer_ids=[-1])
    assert stored["hidden_states_scale"].shape == (7,)
    assert int(stored["hidden_states"][4].abs().max()) == 127


def test_fp8_takes_little_more_than_half_of_bf16() -> None:
    states = torch.randn(10, 3 * 576)

    def size(name: str) -> int:
        stored = get_codec(name).encode("aux_hidden_states", states, layer_ids=LAYER_IDS)
        stored |= get_codec(name).encode("hidden_states", states[:, :576], layer_ids=[-1])
        return sum(tensor.nbytes for tensor in stored.values())

    assert size("fp8_e4m3") / size("bf16") == pytest.approx(0.5035, abs=1e-4)


def test_a_value_beyond_fp16_is_refused_with_its_layer_and_row() -> None:
    states = spread()
    states[3, 2 * 16 + 5] = -65505.0
    with pytest.raises(DatasetError, match=r"x of layer 5 holds -65505 at row 3; .*'fp16'.*65504"):
        get_codec("fp16").encode("x", states, layer_ids=LAYER_IDS)
    states[3, 2 * 16 + 5] = -65504.0
    stored = get_codec("fp16").encode("x", states, layer_ids=LAYER_IDS)["x"]
    assert float(stored[3, 37]) == -65504.0


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_refused(name: str, value: float) -> None:
    states = spread()
    states[6, 16] = value
    with pytest.raises(DatasetError, match=f"layer 2 holds {value} at row 6"):
        get_codec(name).encode("x", states, layer_ids=LAYER_IDS)


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DatasetError, match=r"codec='fp4' is unknown, accepted: bf16, fp16, fp32"):
        get_codec("fp4")
