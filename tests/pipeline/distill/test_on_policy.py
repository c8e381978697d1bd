"""Updates towards a teacher on the student's own answers, against the equations by hand."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.distill.on_policy import OnPolicyDistiller
from veriloop.pipeline.losses.distillation import generalised_jsd
from veriloop.pipeline.rl.update import MismatchError


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


def test_an_unjudged_rollout_is_not_learned_from(imitation, sampled, unshuffled):
    one = imitation()
    rollouts = sampled(one.policy, 8)
    rollouts[2] = replace(rollouts[2], reward=None)
    (told,), advantages_N = one.learn(0, rollouts, unshuffled)
    assert advantages_N[2] == 0 and (advantages_N != 0).sum() == 7
    assert told.tokens == sum(len(g.rollout.response_ids) for g in rollouts if g.reward is not None)


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
