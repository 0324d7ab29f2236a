"""The target: which model, and how it is loaded."""

from typing import Literal

from draftsmith.configs.base import Config


class TargetConfig(Config):
    """The language model that is captured, imitated and sped up."""

    path: str
    """Hub id, local folder, or a .gguf file (or the folder that holds it)."""

    dtype: Literal["bfloat16", "float32", "auto"] = "bfloat16"
    """Precision of weights and activations; auto measures which is faster on this machine."""

    device: str = "auto"
    """Where the model runs: auto (the GPU when there is one), cpu, cuda or cuda:N."""

    revision: str | None = None
    """Branch, tag or commit of a Hub id; none: its default branch."""

    trust_remote_code: bool = False
    """Run model code that ships with the weights. Only for sources you trust."""
