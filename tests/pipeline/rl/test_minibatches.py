"""From graded rollouts to micro-batches: the right tokens, the right advantage, nobody twice."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.problem import Problem
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.rl import minibatches as dealing
from veriloop.pipeline.rl.estimator import outcome_advantages
from veriloop.pipeline.rl.minibatches import minibatches

ONE = AlgorithmConfig(minibatches=1)
WIDE = TrainerConfig(row=64, rows=8)


class Straight(Random):
    """Leaves the order alone, to be checked by hand."""

    def shuffle(self, x):
        del x


def advantages(graded, config):
    return outcome_advantages(graded, config, RunningMean())[0]


def cut(graded, config=ONE, trainer=WIDE, max_tokens=8, seed=None):
    shuffle = Straight() if seed is None else Random(seed)
    return minibatches(graded, config, trainer, max_tokens=max_tokens, shuffle=shuffle)


def tokens_of(batch):
    """For each sequence, in order: (trained tokens, their sampler log-probs, its rollout)."""
    found = []
    for b in range(len(batch.rollout_B)):
        mine = batch.mask_RT & (batch.sequence_RT == b)
        found.append(
            (
                tuple(batch.targets_RT[mine].tolist()),
                tuple(round(x, 4) for x in batch.sampler_logp_RT[mine].tolist()),
                batch.rollout_B[b].item(),
            )
        )
    return found


def everything(parts):
    return [item for part in parts for batch in part.batches for item in tokens_of(batch)]


def varied(graded, count, seed=0):
    random = Random(seed)
    found = []
    for i in range(count):
        prompt = [random.randrange(40) for _ in range(random.randint(1, 6))]
        response = [random.randrange(40) for _ in range(random.randint(1, 8))]
        logp = [-round(random.uniform(0.1, 3), 4) for _ in response]
        found.append(graded(prompt, response, logp=logp, group=str(i // 4), reward=float(i % 3)))
    return found


def test_advantages_by_hand_in_the_order_given(graded):
    rewards = [("a", 1.0), ("b", 2.0), ("a", 0.0), ("b", 0.0), ("a", 0.0), ("a", 0.0)]
    got = advantages([graded(group=g, reward=r) for g, r in rewards], ONE)
    assert_close(got, torch.tensor([1.7321, 1.0, -0.57735, -1.0, -0.57735, -0.57735]), atol=1e-4,
                 rtol=0)  # fmt: skip


def test_a_group_is_identified_by_its_id_and_not_by_its_problem_or_prompt(graded):
    """The same question asked twice in a step is two groups, each with its own mean."""
    asked = Problem(id="p/7", prompt="2+2", verifier="number", reference={"value": "4"})
    rewards = [("1/0", 1.0), ("1/0", 0.0), ("1/1", 1.0), ("1/1", 1.0)]
    got = advantages([graded(group=g, reward=r, problem=asked) for g, r in rewards], ONE)
    assert_close(got, torch.tensor([1.0, -1.0, 0.0, 0.0]))


def test_shuffling_the_rollouts_shuffles_their_advantages(graded):
    rollouts = varied(graded, 24)
    straight, order = advantages(rollouts, ONE), list(range(24))
    Random(3).shuffle(order)
    assert torch.equal(advantages([rollouts[i] for i in order], ONE), straight[order])
    assert straight.count_nonzero() > 12


def test_a_rollout_without_a_reward_is_in_no_mean_and_has_no_advantage(graded):
    rewards = [1.0, None, 0.0, None]
    got = advantages([graded(reward=r) for r in rewards], ONE)
    assert got.tolist() == [1.0, 0.0, -1.0, 0.0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_refused_by_its_place(graded, reward):
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is (nan|inf)"):
        advantages([graded(reward=0.0), graded(reward=reward)], ONE)


def test_one_batch_by_hand(graded):
    a = graded((1, 5), (7, 8, 0), logp=(-0.1, -0.2, -0.3))
    b = graded((1, 6, 4), (9,), logp=(-0.4,), finish="length")
    (part,) = cut([a, b])
    (batch,) = part.batches
    assert batch.ids_RT.tolist() == [[1, 5, 7, 8, 1, 6, 4]]
    assert batch.targets_RT.tolist() == [[5, 7, 8, 0, 6, 4, 9]]
    assert batch.positions_RT.tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert batch.sequence_RT.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert batch.mask_RT.int().tolist() == [[0, 1, 1, 1, 0, 0, 1]]
    assert_close(batch.sampler_logp_RT, torch.tensor([[0, -0.1, -0.2, -0.3, 0, 0, -0.4]]))
    assert batch.rollout_B.tolist() == [0, 1] and batch.lengths_B.tolist() == [3, 1]
    counts = part.counts
    assert (counts.sequences, counts.tokens, counts.max_length) == (2, 4, 8)


def test_each_token_carries_its_own_log_prob_and_place_through_any_packing(graded):
    rollouts = varied(graded, 30)
    expected = [(g.rollout.response_ids, g.rollout.logp, i) for i, g in enumerate(rollouts)]
    for row, rows in ((14, 1), (20, 3), (64, 8), (1, 2)):
        trainer = TrainerConfig(row=row, rows=rows)
        got = everything(cut(rollouts, trainer=trainer, seed=row))
        assert sorted(got) == sorted(expected)


def test_the_end_of_a_finished_answer_is_trained_on_and_a_cut_one_has_none(graded):
    """Id 0 ends a text and is also what rows are padded with."""
    finished, truncated = graded((1, 5), (7, 0)), graded((1, 5, 6, 4), (7, 8), finish="length")
    (part,) = cut([finished, truncated], trainer=TrainerConfig(row=1, rows=2))
    assert [tokens for tokens, _, _ in tokens_of(part.batches[0])] == [(7, 8), (7, 0)]
    assert part.counts.tokens == 4 == int(part.batches[0].mask_RT.sum())


def test_an_end_token_in_the_middle_and_in_the_prompt_is_a_token_like_others(graded):
    (part,) = cut([graded((0, 0), (0, 7, 0)), graded((1, 2, 3, 4, 5), (6, 7, 8))])
    assert {tokens for tokens, _, _ in everything([part])} == {(0, 7, 0), (6, 7, 8)}


def test_a_prompt_of_one_token_loses_nothing(graded):
    (part,) = cut([graded((1,), (7, 8))])
    assert part.batches[0].mask_RT.tolist() == [[True, True]]


def test_a_response_without_tokens_is_no_sequence_to_average_over(graded):
    (part,) = cut([graded((1, 5, 6), ()), graded((1, 5), (7, 8))])
    assert (part.counts.sequences, part.counts.tokens) == (1, 2)
    assert sorted(part.batches[0].lengths_B.tolist()) == [0, 2]


def test_rollouts_of_two_temperatures_are_not_one_step(graded):
    with pytest.raises(ValueError, match=r"mixes the temperatures \[0\.7, 1\.0\]"):
        cut([graded(temperature=0.7), graded(temperature=1.0)])


def test_the_temperature_goes_with_the_tokens(graded):
    (part,) = cut([graded(temperature=0.7)])
    assert part.batches[0].temperature == 0.7


def test_rollouts_that_no_verifier_could_judge_are_never_trained_on(graded):
    rollouts = [graded(response=(i + 1,), reward=None if i % 3 == 0 else 1.0) for i in range(9)]
    config = AlgorithmConfig(minibatches=2)
    parts = cut(rollouts, config=config, seed=0)
    trained = [tokens for tokens, _, _ in everything(parts)]
    assert sorted(trained) == [(i + 1,) for i in range(9) if i % 3]
    assert sum(part.counts.sequences for part in parts) == 6


def test_an_update_that_reads_no_rewards_trains_on_them_too(graded):
    rollouts = [graded(response=(1,), reward=None), graded(response=(2,), finish="length")]
    for truncated, kept in (("train", [0, 1]), ("mask", [0])):
        config = AlgorithmConfig(minibatches=1, truncated=truncated)
        (part,) = minibatches(
            rollouts, config, WIDE, max_tokens=8, shuffle=Straight(), reads_rewards=False
        )
        assert [rollout for _, _, rollout in everything([part])] == kept
        assert dealing.trained(rollouts, config, reads_rewards=False) == kept


def test_with_process_supervision_a_response_without_scores_of_its_steps_is_not_trained_on(graded):
    scored = replace(graded(response=(1,)), steps=((1, 0.5),))
    rollouts = [scored, graded(response=(2,)), replace(scored, reward=None)]
    process = AlgorithmConfig(minibatches=1, advantage="process")
    for config, kept in ((process, [0]), (ONE, [0, 1])):
        (part,) = cut(rollouts, config=config)
        assert [rollout for _, _, rollout in everything([part])] == kept
        assert part.counts.sequences == len(kept)


@pytest.mark.parametrize(("policy", "kept"), [("train", {(1,), (2,)}), ("mask", {(1,)})])
def test_cut_answers_are_trained_on_or_left_out_as_told(graded, policy, kept):
    config = AlgorithmConfig(minibatches=1, truncated=policy)
    rollouts = [graded(response=(1,)), graded(response=(2,), finish="length")]
    (part,) = cut(rollouts, config=config)
    assert {tokens for tokens, _, _ in everything([part])} == kept
    assert part.counts.sequences == part.counts.tokens == len(kept)


def test_masked_answers_still_count_in_the_baseline_of_their_group(graded):
    config = AlgorithmConfig(truncated="mask", advantage_scale="none")
    rollouts = [graded(reward=1.0), graded(reward=0.0, finish="length")]
    assert advantages(rollouts, config).tolist() == [0.5, -0.5]


def test_without_anybody_to_train_on_there_is_no_minibatch(graded):
    assert cut([graded(reward=None), graded(reward=None)]) == []


@pytest.mark.parametrize(("count", "parts"), [(16, 4), (10, 4), (3, 4), (7, 1)])
def test_minibatches_share_everybody_out_evenly_and_only_once(graded, count, parts):
    rollouts = [graded(response=(i + 1,)) for i in range(count)]
    found = cut(rollouts, config=AlgorithmConfig(minibatches=parts), seed=1)
    sizes = [part.counts.sequences for part in found]
    assert len(found) == min(count, parts) and max(sizes) - min(sizes) <= 1
    assert Counter(everything(found)) == Counter(((i + 1,), (-1.0,), i) for i in range(count))


def test_minibatches_by_hand_when_nothing_is_shuffled(graded):
    rollouts = [graded(response=(i + 1,)) for i in range(5)]
    found = cut(rollouts, config=AlgorithmConfig(minibatches=2))
    assert [[t for (t,), _, _ in everything([part])] for part in found] == [[1, 3, 5], [2, 4]]


def test_who_shares_a_minibatch_is_drawn_from_the_given_generator(graded):
    rollouts = [graded(response=(i + 1,)) for i in range(12)]
    config = AlgorithmConfig(minibatches=3)

    def drawn(seed):
        return [everything([p]) for p in cut(rollouts, config=config, seed=seed)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert sorted(drawn(1)[0]) != sorted(everything(cut(rollouts, config=config)[:1]))


def test_micro_batches_have_at_most_the_rows_and_positions_they_may(graded):
    rollouts = varied(graded, 40)
    (part,) = cut(rollouts, trainer=TrainerConfig(row=16, rows=3))
    shapes = [tuple(batch.ids_RT.shape) for batch in part.batches]
    assert len(shapes) > 2 and all(rows == 3 for rows, _ in shapes[:-1])
    assert all(rows <= 3 and width <= 16 for rows, width in shapes)


def test_a_sequence_longer_than_a_row_gets_a_row_of_its_length(graded):
    long, short = graded((1, 2, 3), (4, 5, 6, 7)), graded((1,), (2,))
    (part,) = cut([long, short], trainer=TrainerConfig(row=4, rows=1))
    assert [tuple(batch.ids_RT.shape) for batch in part.batches] == [(1, 6), (1, 1)]


def test_rows_are_no_longer_than_asked_when_everything_fits(graded):
    (part,) = cut([graded((1, 2), (3, 4))] * 4, trainer=TrainerConfig(row=6, rows=9))
    assert part.batches[0].ids_RT.shape == (2, 6)


def test_counts_span_every_micro_batch_of_the_step(graded):
    rollouts = varied(graded, 20)
    (part,) = cut(rollouts, trainer=TrainerConfig(row=14, rows=1), max_tokens=11)
    assert len(part.batches) > 3
    assert part.counts.sequences == 20 == sum(len(b.lengths_B) for b in part.batches)
    assert part.counts.tokens == sum(int(b.mask_RT.sum()) for b in part.batches)
    assert part.counts.tokens == sum(len(g.rollout.response_ids) for g in rollouts)
    assert part.counts.max_length == 11
    for batch in part.batches:
        for b, length in enumerate(batch.lengths_B.tolist()):
            assert int((batch.mask_RT & (batch.sequence_RT == b)).sum()) == length


def shared(graded, row, rows):
    return minibatches(
        graded, AlgorithmConfig(minibatches=2), TrainerConfig(row=row, rows=rows),
        max_tokens=8, shuffle=Random(3), share_prompts=True,
    )  # fmt: skip


def test_a_micro_batch_with_shared_prompts_is_filled_to_the_last_position_of_its_rows(graded):
    """A whole answer takes 4 positions, one that borrows its prompt 2: two rows of 3."""
    answers = [graded((1, 2, 3), (4 + i, 5), group="a") for i in range(4)]
    parts = shared(answers, 3, 2)
    assert [tuple(b.ids_RT.shape) for part in parts for b in part.batches] == [(1, 6)] * 2


@pytest.mark.parametrize(("row", "rows"), [(64, 8), (16, 1), (4, 1)])
def test_shared_prompts_leave_out_nothing_and_repeat_nothing(graded, row, rows):
    asked = [(1, 2, 3, 4, 5, 6, 7), (8, 8), (9, 10, 11, 12)]
    rollouts = [
        graded(asked[i % 3], [20 + i] * (i % 5), logp=[-i / 10] * (i % 5), group=str(i % 3))
        for i in range(24)
    ]
    parts = shared(rollouts, row, rows)
    plain = cut(rollouts, AlgorithmConfig(minibatches=2), TrainerConfig(row=64, rows=8), seed=3)
    assert [part.counts for part in parts] == [part.counts for part in plain]
    for one, other in zip(parts, plain, strict=True):
        assert sorted(everything([one])) == sorted(everything([other]))
    positions = sum(int((b.sequence_RT >= 0).sum()) for part in parts for b in part.batches)
    apart = sum(int((b.sequence_RT >= 0).sum()) for part in plain for b in part.batches)
    assert positions < apart if row * rows > 12 else positions <= apart
    longest = max(len(r.rollout.prompt_ids) + len(r.rollout.response_ids) - 1 for r in rollouts)
    for part in parts:
        assert all(b.ids_RT.shape[0] == 1 for b in part.batches)
        assert all(b.ids_RT.shape[1] <= max(row * rows, longest) for b in part.batches)
