"""Which implementation of an operation runs: asked for by name, or chosen and never swapped."""

from typing import Literal, get_args

Backend = Literal["auto", "torch"]


def choose_backend(op: str, backend: str) -> str:
    """Return the backend that runs `op`.

    Raises ValueError when `backend` is not one this operation has: a named backend is never
    replaced by another.
    """
    if backend not in get_args(Backend):
        raise ValueError(
            f"{op}: backend={backend!r} is not available; accepted: {', '.join(get_args(Backend))}"
        )
    return "torch"
