"""How hidden states become bytes: plain floats, or one byte a value with a scale per token.

Reconstruction error of each codec, for an input of more precision than the codec keeps:

| codec      | bytes a value | error of one value                                        |
| ---------- | ------------- | --------------------------------------------------------- |
| `fp32`     | 4             | none                                                      |
| `bf16`     | 2             | at most 2^-8 of the value; none for bf16 input            |
| `fp16`     | 2             | at most 2^-11 of the value, or 2^-25; none for fp16 input |
| `fp8_e4m3` | 1             | at most 2^-4 of the value, or 2^-10 of the scale          |
| `int8`     | 1             | at most half the scale                                    |

A scale is float32 and belongs to one token *of one layer*, because layers of a target differ in
magnitude by orders and a scale shared among them would erase the small ones: `[T]` for
`hidden_states_scale`, `[T, L]` for `aux_hidden_states_scale`. It is the largest magnitude of that
row divided by the largest code (448 or 127).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftsmith.capture.dataset.errors import DatasetError

SCALE_SUFFIX = "_scale"


@dataclass(frozen=True)
class Codec:
    """One way to store `[T, n*H]` floats."""

    name: str
    dtype: torch.dtype
    largest_code: float | None = None
    """The magnitude a row's maximum is scaled to; None: values are stored as they are."""

    @property
    def decoded_dtype(self) -> torch.dtype:
        """float32 for codecs with a scale (a product has more digits than bf16), else as stored."""
        return self.dtype if self.largest_code is None else torch.float32

    def layout(
        self, name: str, num_tokens: int, hidden_size: int, num_layers: int
    ) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """The stored tensors of `num_layers` layers side by side, as dtype and shape."""
        tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            name: (self.dtype, (num_tokens, num_layers * hidden_size))
        }
        if self.largest_code is not None:
            shape = (num_tokens,) if name == "hidden_states" else (num_tokens, num_layers)
            tensors[name + SCALE_SUFFIX] = (torch.float32, shape)
        return tensors

    def encode(self, name: str, tensor: Tensor, *, layer_ids: Sequence[int]) -> dict[str, Tensor]:
        """Turns states into the tensors that are stored.

        tensor: [T, n*H] float, the states of `layer_ids` (n of them) side by side
        returns: `name` [T, n*H] in the codec's dtype, and for scaled codecs `name`_scale float32
        Raises DatasetError that names the layer and the row of a value the codec cannot hold.
        """
        blocks = tensor.unflatten(1, (len(layer_ids), -1))  # [T, n, H]
        self._refuse_unstorable(name, blocks, layer_ids)
        if self.largest_code is None:
            return {name: tensor.to(self.dtype).contiguous()}
        values = blocks.float()
        # An all-zero row, or one of denormals, would divide by zero: the least normal number is
        # small enough to leave every other row's scale alone.
        scale = (values.abs().amax(dim=2) / self.largest_code).clamp_min(
            torch.finfo(torch.float32).tiny
        )  # [T, n]
        codes = (values / scale[:, :, None]).clamp_(-self.largest_code, self.largest_code)
        if not self.dtype.is_floating_point:
            codes = codes.round_()
        stored = codes.to(self.dtype).flatten(1)
        return {
            name: stored.contiguous(),
            name + SCALE_SUFFIX: (scale[:, 0] if name == "hidden_states" else scale).contiguous(),
        }

    def decode(self, name: str, tensors: Mapping[str, Tensor]) -> Tensor:
        """The states back from stored tensors: [T, n*H] in `decoded_dtype`, a view if possible."""
        stored = tensors[name]
        if self.largest_code is None:
            return stored
        scale = tensors[name + SCALE_SUFFIX].reshape(stored.shape[0], -1)  # [T, n]
        values = stored.float().unflatten(1, (scale.shape[1], -1))
        return (values * scale[:, :, None]).flatten(1)

    def _refuse_unstorable(self, name: str, blocks: Tensor, layer_ids: Sequence[int]) -> None:
        """A NaN or an infinity would poison training silently, wherever it came from."""
        bad = ~torch.isfinite(blocks)
        limit = None
        if (
            self.largest_code is None
            and torch.finfo(blocks.dtype).max > torch.finfo(self.dtype).max
        ):
            limit = torch.finfo(self.dtype).max
            bad |= blocks.abs() > limit
        elif blocks.dtype == torch.float64:
            limit = torch.finfo(torch.float32).max
            bad |= blocks.abs() > limit
        if not bad.any():
            return
        row, layer, column = (int(index) for index in bad.nonzero()[0])
        value = float(blocks[row, layer, column])
        accepted = "finite values" if limit is None else f"finite values of at most {limit:.6g}"
        raise DatasetError(
            f"{name} of layer {layer_ids[layer]} holds {value:g} at row {row}; "
            f"codec {self.name!r} accepts {accepted}"
        )


CODECS = {
    codec.name: codec
    for codec in (
        Codec("bf16", torch.bfloat16),
        Codec("fp16", torch.float16),
        Codec("fp32", torch.float32),
        Codec("fp8_e4m3", torch.float8_e4m3fn, largest_code=448.0),
        Codec("int8", torch.int8, largest_code=127.0),
    )
}


def get_codec(name: str) -> Codec:
    """The codec of that name. Raises DatasetError that lists the names there are."""
    if name not in CODECS:
        raise DatasetError(f"codec={name!r} is unknown, accepted: {', '.join(CODECS)}")
    return CODECS[name]
