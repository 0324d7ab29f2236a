"""The captured dataset: sharded samples of a target's hidden states, written and read back."""

from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.estimate import estimate_bytes
from draftsmith.capture.dataset.manifest import CONVENTIONS, Counts, Manifest, TargetRecord
from draftsmith.capture.dataset.members import decode_sample
from draftsmith.capture.dataset.reader import CapturedDataset
from draftsmith.capture.dataset.rows import count_samples
from draftsmith.capture.dataset.sample import Sample, sample_key
from draftsmith.capture.dataset.writer import ShardWriter

__all__ = [
    "CONVENTIONS",
    "CapturedDataset",
    "Counts",
    "DatasetError",
    "Manifest",
    "Sample",
    "ShardWriter",
    "TargetRecord",
    "count_samples",
    "decode_sample",
    "estimate_bytes",
    "sample_key",
]
