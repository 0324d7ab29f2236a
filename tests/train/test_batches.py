"""Which samples are used, in which order, in which batches; and the draft vocabulary."""

from pathlib import Path

import pytest
import torch
from dataset_samples import LAYER_IDS, make_samples, write_dataset
from tiny import tiny_target
from toy_training import capture_toy

from draftsmith.capture.dataset import CapturedDataset
from draftsmith.configs.train import Eagle3Config
from draftsmith.train.batches import Batches, Position, plan_epoch, plan_measurement
from draftsmith.train.drafter import build_drafter
from draftsmith.train.samples import SampleSet, split_samples
from draftsmith.train.vocabulary import build_draft_vocabulary

LENGTHS = [1 + (7 * i) % 53 for i in range(301)]


@pytest.fixture
def samples(tmp_path: Path) -> SampleSet:
    dataset = CapturedDataset(write_dataset(tmp_path / "data", make_samples(23)))
    return split_samples(dataset, 1e-9, 64).train


def test_a_plan_holds_every_sample_once_within_the_budget() -> None:
    plan = plan_epoch(LENGTHS, 128, seed=3, epoch=1)
    assert sorted(place for batch in plan for place in batch) == list(range(301))
    padded = [max(LENGTHS[place] for place in batch) * len(batch) for batch in plan]
    assert max(padded) <= 128
    assert sum(padded) < 1.15 * sum(LENGTHS)
    assert plan == plan_epoch(LENGTHS, 128, seed=3, epoch=1)
    assert plan != plan_epoch(LENGTHS, 128, seed=3, epoch=2)
    assert plan != plan_epoch(LENGTHS, 128, seed=4, epoch=1)
    measured = plan_measurement(LENGTHS, 128)
    assert sorted(place for batch in measured for place in batch) == list(range(301))


def test_a_batch_pads_on_the_right(samples: SampleSet) -> None:
    dataset = samples.dataset
    batch = samples.collate([4, 7], [3, 0, 3])
    for row, place in enumerate([4, 7]):
        number, length = samples.numbers[place], samples.lengths[place]
        sample = dataset[number]
        assert batch.keys[row] == sample.key
        assert batch.input_ids[row, :length].tolist() == sample.input_ids.tolist()
        assert batch.loss_mask[row, :length].tolist() == sample.loss_mask.bool().tolist()
        assert torch.equal(batch.hidden_states[row, :length], sample.hidden_states)
        assert torch.equal(batch.features[row, :length], dataset.features(number, [3, 0, 3]))
        for tensor in (batch.input_ids, batch.loss_mask, batch.features, batch.hidden_states):
            assert not tensor[row, length:].any()
    in_place = samples.collate([4, 7], LAYER_IDS)
    assert torch.equal(in_place.features[1, :, :32], batch.features[1, :, 32:64])


def test_samples_are_cut_before_they_are_counted(tmp_path: Path) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path / "data", make_samples(23)))
    split = split_samples(dataset, 1e-9, 6)
    # Supervision begins at half of a sample: within 6 tokens for lengths of 3 to 9.
    kept = [length for length in dataset.lengths if 3 <= length <= 9]
    assert len(split.train) == len(kept)
    assert max(split.train.lengths) == 6
    assert split.num_unsupervised == 23 - len(kept)


def test_the_held_out_part_is_the_same_in_every_run(tmp_path: Path) -> None:
    dataset = CapturedDataset(write_dataset(tmp_path / "data", make_samples(60)))
    small, large = (split_samples(dataset, fraction, 64) for fraction in (0.1, 0.3))
    assert 0 < len(small.heldout) < len(large.heldout)
    assert set(small.heldout.numbers) < set(large.heldout.numbers)
    assert not set(large.heldout.numbers) & set(large.train.numbers)


def collect(samples: SampleSet, position: Position, num_steps: int, **options) -> list:
    steps = Batches(samples, LAYER_IDS, tokens=40, seed=0, **options).steps(position)
    return [next(steps) for _ in range(num_steps)]


def keys_of(steps: list) -> list[tuple[str, ...]]:
    return [batch.keys for step in steps for batch in step.micro_batches if batch is not None]


def test_a_position_continues_in_mid_epoch(samples: SampleSet) -> None:
    whole = collect(samples, Position(), 12, accumulation=2)
    assert whole[-1].following.epoch >= 2
    for stop in (3, 7):
        rest = collect(samples, whole[stop - 1].following, 12 - stop, accumulation=2)
        assert keys_of(whole[stop:]) == keys_of(rest)


def test_processes_share_a_step_and_make_as_many_passes(samples: SampleSet) -> None:
    alone = Batches(samples, LAYER_IDS, tokens=40, seed=0, accumulation=4)
    num_steps = alone.steps_in_epoch(0)
    expected = collect(samples, Position(), num_steps, accumulation=4)
    ranks = [
        collect(samples, Position(), num_steps, accumulation=2, rank=rank, num_processes=2)
        for rank in (0, 1)
    ]
    for step, first, second in zip(expected, *ranks, strict=True):
        assert len(first.micro_batches) == len(second.micro_batches)
        assert sorted(keys_of([step])) == sorted(keys_of([first, second]))
        assert step.following == first.following == second.following


def test_the_vocabulary_is_the_most_frequent_supervised_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tiny_target(tmp_path / "target")
    # Unsupervised: 90. Supervised: 50 three times, 40 twice, 30, 20 and 60 once.
    sequences = [[90, 90, 50, 50, 40], [90, 50, 40, 30], [90, 20, 60]]
    masks = [[0, 0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1]]
    dataset = CapturedDataset(capture_toy(target, tmp_path / "data", sequences, masks))
    samples = split_samples(dataset, 1e-9, 64).train
    assert build_draft_vocabulary(samples, 3, 97).tolist() == [20, 40, 50]
    assert "covers 6 of 8 supervised tokens (75.00%)" in capsys.readouterr().err
    filled = build_draft_vocabulary(samples, 16, 97)
    assert filled.tolist() == [*range(11), 20, 30, 40, 50, 60]
    assert "11 ids unused in the data; 5 distinct tokens" in capsys.readouterr().err
    assert build_draft_vocabulary(samples, 97, 97).tolist() == list(range(97))
    assert build_draft_vocabulary(samples, 200, 97).tolist() == list(range(97))

    layer_ids = dataset.manifest.aux_layer_ids
    drafter = build_drafter(Eagle3Config(draft_vocab_size=16), target, samples, layer_ids)
    assert drafter.draft_to_target.tolist() == filled.tolist()
    assert drafter.t2d is not None
    assert drafter.t2d.nonzero()[:, 0].tolist() == filled.tolist()
    full = build_drafter(Eagle3Config(draft_vocab_size=200), target, samples, layer_ids)
    assert full.d2t is None
    assert full.lm_head.weight.shape == (97, 32)
