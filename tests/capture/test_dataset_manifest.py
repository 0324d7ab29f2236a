"""The manifest is read whole or refused by name."""

import json
from pathlib import Path

import pytest
from dataset_samples import make_manifest
from pydantic import ValidationError

from draftsmith.capture.dataset import CONVENTIONS, Counts, DatasetError, Manifest


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest = make_manifest(
        layer_ids=[0, 2, -1],
        counts=Counts(samples=3, tokens=40, supervised_tokens=9, dropped={"too long": 2}),
        proof={"max_logit_error": 1e-6},
        generation={"temperature": 0.7},
        complete=False,
    )
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    raw = json.loads((tmp_path / "manifest.json").read_text())
    assert raw["conventions"] == CONVENTIONS
    assert raw["schema_version"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def write_raw(directory: Path, **changes: object) -> None:
    raw = make_manifest().model_dump(mode="json") | changes
    kept = {name: value for name, value in raw.items() if value is not ...}
    (directory / "manifest.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema_version=2, accepted: 1"),
        ({"schema_version": ...}, "schema_version=None, accepted: 1"),
        ({"conventions": ...}, "conventions=None, accepted: an object with layer_ids"),
        ({"conventions": {}}, r"conventions\.aux_hidden_states=None, accepted: 'the layers"),
        ({"conventions": CONVENTIONS | {"rows": "shifted"}}, r"conventions\.rows='shifted'"),
        ({"conventions": CONVENTIONS | {"extra": "x"}}, r"conventions\.extra='x', accepted: None"),
        ({"target": ...}, "target: Field required"),
        ({"hidden_size": "wide"}, "hidden_size='wide'"),
        ({"hidden_size": 33}, r"hidden_size=33 differs from target\.hidden_size=32"),
        ({"codec": "zip"}, "codec='zip' is unknown"),
        ({"layer_ids": [0, 4]}, r"layer_ids=\[0, 4\]: the target has 4 layers"),
        ({"layer_ids": [-2]}, r"layer_ids=\[-2\] is refused"),
        ({"layer_ids": [1, 0]}, r"layer_ids=\[1, 0\] is refused"),
        ({"layer_ids": [-1, 0]}, r"layer_ids=\[-1, 0\] is refused"),
        ({"layer_ids": [1, 1]}, r"layer_ids=\[1, 1\] is refused"),
        ({"layer_ids": []}, r"layer_ids=\[\] is refused"),
        ({"colour": "blue"}, "colour='blue': Extra inputs"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict, message: str
) -> None:
    write_raw(tmp_path, **changes)
    with pytest.raises(DatasetError, match=rf"{tmp_path}/manifest\.json: .*{message}"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "not JSON"), (b"[]", "holds list"), (b"\xff\xfe", "not JSON"), (b"[" * 99999, "JSON")],
)
def test_an_unparsable_manifest_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(DatasetError, match=rf"manifest\.json: .*{message}"):
        Manifest.read(tmp_path)


def test_a_folder_without_a_manifest_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"manifest\.json: no such file"):
        Manifest.read(tmp_path)


def test_making_a_manifest_checks_it_too() -> None:
    with pytest.raises(ValidationError, match="codec='zip'"):
        make_manifest(codec="zip")
