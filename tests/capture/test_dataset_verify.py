"""`capture verify`: its figures, and what it finds."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from dataset_samples import make_manifest, make_sample, make_samples, open_writer, write_dataset

from draftsmith.capture.dataset import DatasetError, Sample
from draftsmith.capture.dataset.archive import walk_members
from draftsmith.capture.dataset.verify import run


def verify(directory: Path, target: object = None) -> None:
    run(SimpleNamespace(dataset=str(directory), target=target))


def test_the_table_shows_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = make_samples(7)
    write_dataset(tmp_path, samples)
    verify(tmp_path)
    table = dict(
        re.split(r" {2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines()
    )
    tokens = sum(sample.input_ids.numel() for sample in samples)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    assert table["samples"] == "7 (dropped: none)"
    assert table["tokens"] == f"{tokens}, {size / tokens:.1f} bytes each"
    assert table["dtype, codec"] == "bfloat16, bf16"
    for layer_id, block in ((0, 0), (1, 1), (3, 2)):
        states = torch.cat([s.aux_hidden_states[:, block * 32 : block * 32 + 32] for s in samples])
        rms = float(states.double().square().mean().sqrt())
        assert float(table[f"rms, layer {layer_id}"]) == pytest.approx(rms, rel=1e-3)


def test_a_flipped_bit_is_reported_with_its_sample(tmp_path: Path) -> None:
    samples = make_samples(7)
    shard = write_dataset(tmp_path, samples) / "data-r000-000005.tar"
    member = [m for m in walk_members(shard) if m.key == samples[3].key][1]
    data = bytearray(shard.read_bytes())
    data[member.offset + member.size - 40] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"{shard}: sample {samples[3].key}: its bytes changed"):
        verify(tmp_path)


def test_an_id_outside_the_vocabulary_is_reported(tmp_path: Path) -> None:
    sample = make_sample(0)
    sample.input_ids[2] = 97
    write_dataset(tmp_path, [sample])
    with pytest.raises(DatasetError, match=rf"sample {sample.key}: input_ids leave 0 to 96"):
        verify(tmp_path)


def test_values_no_codec_would_have_let_in_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample: Sample = make_sample(0)
    sample.aux_hidden_states[5, 40] = float("inf")
    with monkeypatch.context() as patch:
        patch.setattr("draftsmith.capture.dataset.codec.Codec._refuse_unstorable", lambda *_: None)
        write_dataset(tmp_path, [sample])
    with pytest.raises(
        DatasetError, match=rf"{sample.key}: layer 1 holds NaN or infinity at row 5"
    ):
        verify(tmp_path)


def test_an_unfinished_capture_is_reported(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.write(make_sample(0))
    make_manifest(complete=False).write(tmp_path)
    with pytest.raises(DatasetError, match=r"1 problems:\nmanifest\.json: complete=false"):
        verify(tmp_path)


def test_another_target_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path, make_samples(2))
    module = ModuleType("draftsmith.infer.target")
    module.load_target = lambda config: SimpleNamespace(fingerprint=config)
    monkeypatch.setitem(sys.modules, "draftsmith.infer.target", module)
    verify(tmp_path, target="f00d")
    with pytest.raises(DatasetError, match=r"target\.fingerprint=f00d, the target given has beef"):
        verify(tmp_path, target="beef")
