"""The shards are plain WebDataset: other people's readers give the same values."""

import warnings
from pathlib import Path

import datasets
import pytest
import safetensors.torch
import torch
import webdataset
from dataset_samples import make_samples, write_dataset

from draftsmith.capture.dataset import CapturedDataset, DatasetError, decode_sample, sample_key
from draftsmith.capture.dataset.codec import CODECS


def assert_same(decoded: dict, dataset: CapturedDataset, i: int) -> None:
    sample = dataset[i]
    assert decoded["__key__"] == sample.key
    assert decoded["json"]["id"] == sample.meta["id"]
    assert decoded["json"]["length"] == sample.input_ids.numel()
    for name in ("input_ids", "loss_mask", "hidden_states", "aux_hidden_states"):
        assert decoded[name].dtype == getattr(sample, name).dtype
        assert torch.equal(decoded[name], getattr(sample, name))


@pytest.mark.parametrize("codec", CODECS)
def test_plain_webdataset(tmp_path: Path, codec: str) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path, make_samples(12), codec))
    urls = [str(tmp_path / entry.url) for entry in dataset.shards]
    stream = webdataset.WebDataset(urls, shardshuffle=False).map(decode_sample)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not writable.*")
        rows = list(stream)
    assert len(rows) == 12
    for i, row in enumerate(rows):
        assert_same(row, dataset, i)
        row["hidden_states"].zero_()


def test_plain_webdataset_that_decodes_json_itself(tmp_path: Path) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path, make_samples(3)))
    url = str(tmp_path / dataset.shards[0].url)
    stream = webdataset.WebDataset(url, shardshuffle=False).decode().map(decode_sample)
    for i, row in enumerate(stream):
        assert_same(row, dataset, i)


@pytest.mark.parametrize("streaming", [True, False])
def test_hugging_face_datasets(tmp_path: Path, streaming: bool) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path / "data", make_samples(12), "fp8_e4m3"))
    rows = datasets.load_dataset(
        "webdataset",
        data_files=[str(dataset.directory / entry.url) for entry in dataset.shards],
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "cache"),
    )
    decoded = [decode_sample(row) for row in rows]
    assert len(decoded) == 12
    for i, row in enumerate(decoded):
        assert_same(row, dataset, i)


def test_the_safetensors_library_reads_a_member(tmp_path: Path) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path, make_samples(2)))
    url = str(tmp_path / dataset.shards[0].url)
    for i, row in enumerate(webdataset.WebDataset(url, shardshuffle=False)):
        tensors = safetensors.torch.load(row["safetensors"])
        assert torch.equal(tensors["hidden_states"], dataset[i].hidden_states)
        assert torch.equal(tensors["input_ids"], dataset[i].input_ids)
        assert set(tensors) == {"input_ids", "loss_mask", "hidden_states", "aux_hidden_states"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"__key__": "../x"}, r"key '\.\./x' is not"),
        ({"safetensors": None}, r"sample \w+: its \.safetensors member is missing"),
        ({"json": b"{}"}, "its json lacks one of length"),
        ({"json": b"{"}, "its json does not parse"),
        ({"safetensors": (10**10).to_bytes(8, "little") + b"{}"}, "claims 10000000000 bytes"),
    ],
)
def test_a_bad_member_of_a_stream_is_refused(tmp_path: Path, changes: dict, message: str) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path, make_samples(1)))
    url = str(tmp_path / dataset.shards[0].url)
    row = next(iter(webdataset.WebDataset(url, shardshuffle=False)))
    with pytest.raises(DatasetError, match=message):
        decode_sample(row | changes)


def test_a_key_is_stable_and_tells_everything_apart() -> None:
    key = sample_key("a.jsonl", 3, [1, 2, 3])
    assert key == "1b35f9b541539f8ebbc311f7a16f6ad5"
    assert sample_key("a.jsonl", 3, torch.tensor([1, 2, 3])) == key
    others = [("b.jsonl", 3, [1, 2, 3]), ("a.jsonl", 4, [1, 2, 3]), ("a.jsonl", 3, [1, 2])]
    assert len({key, *(sample_key(*other) for other in others)}) == 4
