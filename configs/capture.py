"""The capture jobs: which prompts go through the target, and how its states are written."""

import re
from typing import Literal

from pydantic import Field, field_validator

from draftsmith.configs.base import Config
from draftsmith.configs.decoding import SaveHiddenStatesDecodingConfig
from draftsmith.configs.target import TargetConfig

RUN_ALIASES = {
    "target": "target.path",
    "dtype": "target.dtype",
    "device": "target.device",
    "input": "input.path",
    "output": "speculative_config.output_directory",
    "layers": "speculative_config.eagle3_layers_to_capture",
    "write-interval": "speculative_config.write_interval",
    "file-prefix": "speculative_config.file_prefix",
    "codec": "dataset.codec",
    "quota": "dataset.quota",
    "max-length": "input.max_length",
    "min-supervised-tokens": "input.min_supervised_tokens",
    "split": "input.split",
    "limit": "input.limit",
    "system-prompt": "input.system_prompt",
    "engine": "engine",
    "max-new-tokens": "regenerate.max_new_tokens",
}
VERIFY_ALIASES = {"dataset": "dataset", "target": "target.path"}

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B", re.IGNORECASE)
POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class InputConfig(Config):
    """The rows to capture, and which of them are kept."""

    path: str
    """A .jsonl, .json or .parquet file, a folder of them, or a Hub dataset as owner/name:split."""

    format: Literal["auto", "conversations", "text", "tokens"] = "auto"
    """What rows hold: chat messages, raw text, or token ids; auto tells them by their keys."""

    system_prompt: str | None = None
    """System message put before conversations that bring none; none: leave them as they are."""

    last_turn_only: bool = False
    """Supervise only the last assistant turn instead of every one."""

    keep_reasoning: bool = True
    """Keep the assistant's reasoning in the text; false removes it."""

    max_length: int | None = Field(default=None, gt=0)
    """Longest sample in tokens; none: no limit but the target's own."""

    overlong: Literal["drop", "truncate"] = "drop"
    """What happens to samples beyond max_length; dropped ones are counted in the manifest."""

    min_supervised_tokens: int = Field(default=1, ge=1)
    """Drop samples with fewer tokens written by the assistant than this."""

    split: Literal["all", "train", "heldout"] = "all"
    """Which part of the rows to take; a row's part depends only on its first user message."""

    heldout_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of rows that belong to the heldout part; unused when split is all."""

    limit: int | None = Field(default=None, gt=0)
    """Take at most this many usable rows of that part, from the top; none: all."""


class RegenerateConfig(Config):
    """Answers written by the target itself, in place of those in the input."""

    max_new_tokens: int = Field(default=128, gt=0)
    """Longest answer in tokens."""

    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy."""

    top_k: int = Field(default=0, ge=0)
    """Sample among this many likeliest tokens; 0 is off."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample among the likeliest tokens that hold this much probability; 1 is off."""

    seed: int = Field(default=0, ge=0)
    """Seed of the sampling."""

    batch_size: int = Field(default=32, gt=0)
    """Conversations answered at a time."""


class DatasetConfig(Config):
    """How tensors are stored, and how much disk they may take."""

    codec: Literal["bf16", "fp16", "fp32", "fp8_e4m3", "int8"] = "bf16"
    """Storage format of hidden states; fp8_e4m3 and int8 carry one scale per token."""

    quota: str | None = None
    """Refuse to write a dataset larger than this, such as 20GB or 512MiB; none: no limit."""

    @field_validator("quota")
    @classmethod
    def check_quota(cls, quota: str | None) -> str | None:
        if quota is not None and parse_size(quota) <= 0:
            raise ValueError("accepted: a size above zero, such as 20GB or 512MiB, or none")
        return quota

    @property
    def quota_bytes(self) -> int | None:
        """The quota in bytes; None without one."""
        return None if self.quota is None else parse_size(self.quota)


def parse_size(text: str) -> int:
    """Bytes in a size: `20GB` counts in powers of 1000, `20GiB` in powers of 1024."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            "accepted: a number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), such as 20GB"
        )
    number, prefix, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** POWERS[prefix.upper()])


class ForwardConfig(Config):
    """How samples are grouped into forward passes."""

    tokens_per_batch: int = Field(default=4096, gt=0)
    """Tokens in one forward pass, padding included; a longer sample runs alone."""

    window: int = Field(default=512, gt=0)
    """Samples sorted by length at a time: more means less padding, and more held in memory."""


class CaptureConfig(Config):
    """Run prompts through the target and store its hidden states."""

    target: TargetConfig
    """The model whose hidden states are captured."""

    input: InputConfig
    """The rows to capture, and which of them are kept."""

    speculative_config: SaveHiddenStatesDecodingConfig
    """Where the dataset goes, and which layers it holds."""

    regenerate: RegenerateConfig | None = None
    """Let the target write the answers, so that the drafter learns its words; none: keep the
    answers of the input. Naming one of these settings turns it on."""

    dataset: DatasetConfig = DatasetConfig()
    """How tensors are stored, and how much disk they may take."""

    forward: ForwardConfig = ForwardConfig()
    """How samples are grouped into forward passes."""

    engine: Literal["local"] = "local"
    """What runs the target: local is this process."""


class CaptureVerifyConfig(Config):
    """Check a captured dataset: every hash, length and count."""

    dataset: str
    """Folder of the dataset."""

    target: TargetConfig | None = None
    """Also check that the dataset was captured from this very model."""
