"""What the training forward predicts is what decoding does, round by round."""

import pytest
import torch
from tiny import fit_counter, tiny_target

from draftsmith.capture.forward import StateForward
from draftsmith.configs.decoding import EagleDecodingConfig
from draftsmith.configs.train import Eagle3ObjectiveConfig
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter, Eagle3Settings
from draftsmith.infer.engine import Engine
from draftsmith.infer.metrics import AcceptanceCounts
from draftsmith.infer.request import Request
from draftsmith.train.batch import Batch
from draftsmith.train.objectives.eagle3 import Eagle3Objective

LAYERS = (0, 1, 2)
NUM_DRAFT = 4


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    target = tiny_target(tmp_path_factory.mktemp("target"), num_hidden_layers=4)
    fit_counter(target)
    return target


def make_batch(target, sequences, num_prompt):
    with StateForward(target, LAYERS) as forward:
        states = forward(sequences)
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.int64)
    mask = torch.zeros(len(sequences), width, dtype=torch.bool)
    features = torch.zeros(len(sequences), width, 32 * len(LAYERS))
    hidden = torch.zeros(len(sequences), width, 32)
    for i, (sequence, state) in enumerate(zip(sequences, states, strict=True)):
        length = len(sequence)
        ids[i, :length] = torch.tensor(sequence)
        mask[i, num_prompt:length] = True
        features[i, :length] = state.aux_hidden_states
        hidden[i, :length] = state.hidden_states
    keys = tuple(str(sequence) for sequence in sequences)
    return Batch(keys, ids, mask, features, hidden)


def train(target, batch, num_steps):
    settings = Eagle3Settings(
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=97,
        draft_vocab_size=97,
        target_hidden_size=32,
        target_layer_ids=LAYERS,
        rope_parameters=target.config.rope_parameters,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    drafter = Eagle3Drafter(settings)
    objective = Eagle3Objective(drafter, target, Eagle3ObjectiveConfig(num_steps=NUM_DRAFT))
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=3e-3)
    divisors = objective.count(batch)
    for _ in range(num_steps):
        optimizer.zero_grad()
        objective(batch, divisors).loss.backward()
        optimizer.step()
    return drafter, objective


def decode(target, drafter, prompts, num_new):
    config = EagleDecodingConfig(max_draft_len=NUM_DRAFT, speculative_model="drafter")
    requests = [Request(str(i), tuple(prompt), num_new) for i, prompt in enumerate(prompts)]
    return Engine(target, drafter, config, num_slots=3).generate(requests)


@pytest.mark.parametrize("num_steps", [0, 15, 250])
def test_decoding_accepts_what_the_training_forward_predicted(target, num_steps):
    """At three stages of training, so that right, wrong and mixed drafts all occur."""
    text = [[(9 * i + j) % 97 for j in range(30)] for i in range(8)]
    drafter, objective = train(target, make_batch(target, text, 4), num_steps)
    drafter.eval()
    results = decode(target, drafter, [sequence[:4] for sequence in text], 30)
    decoded = [
        [*sequence[:4], *result.output_ids] for sequence, result in zip(text, results, strict=True)
    ]
    predicted = objective.simulate(make_batch(target, decoded, 4))
    num_compared = 0
    for row, result in enumerate(results):
        for one in result.rounds:
            if predicted[row, one.start] >= 0:
                assert one.accepted == predicted[row, one.start]
                num_compared += 1
    assert num_compared >= 8 * 4


def test_an_overfitted_drafter_drafts_nearly_everything(target):
    text = [[(9 * i + j) % 97 for j in range(30)] for i in range(8)]
    batch = make_batch(target, text, 4)
    drafter, objective = train(target, batch, 250)
    output = objective(batch, objective.count(batch))
    assert (output.accepted / output.counts).min() > 0.95
    counts = AcceptanceCounts(NUM_DRAFT)
    for result in decode(target, drafter.eval(), [sequence[:4] for sequence in text], 26):
        counts.add(result.rounds, len(result.output_ids))
    assert counts.acceptance_length > NUM_DRAFT + 0.6


def test_a_block_does_not_see_the_target_beyond_its_anchor(target):
    """Noise on features of later rows leaves an anchor's drafts as they were."""
    text = [[(3 + j) % 97 for j in range(20)]]
    batch = make_batch(target, text, 4)
    _, objective = train(target, batch, 5)
    before = objective._unroll(batch, _anchors(batch, 3, 5), NUM_DRAFT)
    noisy = batch.features.clone()
    noisy[:, 4:] += torch.randn_like(noisy[:, 4:])
    changed = Batch(batch.keys, batch.input_ids, batch.loss_mask, noisy, batch.hidden_states)
    after = objective._unroll(changed, _anchors(batch, 3, 5), NUM_DRAFT)
    for k in range(NUM_DRAFT):
        # Row 3 serves anchor 4 and may use features of rows < 4 only; row 5 may use row 4's.
        torch.testing.assert_close(after[k][:, 0], before[k][:, 0])
        assert not torch.allclose(after[k][:, 1], before[k][:, 1])


def _anchors(batch, *rows):
    from draftsmith.train.objectives.eagle3 import _Anchors

    chosen = torch.tensor([rows])
    return _Anchors(chosen, torch.ones(1, len(rows), NUM_DRAFT, dtype=torch.bool))


@pytest.mark.parametrize(
    ("ramp_share", "expected"),
    [(0.0, [4, 4, 4, 4, 4]), (0.75, [1, 2, 3, 4, 4])],
)
def test_unrolled_steps_grow_with_the_budget(target, ramp_share, expected):
    text = [[(3 + j) % 97 for j in range(20)]]
    batch = make_batch(target, text, 4)
    drafter, _ = train(target, batch, 0)
    objective = Eagle3Objective(
        drafter, target, Eagle3ObjectiveConfig(num_steps=NUM_DRAFT, ramp_share=ramp_share)
    )
    whole = [15, 14, 13, 12]
    for progress, steps in zip((0.0, 0.25, 0.5, 0.75, 1.0), expected, strict=True):
        objective.follow(progress)
        counts = objective.count(batch).tolist()
        assert counts == whole[:steps] + [0] * (4 - steps)
        output = objective(batch, objective.count(batch))
        assert output.counts.tolist() == counts
        assert (output.cross_entropy > 0).tolist() == [count > 0 for count in counts]
