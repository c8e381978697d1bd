"""Updates towards a teacher on the student's own answers, against the equations by hand."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.distill import on_policy as module
from veriloop.pipeline.distill.on_policy import (
    OnPolicyDistiller,
    against_teacher,
    divergence_update,
)
from veriloop.pipeline.losses.distillation import generalised_jsd
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.rl.update import MismatchError
from veriloop.pipeline.types import Update


class Keeper:
    """Stands in for the optimizer: keeps each gradient and steps nowhere."""

    def __init__(self, model):
        self.model, self.gradients, self.told = model, [], []

    def forget(self):
        self.model.zero_grad()

    def step(self, progress, done):
        self.told.append((progress, done))
        self.gradients.append(torch.cat([p.grad.flatten() for p in self.model.parameters()]))
        self.model.zero_grad()
        return 0.25, 0.125

    def state(self):
        return []


@pytest.fixture
def imitation(on_policy, tiny_llama):
    """Factory: an imitation whose optimizer only keeps gradients, with its two models."""

    def build(**changes):
        student, teacher = tiny_llama(), tiny_llama(seed=1, layers=2).requires_grad_(False)
        made = OnPolicyDistiller(on_policy(**changes), student, teacher)
        made.context = replace(made.context, optimizer=Keeper(student))
        return made

    return build


def logits(model, rollout):
    """At each response token, [T, V]."""
    ids, first = [*rollout.prompt_ids, *rollout.response_ids], len(rollout.prompt_ids)
    return model(torch.tensor([ids])).logits[0, first - 1 : -1] / rollout.temperature


def token_logp(model, rollout):
    targets = torch.tensor(rollout.response_ids)
    return logits(model, rollout).log_softmax(-1).gather(1, targets[:, None]).squeeze(1)


def gradient(loss, model):
    found = torch.autograd.grad(loss, tuple(model.parameters()))
    return torch.cat([part.flatten() for part in found])


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_each_token_is_credited_with_its_own_log_ratio(imitation, sampled, unshuffled, temperature):
    one = imitation()
    rollouts = sampled(one.policy, 8, temperature=temperature)
    (told,), advantages_N = one.learn(1, rollouts, unshuffled)
    gaps, loss, tokens = [], torch.zeros(()), sum(len(g.rollout.response_ids) for g in rollouts)
    for g in rollouts:
        own = token_logp(one.policy, g.rollout)
        gap = token_logp(one.teacher, g.rollout) - own.detach()
        gaps.append(gap)
        loss = loss - (gap * own).sum() / tokens
    got = one.context.optimizer.gradients[0]
    assert_close(got, gradient(loss, one.policy), atol=1e-5, rtol=1e-4)
    assert got.norm() > 0.1
    assert_close(advantages_N, torch.stack([gap.mean() for gap in gaps]), atol=1e-5, rtol=1e-5)
    kl = -torch.cat(gaps).mean().item()
    assert one.metrics()["kl_to_teacher"] == pytest.approx(kl, abs=1e-5)
    assert told.tokens == tokens and one.context.optimizer.told == [(0.25, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("divergence", "beta"), [("forward_kl", 0.0), ("reverse_kl", 1.0), ("jsd", 0.3)]
)
def test_the_whole_vocabulary_pulls_at_each_token(imitation, sampled, unshuffled, divergence, beta):
    one = imitation(divergence=divergence, **({"beta": beta} if divergence == "jsd" else {}))
    rollouts = sampled(one.policy, 8, temperature=0.7)
    (told,), _ = one.learn(0, rollouts, unshuffled)
    values = [
        generalised_jsd(
            logits(one.policy, g.rollout), logits(one.teacher, g.rollout), beta=beta, temperature=1
        )
        for g in rollouts
    ]
    loss = torch.cat(values).mean()
    assert told.loss == pytest.approx(loss.item(), abs=1e-5)
    got = one.context.optimizer.gradients[0]
    assert_close(got, gradient(loss, one.policy), atol=1e-5, rtol=1e-4)
    plain = [logits(one.policy, g.rollout).log_softmax(-1) for g in rollouts]
    entropy = torch.cat([-(x.exp() * x).sum(-1) for x in plain]).mean().item()
    assert told.entropy == pytest.approx(entropy, abs=1e-5)
    assert told.mismatch_max < 1e-5 and told.tokens == len(torch.cat(values))


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["sampled", "reverse_kl"])
def test_micro_batches_change_nothing(imitation, sampled, unshuffled, divergence):
    gradients = []
    for rows in (1, 8):
        trainer = {"row": 8, "rows": rows, "logits_chunk": 3 * rows}
        one = imitation(divergence=divergence, trainer=trainer)
        one.learn(0, sampled(one.policy, 8), unshuffled)
        gradients += one.context.optimizer.gradients
    assert_close(*gradients, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("divergence", ["sampled", "reverse_kl"])
def test_a_rollout_is_learned_from_in_as_many_steps_as_asked(
    imitation, sampled, unshuffled, divergence
):
    one = imitation(minibatches=2, divergence=divergence)
    updates, _ = one.learn(3, sampled(one.policy, 8), unshuffled)
    assert len(updates) == one.done == 2
    assert one.context.optimizer.told == [(0.75, 0), (0.875, 1)]
    assert one.metrics()["optimizer_steps"] == 2.0


@pytest.mark.parametrize("divergence", ["sampled", "reverse_kl"])
def test_an_unjudged_rollout_is_learned_from(imitation, sampled, unshuffled, divergence):
    """The teacher scores it as any other: rewards are recorded only."""
    one, other = imitation(divergence=divergence), imitation(divergence=divergence)
    rollouts = sampled(one.policy, 8)
    (wanted,), advantages_N = one.learn(0, rollouts, unshuffled)
    unjudged = [replace(g, reward=None) if n % 3 == 0 else g for n, g in enumerate(rollouts)]
    (told,), found_N = other.learn(0, unjudged, unshuffled)
    assert told == wanted and torch.equal(found_N, advantages_N) and (found_N != 0).all()
    ours, theirs = (made.context.optimizer.gradients[0] for made in (one, other))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("divergence", ["sampled", "reverse_kl"])
def test_a_sampler_mismatch_ends_the_run_before_a_step(
    imitation, sampled, shifted, unshuffled, divergence
):
    one = imitation(divergence=divergence)
    rollouts = [shifted(g, 0.01) for g in sampled(one.policy, 8)]
    with pytest.raises(MismatchError, match="before optimizer step 0"):
        one.learn(0, rollouts, unshuffled)
    assert not one.context.optimizer.gradients
    assert all(p.grad is None or not p.grad.any() for p in one.policy.parameters())


def test_rewards_do_not_change_the_update(imitation, sampled, unshuffled):
    gradients = []
    for reward in (0.0, 2.0):
        one = imitation()
        one.learn(0, [replace(g, reward=reward) for g in sampled(one.policy, 8)], unshuffled)
        gradients += one.context.optimizer.gradients
    assert torch.equal(*gradients)


@pytest.mark.parametrize("divergence", ["sampled", "reverse_kl"])
def test_a_resumed_distiller_gives_the_same_bits(
    on_policy, tiny_llama, sampled, unshuffled, divergence
):
    told, teacher = on_policy(divergence=divergence), tiny_llama(seed=1).requires_grad_(False)
    student = tiny_llama()
    first = OnPolicyDistiller(told, student, teacher)
    first.learn(0, sampled(student, 8), unshuffled)
    state, weights = copy.deepcopy((first.state(), student.state_dict()))
    again = tiny_llama(seed=2)
    again.load_state_dict(weights)
    second = OnPolicyDistiller(told, again, teacher)
    second.load(state)
    rollouts = sampled(student, 8, seed=5)
    results = [one.learn(1, rollouts, unshuffled)[0][0] for one in (first, second)]
    assert results[0] == results[1] and first.done == second.done == 2
    assert all(map(torch.equal, student.parameters(), again.parameters()))


@pytest.mark.slow
def test_the_student_comes_nearer(on_policy, tiny_llama, sampled, unshuffled):
    """On fresh tokens of every turn, by the estimate from the sampled ones."""
    student, teacher = tiny_llama(), tiny_llama(seed=1).requires_grad_(False)
    one, seen = OnPolicyDistiller(on_policy(divergence="reverse_kl"), student, teacher), []
    rollouts = sampled(student, 16)
    for step in range(4):
        fresh = [
            replace(
                g, rollout=replace(g.rollout, logp=tuple(token_logp(student, g.rollout).tolist()))
            )
            for g in rollouts
        ]
        updates, _ = one.learn(step, fresh, unshuffled)
        seen.append(updates[0].loss)
    assert seen == sorted(seen, reverse=True) and seen[-1] < 0.8 * seen[0]


def test_both_models_are_divided_among_the_ranks_of_the_updates(on_policy, tiny_llama):
    class Noting(Ranks):
        def __init__(self):
            self.sharded = []

        def shard(self, model):
            self.sharded.append(model)

    ranks, student, teacher = Noting(), tiny_llama(), tiny_llama(seed=1)
    distiller = OnPolicyDistiller(on_policy(), student, teacher, ranks)
    assert len(ranks.sharded) == 2 and {*ranks.sharded} == {student, teacher}
    assert distiller.context.ranks is ranks
    assert distiller.metrics() == {"optimizer_steps": 0.0, "kl_to_teacher": 0.0}


def test_tokens_are_traced_of_the_last_step_alone(imitation, sampled, unshuffled):
    one = imitation()
    rollouts = sampled(one.policy, 8)
    one.learn(0, rollouts, unshuffled)
    seen = one.token_trace()
    assert {n: len(trace.logp_T) for n, trace in seen.items()} == {
        n: len(g.rollout.response_ids) for n, g in enumerate(rollouts)
    }
    gap = token_logp(one.teacher, rollouts[3].rollout) - token_logp(one.policy, rollouts[3].rollout)
    assert_close(seen[3].advantage_T, gap, atol=1e-5, rtol=1e-5)
    one.learn(1, rollouts[:4], unshuffled)
    assert sorted(one.token_trace()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("asked", "packed"), [(True, True), (True, False), (False, True)])
def test_rollouts_are_laid_out_for_all_ranks_and_share_prompts_where_both_models_can(
    imitation, sampled, unshuffled, monkeypatch, asked, packed
):
    class Three(Ranks):
        count = 3

    settings = {}
    monkeypatch.setattr(module, "minibatches", lambda *_, **given: settings.update(given) or [])
    one = imitation(trainer={"share_prompts": asked})
    one.context = replace(one.context, ranks=Three())
    if packed:
        prepare(one.policy, one.recipe.trainer), prepare(one.teacher, one.recipe.trainer)
    one.learn(0, sampled(one.policy, 2), unshuffled)
    shared = asked and packed
    assert settings == {
        "max_tokens": 9,
        "shuffle": unshuffled,
        "share_prompts": shared,
        "ranks": 3,
        "reads_rewards": False,
    }


def test_only_the_first_update_of_a_step_is_by_the_policy_that_sampled(
    on_policy, tiny_llama, sampled, unshuffled
):
    recipe = on_policy(minibatches=2, divergence="reverse_kl", optimizer={"learning_rate": 0.1})
    student = tiny_llama()
    one = OnPolicyDistiller(recipe, student, tiny_llama(seed=1).requires_grad_(False))
    first, second = one.learn(0, sampled(student, 8), unshuffled)[0]
    assert first.mismatch_mean < recipe.sampler.tolerance < second.mismatch_mean


def test_one_token_or_none_leave_the_means_finite(imitation, sampled, whole):
    one = imitation()
    rollouts = sampled(one.policy, 2, longest=1)
    part = whole(rollouts[:1], torch.zeros(2))
    (signal,) = part.signals
    part = replace(part, signals=(replace(signal, reference_M=signal.old_M - 0.5),))
    (weighed,), advantages_N, kl = against_teacher([part], 2)
    assert_close(weighed.signals[0].advantages_M, torch.tensor([-0.5]))
    assert_close(advantages_N, torch.tensor([-0.5, 0.0]))
    assert kl == pytest.approx(0.5)
    nothing, advantages_N, kl = against_teacher([], 2)
    assert nothing == [] and advantages_N.tolist() == [0.0, 0.0] and kl == 0.0


class Two(Ranks):
    """The first of two ranks: it deals all to itself, and the other does the same."""

    count = 2

    def deal(self, items, empty):
        return [*items, empty()]

    def stacked(self, values_K):
        return torch.stack([values_K, values_K])


@pytest.mark.parametrize(("ranks", "times"), [(Ranks(), 1), (Two(), 2)])
def test_an_update_tells_the_means_over_the_tokens_of_all_ranks(
    imitation, sampled, whole, ranks, times
):
    one = imitation(divergence="reverse_kl")
    (rollout,) = sampled(one.policy, 1, longest=1, noise=0.2)
    part = whole([rollout], torch.zeros(1))
    context = replace(one.context, ranks=ranks)
    update = divergence_update(
        context, one.teacher, part, beta=1.0, progress=0.5, done=3, tolerance=None
    )
    own, theirs = logits(one.policy, rollout.rollout), logits(one.teacher, rollout.rollout)
    loss = generalised_jsd(own, theirs, beta=1.0, temperature=1).mean().item()
    entropy = torch.distributions.Categorical(logits=own).entropy().mean().item()
    gaps = token_logp(one.policy, rollout.rollout) - torch.tensor(rollout.rollout.logp)
    assert update == Update(
        loss=pytest.approx(times * loss, abs=1e-5),
        value_loss=0.0,
        kl=pytest.approx(times * loss, abs=1e-5),
        old_kl=0.0,
        entropy=pytest.approx(times * entropy, abs=1e-5),
        clipped_low=0.0,
        clipped_high=0.0,
        ratio_mean=1.0,
        mismatch_mean=pytest.approx(times * gaps.abs().mean().item(), abs=1e-5),
        mismatch_max=pytest.approx(gaps.abs().max().item(), abs=1e-5),
        dropped=(),
        grad_norm=0.25,
        learning_rate=0.125,
        kept=1.0,
        tokens=1,
        scored=1,
    )


def test_differences_to_the_sampler_count_whatever_their_sign(imitation, sampled, unshuffled):
    one = imitation(divergence="reverse_kl", sampler={"tolerance": 1.0})
    rollouts = sampled(one.policy, 8, noise=0.2)
    (update,), _ = one.learn(0, rollouts, unshuffled)
    gaps = [token_logp(one.policy, g.rollout) - torch.tensor(g.rollout.logp) for g in rollouts]
    gaps = torch.cat(gaps)
    assert update.mismatch_mean == pytest.approx(gaps.abs().mean().item(), abs=1e-5)
    assert update.mismatch_max == pytest.approx(gaps.abs().max().item(), abs=1e-5)


def test_the_teachers_head_is_gathered_with_its_bias(imitation, sampled, unshuffled, monkeypatch):
    one, bias_V = imitation(divergence="reverse_kl"), torch.linspace(-2, 2, 40)
    rollouts = sampled(one.policy, 8)
    plain = [(logits(one.policy, g.rollout), logits(one.teacher, g.rollout)) for g in rollouts]
    head = torch.nn.Linear(32, 40).requires_grad_(False)
    head.weight.copy_(one.teacher.lm_head.weight)
    head.bias.copy_(bias_V)
    one.teacher.lm_head = head
    monkeypatch.setattr(module, "whole", lambda part: 2 * part)  # differs from what was there
    (update,), _ = one.learn(0, rollouts, unshuffled)
    values = [generalised_jsd(a, 2 * (b + bias_V), beta=1.0, temperature=1) for a, b in plain]
    assert update.loss == pytest.approx(torch.cat(values).mean().item(), abs=1e-5)
