"""Reading back: the values that were written, in any order, and nothing that was tampered with."""

import io
import json
import pickle
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from dataset_samples import (
    HIDDEN,
    make_manifest,
    make_sample,
    make_samples,
    open_writer,
    write_dataset,
)

from draftsmith.capture.dataset import CapturedDataset, DatasetError, Sample
from draftsmith.capture.dataset.archive import build_member_header, walk_members
from draftsmith.capture.dataset.codec import CODECS
from draftsmith.capture.dataset.tensors import view_tensors


def assert_same(found: Sample, written: Sample, codec: str) -> None:
    assert found.key == written.key
    assert found.meta == written.meta
    assert torch.equal(found.input_ids, written.input_ids)
    assert torch.equal(found.loss_mask, written.loss_mask)
    for name, layer_ids in (("hidden_states", [-1]), ("aux_hidden_states", [0, 1, 3])):
        states = getattr(written, name)
        # What was stored is what the codec made of it, to the last bit.
        kept = CODECS[codec].decode(name, CODECS[codec].encode(name, states, layer_ids=layer_ids))
        assert getattr(found, name).dtype == kept.dtype
        assert torch.equal(getattr(found, name), kept)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_read_is_what_was_written(tmp_path: Path, codec: str) -> None:
    samples = make_samples(12)
    dataset = CapturedDataset(write_dataset(tmp_path, samples, codec))
    assert len(dataset) == 12
    assert dataset.keys == [sample.key for sample in samples]
    assert dataset.lengths == [sample.input_ids.numel() for sample in samples]
    assert dataset.num_supervised == [int(sample.loss_mask.sum()) for sample in samples]
    for i in (11, 0, 7, 7, 3, 10):
        assert_same(dataset[i], samples[i], codec)
    assert torch.equal(dataset[-1].input_ids, samples[-1].input_ids)
    with pytest.raises(IndexError):
        dataset[12]
    dataset.verify_hashes()


def test_bf16_is_bit_exact_and_read_in_place(tmp_path: Path) -> None:
    sample = make_sample(3, length=40)
    dataset = CapturedDataset(write_dataset(tmp_path, [sample]))
    before = (tmp_path / "data-r000-000001.tar").read_bytes()
    found = dataset[0]
    assert torch.equal(
        found.hidden_states.view(torch.int16), sample.hidden_states.view(torch.int16)
    )
    assert found.hidden_states.data_ptr() == dataset[0].hidden_states.data_ptr()
    # A private mapping: a careless write does not reach the file.
    found.hidden_states.zero_()
    assert (tmp_path / "data-r000-000001.tar").read_bytes() == before
    dataset.verify_hashes()


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_features_come_in_the_drafters_order(tmp_path: Path, codec: str) -> None:
    samples = make_samples(6)
    dataset = CapturedDataset(write_dataset(tmp_path, samples, codec))
    whole = dataset[5]
    layers = dict(zip([0, 1, 3], whole.aux_hidden_states.split(HIDDEN, dim=1), strict=True))
    expected = torch.cat([layers[3], whole.hidden_states, layers[0], layers[3]], dim=1)
    assert torch.equal(dataset.features(5, [3, -1, 0, 3]), expected)


def test_a_layer_that_was_not_captured_is_named(tmp_path: Path) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path, make_samples(2)))
    with pytest.raises(DatasetError, match=r"layer 2 was not captured, available: -1, 0, 1, 3"):
        dataset.features(0, [0, 2])
    with pytest.raises(DatasetError, match="none given"):
        dataset.features(0, [])


@pytest.mark.parametrize(("layer_ids", "num_aux"), [([-1], 0), ([1, -1], 2)])
def test_the_final_state_alone_and_listed(
    tmp_path: Path, layer_ids: list[int], num_aux: int
) -> None:
    sample = make_sample(0, num_aux=num_aux)
    with open_writer(tmp_path, layer_ids=layer_ids) as writer:
        writer.write(sample)
    make_manifest(tmp_path, layer_ids=layer_ids).write(tmp_path)
    dataset = CapturedDataset(tmp_path)
    assert (dataset[0].aux_hidden_states is None) == (num_aux == 0)
    assert torch.equal(dataset.features(0, [-1]), sample.hidden_states)


def test_an_unfinished_capture_is_refused_unless_asked_for(tmp_path: Path) -> None:
    write_dataset(tmp_path, make_samples(3))
    make_manifest(complete=False).write(tmp_path)
    with pytest.raises(DatasetError, match="complete=false"):
        CapturedDataset(tmp_path)
    assert len(CapturedDataset(tmp_path, allow_incomplete=True)) == 3


def test_counts_that_do_not_fit_the_shards_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, make_samples(3))
    make_manifest().write(tmp_path)
    with pytest.raises(DatasetError, match=r"counts\.samples=0, the shards hold 3"):
        CapturedDataset(tmp_path)


def test_a_dataset_travels_to_worker_processes(tmp_path: Path) -> None:
    samples = make_samples(7)
    dataset = CapturedDataset(write_dataset(tmp_path, samples))
    assert_same(dataset[6], samples[6], "bf16")
    assert_same(pickle.loads(pickle.dumps(dataset))[6], samples[6], "bf16")
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    for found, written in zip(loader, samples, strict=True):
        assert_same(found, written, "bf16")


def test_ten_bytes_cut_from_a_shard(tmp_path: Path) -> None:
    samples = make_samples(7)
    shard = write_dataset(tmp_path, samples) / "data-r000-000005.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(DatasetError, match=rf"{shard}: has .* after {samples[4].key}"):
        CapturedDataset(tmp_path)
    shard.write_bytes(whole[: len(whole) // 2 - 10])
    with pytest.raises(
        DatasetError, match=rf"{shard}: .*not whole is ({samples[2].key}|{samples[3].key})"
    ):
        CapturedDataset(tmp_path)
    # Ten bytes out of the middle, made up at the end: the sizes fit, the members do not.
    shard.write_bytes(whole[:700] + whole[710:] + bytes(10))
    with pytest.raises(DatasetError, match=rf"{shard}: sample {samples[0].key}"):
        CapturedDataset(tmp_path)[0]


@pytest.mark.parametrize("place", ["json", "input_ids", "states", "header"])
def test_one_flipped_bit_names_file_and_sample(tmp_path: Path, place: str) -> None:
    samples = make_samples(7)
    shard = write_dataset(tmp_path, samples) / "data-r000-000005.tar"
    meta, states = [m for m in walk_members(shard) if m.key == samples[2].key]
    position = {
        "json": meta.offset + 30,
        "input_ids": states.offset + states.size - 1,
        "states": states.offset + states.size // 2,
        "header": states.offset - 512 + 130,
    }[place]
    data = bytearray(shard.read_bytes())
    data[position] ^= 4
    shard.write_bytes(data)
    dataset = CapturedDataset(tmp_path)
    with pytest.raises(DatasetError, match=rf"{shard}: sample {samples[2].key}: "):
        dataset[2]
    with pytest.raises(
        DatasetError, match=rf"{shard}: its sha256 changed: sample {samples[2].key}"
    ):
        dataset.verify_hashes()
    assert_same(dataset[3], samples[3], "bf16")


def test_damage_between_members_is_found_by_the_hash(tmp_path: Path) -> None:
    shard = write_dataset(tmp_path, make_samples(2)) / "data-r000-000002.tar"
    data = bytearray(shard.read_bytes())
    data[-700] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match="sha256 changed"):
        CapturedDataset(tmp_path).verify_hashes()


def with_member(shard: Path, name: str, **attributes: object) -> None:
    """Puts one more member at the end of a shard, as a hostile packer would."""
    info = tarfile.TarInfo(name)
    for field, value in attributes.items():
        setattr(info, field, value)
    payload = b"{}" if info.isreg() else b""
    info.size = len(payload)
    with tarfile.open(shard, "a") as tar:
        tar.addfile(info, io.BytesIO(payload))


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("../x.json", {}),
        ("/etc/x.json", {}),
        ("x.pkl", {}),
        ("link.json", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("hard.json", {"type": tarfile.LNKTYPE, "linkname": "x.json"}),
        ("pipe.json", {"type": tarfile.FIFOTYPE}),
    ],
)
def test_members_that_no_writer_of_ours_makes_are_refused(
    tmp_path: Path, name: str, attributes: dict
) -> None:
    samples = make_samples(2)
    shard = write_dataset(tmp_path, samples) / "data-r000-000002.tar"
    with_member(shard, name, **attributes)
    message = rf"{shard}: after sample {samples[1].key}: member '{name}' .* is refused"
    with pytest.raises(DatasetError, match=message):
        list(walk_members(shard))


def edit_rows(directory: Path, **columns: object) -> None:
    """Rewrites values of the first row of the first shard's rows file."""
    path = directory / "data-r000-000002.index.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0] |= columns
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)


def test_an_index_that_points_at_a_link_is_refused(tmp_path: Path) -> None:
    shard = write_dataset(tmp_path, make_samples(2)) / "data-r000-000002.tar"
    info = tarfile.TarInfo(f"{make_samples(1)[0].key}.json")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    data = info.tobuf(tarfile.USTAR_FORMAT) + shard.read_bytes()[512:]
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match=r"\.json' \(tar type '2'\) is refused"):
        CapturedDataset(tmp_path)[0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"json_offset": 0}, "puts its json at byte 0"),
        ({"safetensors_size": 1 << 40}, "outside data-r000-000002.tar"),
        ({"safetensors_offset": -512}, "puts its safetensors at byte -512"),
        ({"safetensors_offset": 1024}, "is refused|tar header is damaged|where the index has"),
        ({"json_size": 7}, "where the index has .* of 7"),
        ({"key": "other"}, "runs from sample other"),
        ({"length": 9}, r"tensor \w+ is .* accepted: .*\(9"),
    ],
)
def test_an_index_that_does_not_fit_its_shard_is_refused(
    tmp_path: Path, columns: dict, message: str
) -> None:
    write_dataset(tmp_path, [make_sample(0), make_sample(1)])
    make_manifest(tmp_path, complete=False).write(tmp_path)
    edit_rows(tmp_path, **columns)
    with pytest.raises(DatasetError, match=message):
        CapturedDataset(tmp_path, allow_incomplete=True)[0]


@pytest.mark.parametrize(
    "url", ["http://example.com/a.tar", "pipe:cat x", "../data-r000-000002.tar", "/a.tar", "a.tar"]
)
def test_a_shard_url_of_another_kind_is_refused(tmp_path: Path, url: str) -> None:
    write_dataset(tmp_path, make_samples(2))
    path = tmp_path / "index.json"
    path.write_text(path.read_text().replace('"data-r000-000002.tar"', json.dumps(url)))
    with pytest.raises(
        DatasetError,
        match=rf"index\.json: shardlist\.0\.url.*{re.escape(url)}.*accepted: a file name",
    ):
        CapturedDataset(tmp_path)


def test_a_key_in_two_shards_is_refused(tmp_path: Path) -> None:
    sample = make_sample(0)
    for rank in (0, 1):
        with open_writer(tmp_path / str(rank), rank=rank) as writer:
            writer.write(sample)
    shards = []
    for rank in (0, 1):
        for path in (tmp_path / str(rank)).glob("data-*"):
            path.rename(tmp_path / path.name)
        shards += json.loads((tmp_path / str(rank) / "index.json").read_text())["shardlist"]
    index = {"wids_version": 1, "name": "data", "shardlist": shards}
    (tmp_path / "index.json").write_text(json.dumps(index))
    make_manifest(tmp_path).write(tmp_path)
    with pytest.raises(DatasetError, match=rf"sample {sample.key} is in .*r000.* and in .*r001"):
        CapturedDataset(tmp_path)


def member(header: object, data: bytes = b"", claimed: int | None = None) -> bytearray:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if claimed is None else claimed
    return bytearray(length.to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (member({}, claimed=10_000_000_000), "claims 10000000000 bytes, accepted: 1 to 2"),
        (member({}, claimed=2**64 - 1), "claims 18446744073709551615 bytes"),
        (member(b" " * (2 << 20)), "claims 2097152 bytes, accepted: 1 to 1048576"),
        (bytearray(b"abc"), "claims 0 bytes"),
        (member(b"[" * 100_000), "does not parse"),
        (member([1]), "not a JSON object"),
        (member({"a": 3}), "no data_offsets"),
        (member({"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1e400]}}), "data_offsets"),
        (member({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "'F64'"),
        (member({"a": {"dtype": "I8", "shape": [0, 2**70], "data_offsets": [0, 0]}}), "has shape"),
        (member({"a": {"dtype": "I8", "shape": [9], "data_offsets": [0, 9]}}, bytes(8)), "0 to 9"),
        (
            member({"a": {"dtype": "I8", "shape": [8], "data_offsets": [0, 4]}}, bytes(8)),
            "its size",
        ),
        (member({"a": {"dtype": "I8", "shape": [4], "data_offsets": [4, 8]}}, bytes(8)), "gaps"),
        (member({"a": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}}, bytes(8)), "4 bytes"),
        (
            member(
                {
                    "a": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]},
                    "b": {"dtype": "I8", "shape": [4], "data_offsets": [4, 8]},
                },
                bytes(8),
            ),
            "without gaps",
        ),
    ],
)
def test_a_hostile_safetensors_header_is_refused(buffer: bytearray, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        view_tensors(buffer, 0, len(buffer))


def test_a_hostile_header_inside_a_shard_names_file_and_sample(tmp_path: Path) -> None:
    sample = make_sample(0)
    shard = write_dataset(tmp_path, [sample]) / "data-r000-000001.tar"
    states = list(walk_members(shard))[1]
    data = bytearray(shard.read_bytes())
    data[states.offset : states.offset + 8] = (10_000_000_000).to_bytes(8, "little")
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"{shard}: sample {sample.key}: .*10000000000 bytes"):
        CapturedDataset(tmp_path, check_samples=False)[0]


def test_a_10_gb_member_is_refused_before_it_is_read(tmp_path: Path) -> None:
    shard = tmp_path / "data-r000-000001.tar"
    shard.write_bytes(build_member_header("a.json", 8_000_000_000) + bytes(1024))
    with pytest.raises(DatasetError, match=r"sample a: member a.json claims 8000000000 bytes"):
        list(walk_members(shard))
    with pytest.raises(DatasetError, match="sample a: "):
        open_writer(tmp_path)


def test_equal_samples_under_other_names_are_other_samples(tmp_path: Path) -> None:
    sample = make_sample(0)
    dataset = CapturedDataset(write_dataset(tmp_path, [sample, replace(sample, key="other")]))
    assert dataset.keys == [sample.key, "other"]
    assert torch.equal(dataset[1].hidden_states, sample.hidden_states)
