"""Log-probs of answers or their segments under a model, on packed rows.

Axes: R rows, T positions, M completion tokens, A answers, S segments of all answers in order.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.device import brought
from veriloop.pipeline.model.packing import Packed, best_fit, families, lay_out, response_mask
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.probe import supports_shared_prompts
from veriloop.pipeline.preference.examples import Example


def segment_counts(answers: Sequence[EncodedAnswer]) -> list[int]:
    """Number of segments of each answer."""
    return [max(answer.segments, default=-1) + 1 for answer in answers]


def segment_logps(model: Any, answers: Sequence[EncodedAnswer], trainer: TrainerConfig) -> Tensor:
    """Summed token log-probs of each segment, nats, [S], at temperature 1."""
    packed = _packed(
        answers, trainer, share_prompts=trainer.share_prompts and supports_shared_prompts(model)
    )
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


def _packed(
    answers: Sequence[EncodedAnswer], trainer: TrainerConfig, *, share_prompts: bool
) -> Packed:
    """Pack prompt and answer as one sequence each, or all in one row if prompts are shared."""
    sequences = [(*a.prompt, *a.completion) for a in answers]
    lengths = [len(s) - 1 for s in sequences]
    if not share_prompts:
        return lay_out(sequences, best_fit(lengths, max(trainer.row, *lengths)))
    groups, borrowed = families([a.prompt for a in answers], lengths, sum(lengths))
    return lay_out(sequences, [[b for group in groups for b in group]], borrowed)


def _slots(packed: Packed, mask_RT: Tensor, answers: Sequence[EncodedAnswer]) -> Tensor:
    """Segment index of each scored token, [M]."""
    offsets = [0, *accumulate(segment_counts(answers))]
    by_token = torch.tensor(
        [offsets[i] + segment for i, a in enumerate(answers) for segment in a.segments]
    )
    first = torch.tensor([0, *accumulate(len(a.completion) for a in answers)])
    prompt = torch.tensor([len(a.prompt) for a in answers])
    answer_M = packed.sequence_RT[mask_RT]
    token_M = packed.positions_RT[mask_RT] + 1 - prompt[answer_M]
    return by_token[first[answer_M] + token_M]


def example_groups(
    examples: Sequence[Example], trainer: TrainerConfig, ranks: int = 1
) -> list[list[int]]:
    """`pieces` of a recipe, shorter where that gives each of `ranks` one."""
    share = -(-sum(map(_positions, examples)) // ranks)
    return [*pieces(examples, min(trainer.row * trainer.rows, share))]


def pieces(examples: Sequence[Example], positions: int) -> Iterator[list[int]]:
    """Micro-batches of example indices, in order, of at most `positions` token positions each.

    The answers of one example stay together; one that is too long forms its own group.
    """
    group: list[int] = []
    used = 0
    for i, example in enumerate(examples):
        needed = _positions(example)
        if group and used + needed > positions:
            yield group
            group, used = [], 0
        group.append(i)
        used += needed
    if group:
        yield group


def _positions(example: Example) -> int:
    return sum(len(a.prompt) + len(a.completion) - 1 for a in example.answers)
