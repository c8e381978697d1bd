"""How micro-batches are dealt, without processes: equally many, all of them, none twice."""

from dataclasses import replace
from random import Random

import pytest
import torch

from veriloop.pipeline.cluster.deal import empty_batch, empty_pair, exchanged
from veriloop.pipeline.cluster.rank_group import RankGroup
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.estimator import score_parts
from veriloop.pipeline.rl.minibatches import minibatches, on_device


class Place(Ranks):
    """A rank without the others: tensors of all are those of this one."""

    deal = RankGroup.deal

    def __init__(self, rank, count):
        self.rank, self.count = rank, count


@pytest.mark.parametrize("items", [0, 1, 4, 5, 7])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_rank_gets_as_many_and_each_item_once(items, count):
    dealt = [Place(rank, count).deal(range(items), lambda: -1) for rank in range(count)]
    assert len({len(mine) for mine in dealt}) == 1
    assert sorted(i for mine in dealt for i in mine if i >= 0) == list(range(items))
    assert sum(i < 0 for mine in dealt for i in mine) < count


@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("ranks", [2, 3])
def test_micro_batches_are_shorter_where_that_gives_each_rank_one(graded, ranks, share_prompts):
    rollouts = [
        graded((1, 2, 3 + i // 4), (5,) * (3 + i % 4), group=str(i // 4)) for i in range(16)
    ]

    def parts(count):
        settings = AlgorithmConfig(minibatches=1), TrainerConfig(row=64, rows=2)
        (part,) = minibatches(
            rollouts,
            *settings,
            max_tokens=9,
            shuffle=Random(0),
            share_prompts=share_prompts,
            ranks=count,
        )
        return part

    alone, shared = parts(1), parts(ranks)
    assert len(alone.batches) == 1 and len(shared.batches) >= ranks - 1 + share_prompts
    assert shared.counts == alone.counts
    members = [i for batch in shared.batches for i in batch.rollout_B.tolist()]
    assert sorted(members) == list(range(16))


@pytest.mark.parametrize(
    ("ranks", "positions"), [(1, [26]), (2, [13, 13]), (3, [5, 6, 7, 8]), (9, [3, 5, 6, 7, 7])]
)
def test_shared_prompts_are_divided_evenly_but_no_answer_is(graded, ranks, positions):
    """Prompts of 3 tokens with answers of 1 and of 2 to 5, the second after a borrowed prompt; for
    9 ranks 3 positions would be enough, and the longest answer with its prompt takes 7."""
    rollouts = [
        graded((1, 2, 3 + i // 2), (5,) * (2 + i // 2 if i % 2 else 1), group=str(i // 2))
        for i in range(8)
    ]
    (part,) = minibatches(
        rollouts,
        AlgorithmConfig(minibatches=1),
        TrainerConfig(row=64, rows=1),
        max_tokens=9,
        shuffle=Random(0),
        share_prompts=True,
        ranks=ranks,
    )
    assert sorted(batch.ids_RT.numel() for batch in part.batches) == positions


def test_of_one_micro_batch_other_ranks_get_nothing(whole, graded):
    part = whole([graded((1, 2), (3, 4))], torch.ones(1))
    taken = [list(on_device(part, torch.device("cpu"), Place(rank, 2))) for rank in (0, 1)]
    ((batch, signals),), ((nothing, none),) = taken
    assert batch.ids_RT.equal(part.batches[0].ids_RT) and len(signals.old_M) == 2
    assert not nothing.mask_RT.any() and len(none.old_M) == 0


def test_a_micro_batch_of_nothing_changes_no_gradient(tiny_llama, sampled, whole, stepped):
    model = tiny_llama()
    rollouts = sampled(model, 4)
    part = whole(rollouts, torch.tensor([1.0, -1.0, 0.5, 2.0]))
    algorithm = AlgorithmConfig(kl_coefficient=0.0)
    gradient, done = stepped(model, part, algorithm)
    batch, signals = empty_pair(part.batches[0], part.signals[0])
    more = replace(part, batches=(*part.batches, batch), signals=(*part.signals, signals))
    again, done_again = stepped(model, more, algorithm)
    assert torch.equal(gradient, again) and done == done_again
    logp_M, entropy_M = logp_entropy(model, empty_batch(part.batches[0]), 8)
    assert len(logp_M) == len(entropy_M) == 0 and logp_M.requires_grad


def test_scores_of_a_rank_reach_their_own_batches(whole, graded):
    part = whole([graded((1, 2), (3,) * n) for n in (5, 9, 4)], torch.ones(3), row=10, rows=1)
    assert len(part.batches) == 3
    scores = [replace(signals, old_M=signals.old_M - i) for i, signals in enumerate(part.signals)]
    ranks = Place(1, 2)
    mine = ranks.deal(scores, lambda: scores[0])
    found = exchanged(ranks, part.batches, mine)
    assert [len(signals.old_M) for signals in found] == [len(s.old_M) for s in scores]
    assert torch.equal(found[1].old_M, scores[1].old_M) and not found[0].old_M.any()
    assert found[1].reference_M is None
    assert exchanged(SINGLE, part.batches, scores)[2].old_M.equal(scores[2].old_M)


@pytest.mark.parametrize("models", [True, False])
def test_ranks_divide_what_models_score_and_nothing_else(whole, sampled, tiny_llama, models):
    model = tiny_llama()
    part = replace(whole(sampled(model, 3), torch.ones(3), row=10, rows=1), signals=())
    assert len(part.batches) == 2
    algorithm = AlgorithmConfig(old_logp="trainer" if models else "sampler")
    (found,) = score_parts(model, None, None, [part], algorithm, 8, ranks=Place(1, 2))
    (expected,) = score_parts(model, None, None, [part], algorithm, 8)
    here = [bool(signals.old_M.any()) for signals in found.signals]
    assert here == ([False, True] if models else [True, True])  # others are sent by rank 0
    assert torch.equal(found.signals[1].old_M, expected.signals[1].old_M)
    first = replace(part, batches=part.batches[:1])
    (none,) = score_parts(model, None, None, [first], algorithm, 8, ranks=Place(1, 2))
    assert none.signals[0].old_M.any() == (not models)
