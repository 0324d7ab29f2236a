"""What is asked of the engine and what it gives back."""

from dataclasses import dataclass, field
from typing import Literal

from draftsmith.infer.metrics import Round

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Request:
    """One prompt to continue.

    stop_token_ids: generation ends with (and includes) the first of these.
    seed: fixes this request's draws, whatever shares its batch.
    """

    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Result:
    """`output_ids` are cut at the end; `rounds` are whole, the last one included."""

    id: str
    output_ids: tuple[int, ...]
    finish_reason: FinishReason
    rounds: tuple[Round, ...] = field(default=())
    error: str | None = None
