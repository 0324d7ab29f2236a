"""Batched decoding over slots, plain or with a drafter; every output is the target's own."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding import DecodingBaseConfig, EagleDecodingConfig
from draftsmith.configs.support import refuse_unsupported
from draftsmith.infer.attention import IMPLEMENTATION, SlotStep
from draftsmith.infer.cache import SlotCache
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.drafters.proposer import Eagle3Proposer
from draftsmith.infer.features import FeatureTap
from draftsmith.infer.metrics import Round
from draftsmith.infer.request import FinishReason, Request, Result
from draftsmith.infer.target import Target
from draftsmith.kernels.sample import sample
from draftsmith.kernels.verify import verify

# Padded prompt tokens of one prefill forward: bounds the memory of admitting many at once.
PREFILL_TOKENS = 8192


@dataclass
class _Active:
    """A request in a slot. `tokens` holds prompt and output; all but the last are in the cache."""

    request: Request
    tokens: list[int]
    generator: torch.Generator
    rounds: list[Round] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None

    def emit(self, tokens: Iterable[int]) -> None:
        """Append tokens until one ends the request."""
        limit = len(self.request.prompt_ids) + self.request.max_new_tokens
        for token in tokens:
            self.tokens.append(token)
            if token in self.request.stop_token_ids:
                self.finish_reason = "stop"
            elif len(self.tokens) >= limit:
                self.finish_reason = "length"
            if self.finish_reason:
                return

    def result(self) -> Result:
        output = tuple(self.tokens[len(self.request.prompt_ids) :])
        reason = self.finish_reason or "error"
        return Result(self.request.id, output, reason, tuple(self.rounds), self.error)


class Engine:
    """Decodes requests in up to `num_slots` slots; they join and leave between rounds.

    A round is one target forward over the known token and the drafted ones of every request.
    Active requests always fill slots 0…n-1, so each forward works on views, not copies: when one
    leaves, the last one moves into its slot.

    Without a drafter each round verifies nothing and emits one token: plain decoding is the same
    code, and the baseline of every speed-up.
    """

    def __init__(
        self,
        target: Target,
        drafter: Eagle3Drafter | None = None,
        config: DecodingBaseConfig | None = None,
        *,
        num_slots: int = 1,
    ) -> None:
        if num_slots < 1:
            raise ConfigError(f"num_slots={num_slots}; accepted: at least 1")
        if drafter is not None and config is None:
            raise ConfigError("a drafter needs a decoding config that says how long to draft")
        if config is not None:
            refuse_unsupported(config)
        if drafter is not None and isinstance(config, EagleDecodingConfig):
            # An explicit set of layers that is not the drafter's own is refused here.
            config.resolve_layers(target.num_layers, drafter.settings.target_layer_ids)
        self.target = target
        self.drafter = drafter
        self.config = config
        self.num_slots = num_slots
        self._max_draft = 0
        if drafter is not None and config is not None:
            self._max_draft = config.max_draft_len or 0
            drafter.to(device=target.device, dtype=target.dtype).eval()

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        on_result: Callable[[Result], None] | None = None,
        on_round: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """Decode all requests and return results in the same order.

        A request that cannot be served gets a result with `finish_reason="error"`; the others
        finish. `on_result` sees each result as it is done, `on_round` the tokens each round added.
        """
        results: dict[str, Result] = {}

        def done(result: Result) -> None:
            results[result.id] = result
            if on_result is not None:
                on_result(result)

        seen: set[str] = set()
        waiting: deque[Request] = deque()
        for request in requests:
            if request.id in seen:
                raise ValueError(f"two requests have the id {request.id!r}; ids must differ")
            seen.add(request.id)
            problem = self._refusal(request)
            if problem is None:
                waiting.append(request)
            else:
                done(Result(request.id, (), "error", (), problem))

        if waiting:
            longest = max(len(r.prompt_ids) + r.max_new_tokens for r in waiting)
            # A last round may draft past the end; prefill rows are padded to the longest prompt.
            batch = _Batch(self, min(self.num_slots, len(waiting)), longest + self._max_draft + 1)
            with self.target.attention(IMPLEMENTATION), batch.tap:
                while waiting or batch.active:
                    added = batch.admit(waiting)
                    for result in batch.take_finished():
                        done(result)
                    if batch.active:
                        added += batch.round()
                    for result in batch.take_finished():
                        done(result)
                    if on_round is not None:
                        on_round(added)
        return [results[request.id] for request in requests]

    def _refusal(self, request: Request) -> str | None:
        """Why this request cannot be served, or None."""
        if not request.prompt_ids:
            return "prompt is empty; accepted: at least one token"
        if request.max_new_tokens < 1:
            return f"max_new_tokens={request.max_new_tokens}; accepted: at least 1"
        vocab = self.target.embed_tokens.num_embeddings
        wrong = [token for token in request.prompt_ids if not 0 <= token < vocab]
        if wrong:
            return f"prompt token {wrong[0]} is outside the vocabulary; accepted: 0 to {vocab - 1}"
        total = len(request.prompt_ids) + request.max_new_tokens
        if total > self.target.max_positions:
            return (
                f"prompt of {len(request.prompt_ids)} tokens and max_new_tokens="
                f"{request.max_new_tokens} need {total} positions; "
                f"the target has {self.target.max_positions}"
            )
        return None


class _Batch:
    """The slots of one `generate` call: cache, drafter state, and who sits where."""

    def __init__(self, engine: Engine, num_slots: int, capacity: int) -> None:
        self.target = engine.target
        self.config = engine.config
        self.num_slots = num_slots
        self.device = engine.target.device
        self.cache = SlotCache(num_slots, capacity)
        self.active: list[_Active] = []
        self.proposer: Eagle3Proposer | None = None
        layer_ids: tuple[int, ...] = ()
        if engine.drafter is not None:
            self.proposer = Eagle3Proposer(engine.drafter, engine.target, num_slots, capacity)
            layer_ids = self.proposer.layer_ids
        self.tap = FeatureTap(engine.target, layer_ids)

    def admit(self, waiting: deque[Request]) -> int:
        """Prefill as many waiting requests as fit and give each its first token."""
        first_slot = len(self.active)
        joining: list[_Active] = []
        width = 0
        while waiting and first_slot + len(joining) < self.num_slots:
            width = max(width, len(waiting[0].prompt_ids))
            if joining and width * (len(joining) + 1) > PREFILL_TOKENS:
                break
            request = waiting.popleft()
            generator = torch.Generator().manual_seed(request.seed)
            joining.append(_Active(request, list(request.prompt_ids), generator))
        if not joining:
            return 0
        counts = [len(one.tokens) for one in joining]
        width = max(counts)
        ids = torch.tensor([one.tokens + [0] * (width - len(one.tokens)) for one in joining])
        ids = ids.to(self.device)
        hidden = self._forward(first_slot, ids, [0] * len(joining))
        rows = torch.arange(len(joining), device=self.device)
        last = torch.tensor(counts, device=self.device) - 1
        tokens = self._choose(joining, self.target.logits(hidden[rows, last])[:, None])[:, 0]
        if self.proposer is not None:
            following = torch.cat([ids[:, 1:], ids[:, :1]], dim=1)
            following[rows, last] = tokens
            for slot in range(first_slot, first_slot + len(joining)):
                self.proposer.reset(slot)
            features = self.tap.features(self.proposer.layer_ids)
            self.proposer.extend(first_slot, following, features, counts)
        for one, token in zip(joining, tokens.tolist(), strict=True):
            if one.error is None:
                one.emit([token])
        self.active += joining
        return len(joining)

    def round(self) -> int:
        """Draft, verify and emit for every active request; return the tokens added."""
        active, num_rows = self.active, len(self.active)
        num_draft = 0
        if self.proposer is not None and self.config is not None:
            num_draft = self.config.draft_len_for(num_rows)
        known = torch.tensor([[one.tokens[-1]] for one in active], device=self.device)
        starts = [len(one.tokens) - 1 for one in active]
        drafted = known.new_empty((num_rows, 0))
        if num_draft and self.proposer is not None:
            drafted = self.proposer.propose(0, num_rows, num_draft)

        hidden = self._forward(0, torch.cat([known, drafted], dim=1), starts)
        chosen = self._choose(active, self.target.logits(hidden))
        accepted, bonus = verify(drafted, chosen)
        counts = [count + 1 for count in accepted.tolist()]
        if self.proposer is not None:
            # `chosen` agrees with the drafted tokens up to the accepted count and then holds the
            # bonus: it is the token after each verified row.
            features = self.tap.features(self.proposer.layer_ids)
            width = max(counts)
            self.proposer.extend(0, chosen[:, :width], features[:, :width], counts)

        before = sum(len(one.tokens) for one in active)
        bonuses, proposals = bonus.tolist(), drafted.tolist()
        for row, one in enumerate(active):
            if one.error is not None:
                continue
            kept = proposals[row][: counts[row] - 1]
            one.rounds.append(
                Round(starts[row], tuple(proposals[row]), counts[row] - 1, bonuses[row])
            )
            one.emit([*kept, bonuses[row]])
        return sum(len(one.tokens) for one in active) - before

    def take_finished(self) -> list[Result]:
        """Remove finished requests, keeping the active ones in slots 0…n-1."""
        finished = []
        slot = 0
        while slot < len(self.active):
            one = self.active[slot]
            if one.finish_reason is None and one.error is None:
                slot += 1
                continue
            finished.append(one.result())
            moved = self.active.pop()
            if slot < len(self.active):
                source = len(self.active)
                self.active[slot] = moved
                self.cache.move(source, slot, len(moved.tokens))
                if self.proposer is not None:
                    self.proposer.move(source, slot)
        return finished

    def _forward(self, first_slot: int, ids: Tensor, starts: list[int]) -> Tensor:
        """Post-norm states [R, Q, H] of new tokens; keys and values go to the cache."""
        offsets = torch.arange(ids.shape[1], device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + offsets
        step = SlotStep(self.cache, first_slot, positions)
        output = self.target.decoder(
            input_ids=ids, position_ids=positions, use_cache=False, slot_step=step
        )
        if self.cache.num_layers_written != self.target.num_layers:
            raise ConfigError(
                f"target.path={self.target.path!r}: only {self.cache.num_layers_written} of "
                f"{self.target.num_layers} layers of {type(self.target.model).__name__} attend "
                "through the transformers attention interface; this family cannot be decoded here"
            )
        return output.last_hidden_state

    def _choose(self, rows: list[_Active], logits: Tensor) -> Tensor:
        """The target's own token after each position: [R, Q, V] -> [R, Q]."""
        finite = logits.amax(-1).isfinite().all(-1).tolist()
        for one, fine in zip(rows, finite, strict=True):
            if not fine:
                one.error = "the target's logits are not finite"
        num_rows, width, vocab = logits.shape
        settings = [one.request for one in rows]

        def spread(values: list[float] | list[int], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=self.device).repeat_interleave(width)

        noise = None
        if any(setting.temperature > 0 for setting in settings):
            noise = torch.ones(num_rows, width, vocab)
            for row, one in enumerate(rows):
                if one.request.temperature > 0:
                    noise[row].exponential_(generator=one.generator)
            noise = noise.to(self.device).flatten(0, 1)
        tokens = sample(
            logits.flatten(0, 1),
            spread([s.temperature for s in settings], torch.float32),
            spread([s.top_k for s in settings], torch.int64),
            spread([s.top_p for s in settings], torch.float32),
            noise,
        )
        return tokens.view(num_rows, width)
