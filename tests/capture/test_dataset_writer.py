"""Writing: equal input gives equal bytes, whatever interrupts it."""

import errno
import hashlib
import json
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dataset_samples import file_bytes, make_manifest, make_sample, make_samples, open_writer

from draftsmith.capture.dataset import CapturedDataset, DatasetError, count_samples
from draftsmith.capture.dataset import writer as writer_module

# Writes 13 samples, skipping finished ones, and dies as it is told.
CHILD = """
import os, sys
sys.path.insert(0, {tests!r})
from dataset_samples import make_samples, open_writer
from draftsmith.capture.dataset import writer as writer_module
directory, death = sys.argv[1:]
def die(*args): os.kill(os.getpid(), 9)
if death in ("write_rows", "add_shard"):
    original, calls = getattr(writer_module, death), []
    def second_time(*args):
        calls.append(args)
        die() if len(calls) == 2 else original(*args)
    setattr(writer_module, death, second_time)
with open_writer(directory) as writer:
    for number, sample in enumerate(make_samples(13)):
        if sample.key not in writer.written_keys:
            writer.write(sample)
        if death == "sample" and number == 7:
            writer._shard._file.flush()
            die()
"""


def run_child(directory: Path, death: str) -> int:
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", CHILD.format(tests=tests), str(directory), death]
    return subprocess.run(command, check=False).returncode


def write_all(directory: Path, count: int = 13) -> dict[str, bytes]:
    with open_writer(directory) as writer:
        for sample in make_samples(count):
            if sample.key not in writer.written_keys:
                writer.write(sample)
    return file_bytes(directory)


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    first, second = write_all(tmp_path / "a"), write_all(tmp_path / "b")
    assert first == second
    assert [name for name in first if name.endswith(".tar")] == [
        "data-r000-000005.tar",
        "data-r000-000010.tar",
        "data-r000-000013.tar",
    ]


def test_the_index_tells_the_truth(tmp_path: Path) -> None:
    files = write_all(tmp_path)
    index = json.loads(files["index.json"])
    assert index["wids_version"] == 1
    keys = [sample.key for sample in make_samples(13)]
    bounds = [(0, 5), (5, 10), (10, 13)]
    for entry, (start, end) in zip(index["shardlist"], bounds, strict=True):
        data = files[entry["url"]]
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
        assert (entry["filesize"], entry["nsamples"]) == (len(data), end - start)
        assert (entry["first_key"], entry["last_key"]) == (keys[start], keys[end - 1])
    assert count_samples(tmp_path) == (
        13,
        sum(sample.input_ids.numel() for sample in make_samples(13)),
        sum(int(sample.loss_mask.sum()) for sample in make_samples(13)),
    )


def test_a_shard_is_a_plain_tar_without_clocks(tmp_path: Path) -> None:
    write_all(tmp_path)
    with tarfile.open(tmp_path / "data-r000-000005.tar") as tar:
        members = tar.getmembers()
    assert [m.name for m in members[:2]] == [
        f"{make_samples(1)[0].key}.json",
        f"{make_samples(1)[0].key}.safetensors",
    ]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode, m.type) for m in members} == {
        (0, 0, 0, "", 0o644, tarfile.REGTYPE)
    }


@pytest.mark.parametrize("death", ["sample", "write_rows", "add_shard"])
def test_a_killed_run_continues_to_the_same_bytes(tmp_path: Path, death: str) -> None:
    straight = write_all(tmp_path / "straight")
    interrupted = tmp_path / "interrupted"
    assert run_child(interrupted, death) == -signal.SIGKILL
    survived = {path.name: path.stat().st_mtime_ns for path in interrupted.glob("*.tar")}
    assert survived
    if death == "sample":
        assert (interrupted / ".data-r000.tar.tmp").stat().st_size > 1000
    assert run_child(interrupted, "never") == 0
    assert file_bytes(interrupted) == straight
    assert not list(interrupted.glob(".*.tmp"))
    for name, changed in survived.items():
        assert (interrupted / name).stat().st_mtime_ns == changed, "finished work was done again"


def test_an_exception_drops_only_the_unfinished_shard(tmp_path: Path) -> None:
    def write_until_it_breaks() -> None:
        with open_writer(tmp_path) as writer:
            for sample in make_samples(8):
                writer.write(sample)
            raise RuntimeError("the target broke")

    with pytest.raises(RuntimeError, match="the target broke"):
        write_until_it_breaks()
    assert [path.name for path in tmp_path.glob("*.tar")] == ["data-r000-000005.tar"]
    assert not list(tmp_path.glob(".*.tmp"))


def test_resuming_touches_no_file_of_others(tmp_path: Path) -> None:
    others = [".data-r001.tar.tmp", ".other-r000.tar.tmp", "notes.tmp", ".data-r000.tar.tmp.bak"]
    for name in [*others, ".data-r000.tar.tmp", ".data-r000-000005.index.parquet.tmp"]:
        (tmp_path / name).write_text("mine")
    with open_writer(tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == set(others)
    assert all((tmp_path / name).read_text() == "mine" for name in others)


def test_a_foreign_file_with_a_shards_name_is_refused_and_kept(tmp_path: Path) -> None:
    foreign = tmp_path / "data-r000-000005.tar"
    foreign.write_bytes(b"not a tar" * 100)
    with pytest.raises(DatasetError, match=r"data-r000-000005\.tar.*tar header is damaged"):
        open_writer(tmp_path)
    assert foreign.read_bytes() == b"not a tar" * 100


def test_a_missing_and_a_cut_shard_are_named(tmp_path: Path) -> None:
    write_all(tmp_path)
    shard = tmp_path / "data-r000-000010.tar"
    data = shard.read_bytes()
    shard.write_bytes(data[:-2000])
    last = make_samples(10)[9].key
    with pytest.raises(DatasetError, match=rf"000010\.tar: has {len(data) - 2000} bytes.*{last}"):
        open_writer(tmp_path)
    shard.unlink()
    with pytest.raises(DatasetError, match=r"000010\.tar: no such file"):
        open_writer(tmp_path)


def test_two_ranks_share_one_index(tmp_path: Path) -> None:
    samples = make_samples(12)
    writers = [open_writer(tmp_path, rank=rank) for rank in (1, 0)]
    for number, sample in enumerate(samples):
        writers[number % 2].write(sample)
    for writer in writers:
        writer.close()
    make_manifest(tmp_path).write(tmp_path)
    dataset = CapturedDataset(tmp_path)
    assert [entry.url for entry in dataset.shards] == [
        "data-r000-000005.tar",
        "data-r000-000006.tar",
        "data-r001-000005.tar",
        "data-r001-000006.tar",
    ]
    assert dataset.keys == [sample.key for sample in samples[1::2] + samples[::2]]


def test_a_second_writer_of_the_same_rank_waits_outside(tmp_path: Path) -> None:
    with (
        open_writer(tmp_path),
        pytest.raises(DatasetError, match="another writer of data-r000 is at work"),
    ):
        open_writer(tmp_path)
    open_writer(tmp_path).close()


def test_a_refused_sample_leaves_the_writer_usable(tmp_path: Path) -> None:
    samples = make_samples(5)
    bad = make_sample(99)
    bad.hidden_states[3, 7] = float("nan")
    with open_writer(tmp_path) as writer:
        for sample in samples[:3]:
            writer.write(sample)
        with pytest.raises(DatasetError, match=rf"sample {bad.key}: hidden_states of layer -1"):
            writer.write(bad)
        with pytest.raises(DatasetError, match=f"sample {samples[0].key} is written already"):
            writer.write(samples[0])
        for sample in samples[3:]:
            writer.write(sample)
    assert writer.written_keys == {sample.key for sample in samples}
    assert file_bytes(tmp_path) == write_all(tmp_path / "clean", count=5)


def test_fp16_overflow_names_sample_and_layer(tmp_path: Path) -> None:
    sample = make_sample(1)
    sample.aux_hidden_states[2, 2 * 32] = 70000.0
    with (
        open_writer(tmp_path, codec="fp16") as writer,
        pytest.raises(DatasetError, match=rf"sample {sample.key}: aux_hidden_states of layer 3 "),
    ):
        writer.write(sample)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_mask": torch.ones(7, dtype=torch.uint8)}, r"loss_mask has shape \[7\].*\[8\]"),
        ({"loss_mask": torch.full((8,), 2, dtype=torch.uint8)}, "loss_mask holds 2"),
        ({"input_ids": torch.zeros(8, dtype=torch.int64)}, "input_ids has dtype torch.int64"),
        ({"input_ids": torch.zeros(0, dtype=torch.int32)}, r"input_ids has shape \[0\]"),
        ({"hidden_states": torch.zeros(8, 31)}, r"hidden_states has shape \[8, 31\]"),
        ({"aux_hidden_states": torch.zeros(8, 64)}, r"aux_hidden_states .*\[8, 64\].*\[8, 96\]"),
        ({"aux_hidden_states": None}, "aux_hidden_states is absent"),
        ({"meta": {"codec": "mine"}}, "meta has codec"),
        ({"meta": {"x": float("nan")}}, "meta is not JSON"),
        ({"key": "../x"}, r"key '\.\./x' is not"),
        ({"key": "a.b"}, r"key 'a\.b' is not"),
    ],
)
def test_a_sample_that_does_not_line_up_is_refused(
    tmp_path: Path, changes: dict, message: str
) -> None:
    with open_writer(tmp_path) as writer, pytest.raises(DatasetError, match=message):
        writer.write(replace(make_sample(0), **changes))
    assert not list(tmp_path.glob("*.tar"))


def test_another_codec_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    write_all(tmp_path)
    make_manifest(tmp_path, complete=False).write(tmp_path)
    with pytest.raises(DatasetError, match=r"begun with codec=bf16, now codec=int8"):
        open_writer(tmp_path, codec="int8")


@pytest.mark.parametrize("failing_write", [1, 11, 21])
def test_a_full_disk_leaves_finished_shards_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_write: int
) -> None:
    straight = write_all(tmp_path / "straight")
    directory = tmp_path / "full"
    calls = []
    original = writer_module.OpenShard._write

    def write(self: object, data: bytes) -> None:
        calls.append(len(data))
        if len(calls) == 60 + failing_write:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, data)

    monkeypatch.setattr(writer_module.OpenShard, "_write", write)
    with pytest.raises(OSError, match=r"No space left.* MB free.*data-r000") as caught:
        write_all(directory)
    assert caught.value.errno == errno.ENOSPC
    assert not list(directory.glob(".*.tmp"))
    assert (directory / "data-r000-000005.tar").read_bytes() == straight["data-r000-000005.tar"]
    monkeypatch.undo()
    assert write_all(directory) == straight


def test_a_quota_of_the_operating_system_is_met_the_same_way(tmp_path: Path) -> None:
    script = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from dataset_samples import make_sample, open_writer
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
with open_writer(sys.argv[1]) as writer:
    for row in range(5):
        writer.write(make_sample(row, length=4))
    for row in range(5, 10):
        writer.write(make_sample(row, length=900))
"""
    command = [sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parents[1])]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "File too large" in result.stderr
    assert "MB free" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".index.lock",
        "data-r000-000005.index.parquet",
        "data-r000-000005.tar",
        "index.json",
    ]
