"""The bytes foretold are the bytes written."""

from pathlib import Path

import pytest
from dataset_samples import file_bytes, make_manifest, make_sample, open_writer

from draftsmith.capture.dataset import estimate_bytes
from draftsmith.capture.dataset.codec import CODECS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("lengths", "hidden", "num_aux", "write_interval"),
    [
        ([8] * 10, 32, 3, 20),
        ([8] * 10, 32, 0, 20),
        ([1, 700, 40, 333], 576, 3, 2),
        ([300] * 3, 64, 1, 1),
    ],
)
def test_the_estimate_is_within_a_tenth(
    tmp_path: Path, codec: str, lengths: list[int], hidden: int, num_aux: int, write_interval: int
) -> None:
    settings = {"hidden_size": hidden, "codec": codec, "write_interval": write_interval}
    with open_writer(tmp_path, layer_ids=list(range(num_aux)) or [-1], **settings) as writer:
        for row, length in enumerate(lengths):
            writer.write(make_sample(row, length, hidden, num_aux))
    written = sum(map(len, file_bytes(tmp_path).values()))
    estimate = estimate_bytes(lengths, hidden, num_aux, codec, write_interval)
    assert estimate == pytest.approx(written, rel=0.1)
    assert estimate >= written * 0.99, "too low an estimate fills a disk"


def test_ten_small_samples_by_hand(tmp_path: Path) -> None:
    with open_writer(tmp_path, write_interval=20) as writer:
        for row in range(10):
            writer.write(make_sample(row, length=8))
    make_manifest(tmp_path).write(tmp_path)
    tar_bytes = (tmp_path / "data-r000-000010.tar").stat().st_size
    states = 8 * (4 * 32 * 2 + 4 + 1)
    # Two tar headers, one block of json, the tensors behind their header padded to blocks.
    assert tar_bytes == 10 * (512 + 512 + 512 + -(-(states + 8 + 296) // 512) * 512) + 1024
