"""Log-probs of whole answers, or of their segments, under a model: packed, a piece at a time.

Axes: R rows, T positions, M completion tokens, A answers, S segments of all answers in order.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from data.preference_ids import Ids
from pipeline.config import TrainerConfig
from pipeline.device import brought
from pipeline.packing import Packed, best_fit, families, lay_out, response_mask
from pipeline.policy import score
from pipeline.preference.examples import Example
from pipeline.ways import shares


def segment_counts(answers: Sequence[Ids]) -> list[int]:
    """How many segments each answer has."""
    return [max(answer.segments, default=-1) + 1 for answer in answers]


def segment_logps(model: Any, answers: Sequence[Ids], trainer: TrainerConfig) -> Tensor:
    """Sum of the log-probs of each segment's tokens, nats, [S]; at temperature 1."""
    packed = _packed(answers, trainer, share_prompts=trainer.share_prompts and shares(model))
    mask_RT = response_mask(packed, [len(a.prompt) for a in answers])
    logp_M, _ = score(
        model,
        packed.ids_RT,
        packed.positions_RT,
        packed.targets_RT,
        mask_RT,
        temperature=1.0,
        chunk=trainer.logits_chunk,
    )
    slot_M = brought(_slots(packed, mask_RT, answers), logp_M.device)
    return logp_M.new_zeros(sum(segment_counts(answers))).index_add(0, slot_M, logp_M)


def _packed(answers: Sequence[Ids], trainer: TrainerConfig, *, share_prompts: bool) -> Packed:
    """The answers behind their prompts; or all in one row, where answers share their prompts."""
    sequences = [(*a.prompt, *a.completion) for a in answers]
    lengths = [len(s) - 1 for s in sequences]
    if not share_prompts:
        return lay_out(sequences, best_fit(lengths, max(trainer.row, *lengths)))
    groups, borrowed = families([a.prompt for a in answers], lengths, sum(lengths))
    return lay_out(sequences, [[b for group in groups for b in group]], borrowed)


def _slots(packed: Packed, mask_RT: Tensor, answers: Sequence[Ids]) -> Tensor:
    """Which of all segments each scored token belongs to, [M]."""
    before = [0, *accumulate(segment_counts(answers))]
    by_token = torch.tensor(
        [before[i] + segment for i, a in enumerate(answers) for segment in a.segments]
    )
    first = torch.tensor([0, *accumulate(len(a.completion) for a in answers)])
    prompt = torch.tensor([len(a.prompt) for a in answers])
    answer_M = packed.sequence_RT[mask_RT]
    token_M = packed.positions_RT[mask_RT] + 1 - prompt[answer_M]
    return by_token[first[answer_M] + token_M]


def pieces(examples: Sequence[Example], positions: int) -> Iterator[list[int]]:
    """Indices of examples, in order, in groups that take about `positions` positions; the answers
    of one example stay together."""
    group: list[int] = []
    taken = 0
    for i, example in enumerate(examples):
        needed = sum(len(a.prompt) + len(a.completion) - 1 for a in example.answers)
        if group and taken + needed > positions:
            yield group
            group, taken = [], 0
        group.append(i)
        taken += needed
    if group:
        yield group
