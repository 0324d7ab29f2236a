"""Which part of the data a row belongs to, by its content alone."""

import hashlib
from typing import Literal


def split_of(text: str, heldout_fraction: float) -> Literal["train", "heldout"]:
    """The part `text` belongs to: the same in every file, order and run.

    Capture takes the one part and evaluation the other, so a drafter is never measured on prompts
    it was trained on. `text` is the first user message of a conversation, or the text itself.
    `heldout_fraction` lies in [0, 1]; raising it moves rows into the held-out part, none out of it.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # Exact in integers: a float of 64 random bits would round at the border.
    below = int.from_bytes(digest, "big") < int(heldout_fraction * 2**64)
    return "heldout" if below else "train"
