"""The engine against transformers' own decoding, and its answers to bad requests."""

import pytest
import torch
from tiny import tiny_target

from draftsmith.configs.decoding import EagleDecodingConfig
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter, Eagle3Settings
from draftsmith.infer.engine import Engine
from draftsmith.infer.metrics import AcceptanceCounts
from draftsmith.infer.request import Request

PROMPTS = [(5, 6, 7), (90,), tuple(range(3, 40)), (8, 8, 8, 8, 8, 8, 8), (11, 12)]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tiny_target(tmp_path_factory.mktemp("target"))


def make_drafter(target, seed=0, draft_vocab_size=40, layer_ids=(1, 3, 4)):
    settings = Eagle3Settings(
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        target_hidden_size=32,
        target_layer_ids=layer_ids,
        rope_parameters=target.config.rope_parameters,
        max_position_embeddings=256,
    )
    torch.manual_seed(seed)
    drafter = Eagle3Drafter(settings)
    if settings.reduced_vocabulary:
        drafter.set_vocabulary(torch.randperm(target.vocab_size)[:draft_vocab_size].sort().values)
    return drafter


def requests(max_new_tokens=20, **options):
    return [Request(str(i), prompt, max_new_tokens, **options) for i, prompt in enumerate(PROMPTS)]


def config(max_draft_len=4, **options):
    return EagleDecodingConfig(max_draft_len=max_draft_len, speculative_model="drafter", **options)


def reference(target, prompt, max_new_tokens=20):
    ids = torch.tensor([prompt])
    output = target.model.generate(
        ids,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
        attention_mask=torch.ones_like(ids),
    )
    return tuple(output[0, len(prompt) :].tolist())


@pytest.mark.parametrize("num_slots", [1, 2, 5])
def test_plain_greedy_equals_transformers(target, num_slots):
    results = Engine(target, num_slots=num_slots).generate(requests())
    for prompt, result in zip(PROMPTS, results, strict=True):
        assert result.output_ids == reference(target, prompt)
        assert result.finish_reason == "length"


@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("max_draft_len", [1, 4])
@pytest.mark.parametrize("draft_vocab_size", [40, 97])
def test_a_random_drafter_changes_nothing(target, num_slots, max_draft_len, draft_vocab_size):
    plain = Engine(target, num_slots=num_slots).generate(requests())
    drafter = make_drafter(target, draft_vocab_size=draft_vocab_size)
    engine = Engine(target, drafter, config(max_draft_len), num_slots=num_slots)
    for ours, theirs in zip(engine.generate(requests()), plain, strict=True):
        assert ours.output_ids == theirs.output_ids
        assert all(len(one.proposed) == max_draft_len for one in ours.rounds)
        assert ours.rounds[0].start == len(PROMPTS[int(ours.id)])


def test_rounds_tell_how_the_output_came_about(target):
    engine = Engine(target, make_drafter(target), config(), num_slots=2)
    for result in engine.generate(requests()):
        rebuilt = [result.output_ids[0]]
        for one in result.rounds:
            assert one.start == len(PROMPTS[int(result.id)]) + len(rebuilt) - 1
            rebuilt += [*one.proposed[: one.accepted], one.bonus]
        assert tuple(rebuilt[: len(result.output_ids)]) == result.output_ids


def test_an_always_wrong_drafter_has_acceptance_length_one(target):
    drafter = make_drafter(target)
    plain = Engine(target).generate(requests())
    used = {token for result in plain for token in result.output_ids}
    unused = [token for token in range(97) if token not in used][:40]
    assert len(unused) == 40
    drafter.set_vocabulary(torch.tensor(unused))
    counts = AcceptanceCounts(4)
    for result in Engine(target, drafter, config(), num_slots=3).generate(requests()):
        counts.add(result.rounds, len(result.output_ids))
    assert counts.acceptance_length == 1.0
    assert counts.acceptance_rate == 0.0


def test_a_stop_token_ends_the_output_inside_a_block(target):
    plain = Engine(target).generate(requests())[0].output_ids
    stop = plain[5]
    first = plain.index(stop)
    drafter = make_drafter(target)
    for engine in (Engine(target), Engine(target, drafter, config())):
        result = engine.generate(requests(stop_token_ids=frozenset({stop})))[0]
        assert result.output_ids == plain[: first + 1]
        assert result.finish_reason == "stop"


def test_sampling_depends_on_the_requests_seed_and_not_on_its_batch(target):
    options = {"temperature": 1.0, "top_p": 0.9, "top_k": 30}
    alone = [
        Engine(target).generate([Request("a", prompt, 12, seed=i, **options)])[0].output_ids
        for i, prompt in enumerate(PROMPTS)
    ]
    together = Engine(target, num_slots=5).generate(
        [Request(str(i), prompt, 12, seed=i, **options) for i, prompt in enumerate(PROMPTS)]
    )
    assert [result.output_ids for result in together] == alone
    other = Engine(target).generate([Request("a", PROMPTS[0], 12, seed=99, **options)])[0]
    assert other.output_ids != alone[0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Request("bad", (), 4), "prompt is empty"),
        (Request("bad", (5, 97), 4), "97 is outside the vocabulary"),
        (Request("bad", (-1,), 4), "-1 is outside the vocabulary"),
        (Request("bad", (5,) * 250, 7), "need 257 positions"),
        (Request("bad", (5,), 0), "max_new_tokens=0"),
    ],
)
def test_a_bad_request_fails_alone(target, bad, words):
    good = requests()[:2]
    results = Engine(target, num_slots=2).generate([good[0], bad, good[1]])
    assert results[1].finish_reason == "error"
    assert words in results[1].error
    assert results[0].output_ids == reference(target, PROMPTS[0])
    assert results[2].output_ids == reference(target, PROMPTS[1])


def test_two_requests_with_one_id_are_refused(target):
    with pytest.raises(ValueError, match="two requests have the id '0'"):
        Engine(target).generate([requests()[0], requests()[0]])


def test_a_draft_length_schedule_follows_the_batch(target):
    schedule = config(3, draft_len_schedule={1: 3, 2: 1})
    engine = Engine(target, make_drafter(target), schedule, num_slots=5)
    plain = Engine(target).generate(requests())
    staggered = [Request(str(i), prompt, 6 + 4 * i) for i, prompt in enumerate(PROMPTS)]
    results = engine.generate(staggered)
    lengths = {len(one.proposed) for result in results for one in result.rounds}
    # Five, four and three active requests: no drafts; two: one; the last alone: three.
    assert lengths == {0, 1, 3}
    for result, whole in zip(results, plain, strict=True):
        shared = min(len(result.output_ids), len(whole.output_ids))
        assert result.output_ids[:shared] == whole.output_ids[:shared]


def test_logits_that_are_not_finite_are_an_error(tmp_path):
    broken = tiny_target(tmp_path)
    broken.embed_tokens.weight[50] = float("nan")
    results = Engine(broken, num_slots=2).generate(
        [Request("a", (5, 6), 4), Request("b", (50,), 4)]
    )
    assert results[0].finish_reason == "length"
    assert results[1].finish_reason == "error"
    assert "not finite" in results[1].error
