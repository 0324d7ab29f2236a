"""Captured states against the model's own account, whatever batch they were computed in."""

import pytest
import torch
from tiny import tiny_target

from draftsmith.capture.forward import StateForward, States
from draftsmith.configs.base import ConfigError

SHARED = list(range(40, 60))
# Lengths 1, 7 and 32, and two that share their first 20 tokens.
SEQUENCES = [
    [5],
    [9, 3, 88, 17, 2, 0, 41],
    [(7 * t + 3) % 97 for t in range(32)],
    [*SHARED, 1, 2, 3],
    [*SHARED, 90, 91, 92, 93, 94],
]
LAYER_IDS = (0, 2, 3, -1)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tiny_target(tmp_path_factory.mktemp("target"), num_hidden_layers=4)


def hooked(target, ids):
    """(outputs of every block and the final norm, logits) of one sequence, by hooks of our own."""
    kept = {}

    def keep(name):
        def hook(module, args, output):
            kept[name] = output[0] if isinstance(output, tuple) else output

        return hook

    modules = {**dict(enumerate(target.layers)), -1: target.final_norm}
    handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    with torch.no_grad():
        logits = target.model(torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return {name: output[0] for name, output in kept.items()}, logits


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_columns_are_the_outputs_of_the_blocks_asked_for(target):
    with StateForward(target, LAYER_IDS) as forward:
        (states,) = forward([SEQUENCES[2]])
    expected, logits = hooked(target, SEQUENCES[2])
    columns = states.aux_hidden_states.split(target.hidden_size, dim=1)
    for layer_id, column in zip(LAYER_IDS, columns, strict=True):
        close(column, expected[layer_id])
    assert torch.equal(columns[-1], states.hidden_states)
    close(target.logits(states.hidden_states), logits)
    # The stream after the last block is not what the head reads.
    assert (columns[2] - columns[3]).abs().max() > 0.1


@pytest.mark.parametrize("num_layers", [2, 4, 6])
def test_the_last_layers_id_follows_the_depth(tmp_path, num_layers):
    shallow = tiny_target(tmp_path, num_hidden_layers=num_layers)
    last = num_layers - 1
    with StateForward(shallow, (last,)) as forward:
        (states,) = forward([SEQUENCES[1]])
    close(states.aux_hidden_states, hooked(shallow, SEQUENCES[1])[0][last])
    with pytest.raises(ConfigError, match=rf"layer id {num_layers} .* to {last}"):
        StateForward(shallow, (num_layers,))


def test_ids_out_of_range_are_refused(target):
    for layer_id in (4, -2):
        with pytest.raises(ConfigError, match=f"layer id {layer_id} does not exist"):
            StateForward(target, (layer_id,))


def test_without_blocks_only_the_post_norm_state_is_kept(target):
    with StateForward(target, ()) as forward:
        (states,) = forward([SEQUENCES[1]])
    assert states.aux_hidden_states is None
    close(states.hidden_states, hooked(target, SEQUENCES[1])[0][-1])


def test_a_dump_does_not_depend_on_its_batch(target):
    with StateForward(target, LAYER_IDS) as forward:
        together, again = forward(SEQUENCES), forward(SEQUENCES)
        for ids, states, same in zip(SEQUENCES, together, again, strict=True):
            (alone,) = forward([ids])
            assert states.hidden_states.shape == (len(ids), 32)
            assert states.aux_hidden_states.shape == (len(ids), 4 * 32)
            close(states.hidden_states, alone.hidden_states)
            close(states.aux_hidden_states, alone.aux_hidden_states)
            assert torch.equal(states.hidden_states, same.hidden_states)
            assert torch.equal(states.aux_hidden_states, same.aux_hidden_states)
    first, second = together[3].hidden_states, together[4].hidden_states
    close(first[:20], second[:20])
    assert (first[20] - second[20]).abs().max() > 0.01


def test_states_outlive_the_batch_and_the_hooks_do_not(target):
    with StateForward(target, LAYER_IDS) as forward:
        (states,) = forward([SEQUENCES[1]])
        before = states.aux_hidden_states.clone()
        forward([SEQUENCES[2]])
    assert torch.equal(states.aux_hidden_states, before)
    assert not any(module._forward_hooks for module in target.model.modules())


def test_the_proof_measures_small_differences(target):
    with StateForward(target, LAYER_IDS) as forward:
        states = forward(SEQUENCES)
        proof = forward.prove(SEQUENCES[2], states[2])
    assert proof["rows"] == 32
    for name in ("layer_difference", "logit_difference", "row_difference"):
        assert proof[name] < 1e-5


def test_the_proof_refuses_states_of_other_rows(target):
    with StateForward(target, (0,)) as forward:
        (states,) = forward([SEQUENCES[2]])
        shifted = States(states.hidden_states.roll(1, 0), states.aux_hidden_states)
        with pytest.raises(ConfigError, match=r"target\.path=.*row_difference=.*at most 0\.0001"):
            forward.prove(SEQUENCES[2], shifted)


def test_the_proof_refuses_a_head_that_does_more_than_ours(target, monkeypatch):
    with StateForward(target, (0, 2)) as forward:
        (states,) = forward([SEQUENCES[2]])
        monkeypatch.setattr(
            type(target), "logits", lambda self, hidden: self.model.lm_head(hidden) / 2
        )
        with pytest.raises(ConfigError, match=r"logit_difference=0\.5 "):
            forward.prove(SEQUENCES[2], states)
