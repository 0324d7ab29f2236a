"""The EAGLE-3 drafter (arXiv 2503.01840): one decoder layer over the target's own features."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

# Attends a layer's queries, with keys and values, over whatever the caller keeps.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Eagle3Settings:
    """Sizes and switches of one drafter, as its config.json stores them.

    target_layer_ids: captured layers in the order `fc` expects them; id k is the residual stream
        after block k.
    draft_vocab_size: rows of the draft's head; equal to vocab_size when the vocabulary is full.
    norm_before_residual: the residual carries the normed feature instead of the raw one.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    target_hidden_size: int
    target_layer_ids: tuple[int, ...]
    rope_parameters: dict[str, Any]
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    norm_before_residual: bool = False

    @property
    def reduced_vocabulary(self) -> bool:
        return self.draft_vocab_size != self.vocab_size

    def llama_config(self) -> LlamaConfig:
        """The settings as transformers names them: what its rotary tables are computed from."""
        return LlamaConfig(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            num_hidden_layers=1,
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_position_embeddings,
            rms_norm_eps=self.rms_norm_eps,
            hidden_act=self.hidden_act,
            rope_parameters=dict(self.rope_parameters),
            tie_word_embeddings=False,
        )


class Eagle3Attention(nn.Module):
    """Projections of the layer's attention; q, k and v read the 2H-wide input."""

    def __init__(self, settings: Eagle3Settings) -> None:
        super().__init__()
        self.head_dim = settings.head_dim
        width = 2 * settings.hidden_size
        heads, kv_heads = settings.num_attention_heads, settings.num_key_value_heads
        self.q_proj = nn.Linear(width, heads * settings.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * settings.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * settings.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * settings.head_dim, settings.hidden_size, bias=False)

    def split(self, projected: Tensor) -> Tensor:
        """[B, T, heads · D] -> [B, heads, T, D]."""
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class Eagle3MLP(nn.Module):
    def __init__(self, settings: Eagle3Settings) -> None:
        super().__init__()
        hidden, inner = settings.hidden_size, settings.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.activation = ACT2FN[settings.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Eagle3Layer(nn.Module):
    """The decoder layer, in pieces: training needs keys of all rows and queries of some."""

    def __init__(self, settings: Eagle3Settings) -> None:
        super().__init__()
        hidden, eps = settings.hidden_size, settings.rms_norm_eps
        self.norm_before_residual = settings.norm_before_residual
        self.input_layernorm = LlamaRMSNorm(hidden, eps=eps)
        self.hidden_norm = LlamaRMSNorm(hidden, eps=eps)
        self.self_attn = Eagle3Attention(settings)
        self.post_attention_layernorm = LlamaRMSNorm(hidden, eps=eps)
        self.mlp = Eagle3MLP(settings)

    def inputs(self, embeds: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attention's input [B, T, 2H] and the residual [B, T, H]."""
        normed = self.hidden_norm(feature)
        joined = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
        return joined, normed if self.norm_before_residual else feature

    def queries(self, joined: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        return rotate(self.self_attn.split(self.self_attn.q_proj(joined)), rotary)

    def keys_values(self, joined: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        key = rotate(self.self_attn.split(self.self_attn.k_proj(joined)), rotary)
        return key, self.self_attn.split(self.self_attn.v_proj(joined))

    def finish(self, context: Tensor, residual: Tensor) -> Tensor:
        """Attention output [B, heads, T, D] and residual -> the layer's output [B, T, H]."""
        hidden = residual + self.self_attn.o_proj(context.transpose(1, 2).flatten(-2))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Drafter(nn.Module):
    """`fc`, one layer, final norm and head over the draft vocabulary.

    The embedding is the target's own and is passed in: it is neither trained nor saved here.
    Attributes `d2t` (int64 [D], target id minus draft id) and `t2d` (bool [V]) are None when the
    vocabulary is full.
    """

    d2t: Tensor | None
    t2d: Tensor | None

    def __init__(self, settings: Eagle3Settings) -> None:
        super().__init__()
        self.settings = settings
        num_features = len(settings.target_layer_ids) * settings.target_hidden_size
        self.fc = nn.Linear(num_features, settings.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(settings)
        self.norm = LlamaRMSNorm(settings.hidden_size, eps=settings.rms_norm_eps)
        self.lm_head = nn.Linear(settings.hidden_size, settings.draft_vocab_size, bias=False)
        if settings.reduced_vocabulary:
            self.register_buffer("d2t", torch.zeros(settings.draft_vocab_size, dtype=torch.int64))
            self.register_buffer("t2d", torch.zeros(settings.vocab_size, dtype=torch.bool))
        else:
            self.d2t = self.t2d = None
        # In a tuple, so that casting the module to bf16 leaves the inverse frequencies in fp32.
        self._rotary = (LlamaRotaryEmbedding(config=settings.llama_config()),)

    @property
    def draft_to_target(self) -> Tensor:
        """[D] int64: the target id of every draft id."""
        ids = torch.arange(self.settings.draft_vocab_size, device=self.lm_head.weight.device)
        return ids if self.d2t is None else ids + self.d2t

    def set_vocabulary(self, target_ids: Tensor) -> None:
        """Make `target_ids` (int64 [D], distinct) the draft vocabulary, in that order."""
        assert self.d2t is not None and self.t2d is not None
        self.d2t.copy_(target_ids - torch.arange(len(target_ids), device=target_ids.device))
        self.t2d.zero_()
        self.t2d[target_ids] = True

    def rotary(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [B, T, D] at `positions` [B, T]."""
        table = self._rotary[0].to(positions.device)
        return table(torch.empty(0, dtype=dtype, device=positions.device), positions)

    def decode(self, embeds: Tensor, feature: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """One pass of the layer: [B, T, H] embeddings and features -> [B, T, H] output."""
        rotary = self.rotary(positions, embeds.dtype)
        joined, residual = self.midlayer.inputs(embeds, feature)
        query = self.midlayer.queries(joined, rotary)
        key, value = self.midlayer.keys_values(joined, rotary)
        return self.midlayer.finish(attend(query, key, value), residual)

    def logits(self, output: Tensor) -> Tensor:
        """Draft-vocabulary logits of the layer's output: [..., H] -> [..., D]."""
        return self.lm_head(self.norm(output))


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, halves paired (arXiv 2104.09864, in the layout of Llama checkpoints)."""
    cos, sin = rotary[0][:, None], rotary[1][:, None]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
