"""What an optimizer step adds to the surrogate: entropy, drift, critic, text, masks."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.losses.value import value_loss
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.rl.critic import Critic
from veriloop.pipeline.rl.update import LENGTHS, TokenTrace, UpdateContext, update
from veriloop.pipeline.training.optimizer import Optimizer

CHUNK = 5


def weights(model):
    return torch.cat([p.detach().clone().flatten() for p in model.parameters()])


@pytest.fixture
def prepared(tiny_llama, sampled, whole):
    """A model and a step of several micro-batches."""
    model = tiny_llama(spread=0.2)
    return model, whole(sampled(model, 4), torch.tensor([1.0, -1.0, 0.5, 2.0]), row=12, rows=1)


def test_an_entropy_bonus_adds_the_gradient_of_the_mean_entropy(prepared, stepped):
    model, part = prepared
    plain, _ = stepped(model, part, AlgorithmConfig(kl_coefficient=0))
    config = AlgorithmConfig(kl_coefficient=0, entropy_coefficient=0.3, aggregation="token_mean")
    with_bonus, _ = stepped(model, part, config)
    plain, _ = stepped(model, part, AlgorithmConfig(kl_coefficient=0, aggregation="token_mean"))
    total = sum(logp_entropy(model, b, CHUNK)[1].sum() for b in part.batches)
    bonus = torch.autograd.grad(total / part.counts.tokens, list(model.parameters()))
    wanted = plain - 0.3 * torch.cat([g.flatten() for g in bonus])
    assert_close(with_bonus, wanted, atol=1e-5, rtol=1e-4)


def test_a_drift_that_is_priced_in_the_reward_is_measured_and_not_in_the_loss(
    prepared, stepped, tiny_llama
):
    model, part = prepared
    config = {"kl_estimator": "k1", "kl_coefficient": 0.5}
    priced, done = stepped(
        model, part, AlgorithmConfig(kl_placement="reward", **config), reference=tiny_llama(9)
    )
    plain, _ = stepped(model, part, AlgorithmConfig(kl_coefficient=0))
    assert_close(priced, plain)
    assert abs(done.kl) > 1e-3


def test_masked_tokens_give_no_gradient_and_are_counted(prepared, stepped, tiny_llama):
    model, part = prepared
    config = AlgorithmConfig(
        kl_coefficient=0, old_logp="trainer", mismatch="mask_tokens",
        mismatch_floor=1.0, mismatch_cap=1.0,
    )  # fmt: skip
    found, done = stepped(model, part, config, old=tiny_llama(9, spread=0.2))
    assert done.dropped[0] == (part.counts.tokens, part.counts.tokens)
    assert done.dropped[1:] == ((0, 0),) * 10 and found.count_nonzero() == 0


def test_masked_tokens_are_counted_over_all_micro_batches(prepared, stepped):
    model, part = prepared
    first, *others = part.signals
    moved = [replace(one, old_M=one.old_M - 1.0) for one in others]
    config = AlgorithmConfig(
        kl_coefficient=0, old_logp="trainer", mismatch="mask_tokens",
        mismatch_floor=1.0, mismatch_cap=1.0,
    )  # fmt: skip
    _, done = stepped(model, replace(part, signals=(first, *moved)), config)
    masked = sum(len(one.old_M) for one in others)
    assert masked > 0
    assert done.dropped[0] == (masked, part.counts.tokens)


def test_a_trace_takes_down_every_token_of_every_micro_batch(prepared):
    model, part = prepared
    trace = TokenTrace()
    learner = UpdateContext(
        policy=model, optimizer=Optimizer(model, OptimizerConfig(learning_rate=1e-3)),
        algorithm=AlgorithmConfig(kl_coefficient=0), chunk=CHUNK, trace=trace,
    )  # fmt: skip
    update(learner, part, progress=0.0, done=0)
    advantages = {0: 1.0, 1: -1.0, 2: 0.5, 3: 2.0}
    assert {n: one.advantage_T.unique().item() for n, one in trace.seen.items()} == advantages
    assert sum(len(one.logp_T) for one in trace.seen.values()) == part.counts.tokens


def test_what_is_masked_is_reported_by_lengths_that_double():
    assert LENGTHS == (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def critical(model, part, own_trunk, **parts):
    """A learner with a critic whose values were off, and a part with what it should have said."""
    critic = Critic(model, own_trunk=own_trunk, optimizer=OptimizerConfig(learning_rate=0.1))
    torch.nn.init.normal_(critic.head.weight, std=0.1)
    signals = []
    for batch, one in zip(part.batches, part.signals, strict=True):
        with torch.no_grad():
            values_M = critic.values(model, batch)
        signals.append(replace(one, values_M=values_M, targets_M=values_M + 1.0))
    preset = "ppo" if own_trunk else "ppo_shared"
    config = AlgorithmConfig(preset=preset, aggregation="token_mean", value_clip=None, **parts)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1e-3))
    learner = UpdateContext(
        policy=model, optimizer=optimizer, algorithm=config, chunk=CHUNK, critic=critic
    )
    return learner, replace(part, signals=tuple(signals))


@pytest.mark.parametrize("own_trunk", [True, False])
def test_the_critics_loss_is_the_mean_over_the_steps_tokens(prepared, own_trunk):
    learner, part = critical(*prepared, own_trunk)
    done = update(learner, part, progress=0.0, done=0)
    assert done.value_loss == pytest.approx(0.5, abs=1e-5)  # 1 off everywhere


def test_a_shared_critic_pulls_on_the_trunk_by_its_coefficient(prepared):
    model, part = prepared
    gradients = []
    for coefficient in (0.0, 0.5):
        learner, told = critical(model, part, False, value_coefficient=coefficient)
        torch.manual_seed(0)
        learner.critic.head.weight.data.fill_(0.1)
        kept = []
        learner.critic.step = lambda progress, done: None
        learner.optimizer.step = lambda progress, done, kept=kept: (
            kept.append(torch.cat([p.grad.flatten() for p in model.parameters()])) or (0.0, 0.0)
        )
        update(learner, told, progress=0.0, done=0)
        gradients.append(kept[0])
        model.zero_grad()
        last = learner, told
    learner, told = last
    total = 0.0
    for batch, one in zip(told.batches, told.signals, strict=True):
        values_M = learner.critic.values(model, batch)
        total = total + value_loss(values_M, one.values_M, one.targets_M, clip=None)[0].sum()
    wanted = torch.autograd.grad(
        0.5 * total / told.counts.tokens, list(model.parameters()), allow_unused=True
    )
    wanted = torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten()
         for g, p in zip(wanted, model.parameters(), strict=True)]
    )  # fmt: skip
    assert wanted.norm() > 1e-3
    assert_close(gradients[1] - gradients[0], wanted, atol=1e-5, rtol=1e-3)


def test_the_mean_of_one_token_is_that_token(tiny_llama, sampled, whole):
    model = tiny_llama(spread=0.2)
    learner, part = critical(
        model, whole(sampled(model, 1, longest=1), torch.tensor([1.0])), own_trunk=True
    )
    assert part.counts.tokens == 1
    done = update(learner, part, progress=0.0, done=0)
    assert done.value_loss == pytest.approx(0.5, abs=1e-5)


def test_a_critic_with_its_own_trunk_changes_nothing_for_the_policy_nor_has_a_coefficient(
    prepared, stepped
):
    model, part = prepared
    learner, part = critical(model, part, True)
    plain, _ = stepped(model, part, learner.algorithm)
    kept = []
    learner.critic.check = lambda: kept.append(learner.critic.head.bias.grad.item())
    learner.optimizer.step = lambda progress, done: (
        kept.append(torch.cat([p.grad.flatten() for p in model.parameters()])) or (0.0, 0.0)
    )
    update(learner, part, progress=0.0, done=0)
    by_bias, found = kept
    assert by_bias == pytest.approx(-1.0, abs=1e-5)  # of half the mean square, 1 too low everywhere
    assert_close(found, plain)


@pytest.mark.parametrize("own_trunk", [True, False])
def test_while_the_policy_rests_the_critic_learns_alone(prepared, own_trunk):
    learner, part = critical(*prepared, own_trunk)
    policy, head = weights(learner.policy), learner.critic.head.weight.detach().clone()
    parameters, pulled = list(learner.policy.parameters()), []
    forget = learner.optimizer.forget
    learner.optimizer.forget = lambda: (
        pulled.extend(p for p in parameters if p.grad is not None) or forget()
    )
    done = update(learner, part, progress=0.0, done=0, critic_only=True)
    assert bool(pulled) != own_trunk  # a trunk that both read is pulled on, and let go of
    assert torch.equal(weights(learner.policy), policy)
    assert not torch.equal(learner.critic.head.weight, head)
    assert (done.grad_norm, done.kept, done.learning_rate) == (0.0, 0.0, 0.0)
    assert all(p.grad is None for p in learner.policy.parameters())


def test_how_much_of_a_step_is_kept_is_reported(prepared):
    model, part = prepared
    kept = []
    for bound in (0.0, 10.0, 1e-6):
        mine = copy.deepcopy(model)
        learner = UpdateContext(
            policy=mine, optimizer=Optimizer(mine, OptimizerConfig(learning_rate=1e-3)),
            algorithm=AlgorithmConfig(kl_coefficient=0, trust_region=bound), chunk=CHUNK,
        )  # fmt: skip
        kept.append(update(learner, part, progress=0.0, done=0).kept)
    assert kept[:2] == [1.0, 1.0] and 0 < kept[2] < 1


def test_text_adds_its_own_gradient_once_a_step(prepared, stepped):
    model, part = prepared
    config = AlgorithmConfig(kl_coefficient=0, ptx_coefficient=0.5)
    plain, told = stepped(model, part, config)
    assert told.ptx_loss is None
    kept, asked = [], []

    def pretraining(done):
        asked.append(done)
        return 2.0 * sum(p.sum() for p in model.parameters())

    class Keeper:
        config = OptimizerConfig(learning_rate=0.1)

        def step(self, progress, done):
            kept.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
            model.zero_grad()
            return 0.0, 0.0

        def forget(self):
            model.zero_grad()

    learner = UpdateContext(
        policy=model, optimizer=Keeper(), algorithm=config, chunk=CHUNK, pretraining=pretraining
    )
    loss = 2.0 * sum(p.sum().item() for p in model.parameters())
    told = update(learner, part, progress=0.0, done=6)
    assert asked == [6] and told.ptx_loss == pytest.approx(loss / 0.5, rel=1e-4)
    assert update(learner, part, progress=0.0, done=6, critic_only=True).ptx_loss is None
    assert asked == [6]
    assert_close(kept[0], plain + 2.0, atol=1e-5, rtol=1e-4)


def test_the_kl_to_the_old_policy_is_what_its_penalty_pulls_back_from(prepared, stepped):
    model, part = prepared
    config = AlgorithmConfig(
        kl_coefficient=0, objective="kl_penalty", old_kl_coefficient=1.0, aggregation="token_mean"
    )
    moved = [replace(one, old_M=one.old_M - 0.2) for one in part.signals]
    part = replace(part, signals=tuple(moved))
    weak, done = stepped(model, part, config, old_kl_coefficient=0.0)
    strong, _ = stepped(model, part, config, old_kl_coefficient=2.0)
    assert done.old_kl == pytest.approx(torch.tensor(0.2).expm1().item() - 0.2, abs=1e-4)
    assert not torch.allclose(weak, strong)
    unsaid, _ = stepped(model, part, config)
    assert_close(unsaid, weak, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("broken", "said"),
    [("critic", "gradient norm"), ("policy", "gradient norm"), ("value loss", "value loss is inf")],
)
def test_what_is_not_finite_on_one_side_moves_neither_and_leaves_no_gradient(
    prepared, monkeypatch, broken, said
):
    learner, part = critical(*prepared, True)
    parameters = [*learner.policy.parameters(), *learner.critic.optimizer.parameters]
    before = [p.detach().clone() for p in parameters]
    if broken == "value loss":
        targets = replace(part.signals[0], targets_M=part.signals[0].targets_M * torch.inf)
        part = replace(part, signals=(targets, *part.signals[1:]))
    else:
        spoiled = learner.critic.head if broken == "critic" else learner.policy.lm_head
        spoiled.weight.register_hook(lambda gradient: gradient * torch.nan)
    with pytest.raises(NonFiniteError, match=said):
        update(learner, part, progress=0.0, done=0)
    assert all(p.grad is None for p in parameters)
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


@pytest.mark.parametrize(
    ("signal", "beyond", "said"),
    [
        ("reference_M", 100.0, "KL to the reference is inf"),
        ("old_M", -100.0, "KL to the old policy is inf"),
    ],
)
def test_a_distance_that_overflows_is_refused_where_the_loss_does_not_contain_it(
    prepared, signal, beyond, said
):
    model, part = prepared
    config = AlgorithmConfig(kl_estimator="k1", kl_placement="reward", kl_coefficient=0.5)
    signals = [
        replace(one, reference_M=one.old_M, advantages_M=torch.ones_like(one.old_M))
        for one in part.signals
    ]
    signals[1] = replace(signals[1], **{signal: getattr(signals[1], signal) + beyond})
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=0.1))
    learner = UpdateContext(policy=model, optimizer=optimizer, algorithm=config, chunk=CHUNK)
    before = weights(model)
    with pytest.raises(NonFiniteError, match=f"{said} at optimizer step 5"):
        update(learner, replace(part, signals=tuple(signals)), progress=0.0, done=5)
    assert torch.equal(weights(model), before)
    assert all(p.grad is None for p in model.parameters())
