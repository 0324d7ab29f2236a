"""EAGLE-3's training-time test (arXiv 2503.01840, section 3) as a loss."""

from dataclasses import dataclass

import torch
from torch import Tensor

from draftsmith.configs.train import Eagle3ObjectiveConfig
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.target import Target
from draftsmith.kernels.linear_distill import (
    TeacherStatistics,
    linear_distill,
    teacher_statistics,
)
from draftsmith.kernels.ttt_attention import ttt_attention
from draftsmith.train.batch import Batch


@dataclass(frozen=True)
class ObjectiveOutput:
    """`loss` carries the gradient; the sums run over supervised anchors, one entry a step.

    counts, cross_entropy, accept_rate, top1_match: [K] fp32 sums. accepted: [K] fp32, anchors
    whose first k + 1 greedy drafts all match the target's most likely tokens.
    """

    loss: Tensor
    counts: Tensor
    cross_entropy: Tensor
    accept_rate: Tensor
    top1_match: Tensor
    accepted: Tensor


@dataclass(frozen=True)
class _Anchors:
    """Rows to unroll, padded to one width. Row t serves anchor a = t + 1.

    rows: [B, Q] int64. valid: [B, Q, K] bool, step k of the row is supervised.
    """

    rows: Tensor
    valid: Tensor


class Eagle3Objective:
    """`Σ_k w_k · Σ CE(p, q_k) / divisor_k` over K unrolled steps.

    Row t pairs the feature of token t with the embedding of token t + 1, at rotary position t, and
    predicts token t + 2. Step k feeds the layer's output back with the next true token, at position
    t + k, and predicts token t + 2 + k. Keys are needed of every row; queries, MLP and head only of
    rows whose anchor is supervised, so nothing else is computed.
    """

    def __init__(
        self, drafter: Eagle3Drafter, target: Target, config: Eagle3ObjectiveConfig
    ) -> None:
        self.drafter = drafter
        self.num_steps = config.num_steps
        self._ramp_share = config.ramp_share
        self._active_steps = config.num_steps
        self.step_weights = [config.step_decay**k for k in range(config.num_steps)]
        self._embed = target.embed_tokens
        self._softcap = target.softcap
        self._head = target.head_weight
        self._draft_to_target = drafter.draft_to_target
        self._teacher_rows = self._head[self._draft_to_target]
        # The teacher never changes, so its pass over the full vocabulary is made once a sample:
        # 12 bytes a supervised token buy the largest product of the forward in later epochs.
        self._statistics: dict[str, TeacherStatistics] = {}

    def follow(self, progress: float) -> None:
        """Set how many steps are unrolled when `progress` (0 to 1) of the budget is used."""
        grown = 1.0 if progress >= self._ramp_share else progress / self._ramp_share
        self._active_steps = 1 + int(grown * (self.num_steps - 1))

    def count(self, batch: Batch) -> Tensor:
        """[K] int64: supervised anchors of each unrolled step, known without a forward."""
        counts = supervised(batch.loss_mask, self.num_steps).sum((0, 1))
        counts[self._active_steps :] = 0
        return counts

    def __call__(self, batch: Batch, divisors: Tensor) -> ObjectiveOutput:
        """divisors: [K], the counts of the whole global batch (steps without any may be 0)."""
        anchors = _find_anchors(batch.loss_mask, self.num_steps)
        outputs = self._unroll(batch, anchors, self._active_steps)
        teacher = self._teacher(batch)
        sums = torch.zeros(4, self.num_steps, device=batch.input_ids.device)
        counts = anchors.valid.sum((0, 1)).float()
        counts[self._active_steps :] = 0
        loss = torch.zeros((), device=batch.input_ids.device)
        alive = torch.ones_like(anchors.rows, dtype=torch.bool)
        num_rows = batch.input_ids.shape[1]
        for k, output in enumerate(outputs):
            valid = anchors.valid[:, :, k]
            sample, place = valid.nonzero(as_tuple=True)
            if len(sample) == 0:
                break
            # p at row t + k + 1 is the target's distribution of token t + 2 + k.
            row = anchors.rows[sample, place] + k + 1
            weight = self.step_weights[k] / divisors[k].float()
            hidden = self.drafter.norm(output[sample, place])
            if torch.is_autocast_enabled(hidden.device.type):
                hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
            distilled = linear_distill(
                hidden,
                self.drafter.lm_head.weight,
                batch.hidden_states[sample, row],
                self._teacher_rows,
                teacher[sample * num_rows + row],
                weight.expand(len(sample)),
                draft_to_target=self._draft_to_target,
                softcap=self._softcap,
            )
            loss = loss + distilled.loss
            matched = torch.zeros_like(alive)
            matched[sample, place] = distilled.top1_match
            alive &= matched
            sums[:, k] = torch.stack(
                [
                    distilled.cross_entropy.sum(),
                    distilled.accept_rate.sum(),
                    distilled.top1_match.sum(),
                    alive.sum(),
                ]
            )
        return ObjectiveOutput(loss, counts, *sums)

    @torch.no_grad()
    def simulate(self, batch: Batch) -> Tensor:
        """Greedy drafts each anchor would have accepted on this text: [B, T] int64 by anchor.

        -1 where not all K drafted positions are supervised. Decoding the same text accepts the same
        number in every round that starts at that anchor.
        """
        anchors = _find_anchors(batch.loss_mask, self.num_steps)
        num_rows = batch.input_ids.shape[1]
        top1 = self._teacher(batch).top1.view_as(batch.input_ids)
        alive = torch.ones_like(anchors.rows, dtype=torch.bool)
        accepted = torch.zeros_like(anchors.rows)
        for k, output in enumerate(self._unroll(batch, anchors, self.num_steps)):
            drafted = self._draft_to_target[self.drafter.logits(output).argmax(-1)]
            alive &= drafted == top1.gather(1, (anchors.rows + k + 1).clamp(max=num_rows - 1))
            accepted += alive
        result = torch.full_like(batch.input_ids, -1)
        sample, place = anchors.valid[:, :, -1].nonzero(as_tuple=True)
        result[sample, anchors.rows[sample, place] + 1] = accepted[sample, place]
        return result

    def _unroll(self, batch: Batch, anchors: _Anchors, num_steps: int) -> list[Tensor]:
        """The layer's outputs of each step: num_steps tensors [B, Q, H]."""
        drafter, layer = self.drafter, self.drafter.midlayer
        num_samples, num_rows = batch.input_ids.shape
        device = batch.input_ids.device
        scale = drafter.settings.head_dim**-0.5
        all_rows = torch.arange(num_rows, device=device).expand(num_samples, -1)
        # Row T - 1 has no next token; it never has a supervised anchor either.
        following = batch.input_ids.roll(-1, dims=1)
        dtype = drafter.fc.weight.dtype
        pick = torch.arange(num_samples, device=device)[:, None], anchors.rows

        embeds = self._embed(following).to(dtype)
        feature = drafter.fc(batch.features.to(dtype))
        joined, residual = layer.inputs(embeds, feature)
        prefix_key, prefix_value = layer.keys_values(joined, drafter.rotary(all_rows, dtype))
        joined, residual = joined[pick], residual[pick]
        step_keys: list[Tensor] = []
        step_values: list[Tensor] = []
        outputs: list[Tensor] = []
        for k in range(num_steps):
            rotary = drafter.rotary(anchors.rows + k, dtype)
            if k > 0:
                token = (anchors.rows + k + 1).clamp(max=num_rows - 1)
                embeds = self._embed(batch.input_ids.gather(1, token)).to(dtype)
                joined, residual = layer.inputs(embeds, outputs[-1])
                key, value = layer.keys_values(joined, rotary)
                step_keys.append(key)
                step_values.append(value)
            context = ttt_attention(
                layer.queries(joined, rotary),
                prefix_key,
                prefix_value,
                anchors.rows,
                step_keys,
                step_values,
                scale=scale,
            )
            outputs.append(layer.finish(context, residual))
        return outputs

    def _teacher(self, batch: Batch) -> TeacherStatistics:
        """Statistics of every row of the batch, [B · T], measured only where supervised."""
        num_samples, num_rows = batch.input_ids.shape
        logsumexp = batch.hidden_states.new_zeros(num_samples, num_rows, dtype=torch.float32)
        top1 = torch.zeros_like(batch.input_ids)
        wanted = supervised_rows(batch.loss_mask)
        for index, key in enumerate(batch.keys):
            if key not in self._statistics:
                measured = teacher_statistics(
                    batch.hidden_states[index, wanted[index]], self._head, softcap=self._softcap
                )
                self._statistics[key] = measured
            logsumexp[index, wanted[index]] = self._statistics[key].logsumexp
            top1[index, wanted[index]] = self._statistics[key].top1
        return TeacherStatistics(logsumexp.flatten(), top1.flatten())


def supervised(loss_mask: Tensor, num_steps: int) -> Tensor:
    """[B, T] mask -> [B, T, K] bool: drafted position k of anchor a = t + 1 is supervised.

    The anchor itself and every drafted token up to position k must be the assistant's.
    """
    num_rows = loss_mask.shape[1]
    padded = torch.nn.functional.pad(loss_mask, (0, num_steps + 1))
    steps = []
    alive = padded[:, 1 : 1 + num_rows]
    for k in range(num_steps):
        alive = alive & padded[:, 2 + k : 2 + k + num_rows]
        steps.append(alive)
    return torch.stack(steps, dim=-1)


def supervised_rows(loss_mask: Tensor) -> Tensor:
    """[B, T] bool: rows whose target distribution some supervised position is compared with."""
    anchor_and_next = loss_mask[:, :-1] & loss_mask[:, 1:]
    return torch.nn.functional.pad(anchor_and_next, (0, 1))


def _find_anchors(loss_mask: Tensor, num_steps: int) -> _Anchors:
    valid = supervised(loss_mask, num_steps)
    chosen = valid[:, :, 0]
    width = max(1, int(chosen.sum(1).max()))
    # A stable sort brings the chosen rows to the front in their own order.
    rows = (~chosen).to(torch.int8).argsort(dim=1, stable=True)[:, :width]
    return _Anchors(rows, valid.gather(1, rows[:, :, None].expand(-1, -1, num_steps)))
