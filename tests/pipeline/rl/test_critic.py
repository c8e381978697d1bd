"""Values of states: where they are read, what a cut response is worth, what a resumed one knows."""

import copy
from random import Random

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.rl.critic import Critic, critic_optimizer
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.training.optimizer import Optimizer, schedule


@pytest.fixture
def biased():
    """Function: a critic whose head sums a hidden state, so that values differ by position."""

    def build(policy, *, own_trunk):
        critic = Critic(policy, own_trunk=own_trunk, optimizer=OptimizerConfig(learning_rate=0.1))
        torch.nn.init.ones_(critic.head.weight)
        return critic

    return build


def hidden(model, ids):
    return model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("own_trunk", [True, False])
def test_it_begins_by_expecting_nothing(tiny_llama, sampled, whole, own_trunk):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches
    critic = Critic(model, own_trunk=own_trunk, optimizer=OptimizerConfig(learning_rate=0.1))
    assert critic.values(model, batch).count_nonzero() == 0


class Divided(Ranks):
    """Notes what it was asked to divide."""

    def __init__(self):
        self.modules = []

    def shard(self, model):
        self.modules.append(model)


def test_the_head_of_an_empty_policy_has_weights_and_head_and_trunk_are_divided(tiny_checkpoint):
    policy, ranks = load_policy(tiny_checkpoint(), empty=True), Divided()
    rate = OptimizerConfig(learning_rate=0.1)
    critic = Critic(policy, own_trunk=True, optimizer=rate, ranks=ranks)
    assert critic.head.weight.device == torch.device("cpu")
    assert ranks.modules == [critic.head, critic.trunk]


def test_a_value_is_of_the_state_before_its_token_alone_or_packed(
    tiny_llama, sampled, whole, biased
):
    model = tiny_llama()
    rollouts = sampled(model, 3)
    (batch,) = whole(rollouts, torch.ones(3), row=64).batches
    found = biased(model, own_trunk=False).values(model, batch)
    wanted = []
    for place in batch.rollout_B.tolist():
        r = rollouts[place].rollout
        states = hidden(model, [*r.prompt_ids, *r.response_ids]).sum(-1)
        wanted.append(states[len(r.prompt_ids) - 1 : -1])
    assert_close(found, torch.cat(wanted), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("own_trunk", [True, False])
def test_a_value_is_what_its_own_trunk_says(tiny_llama, sampled, whole, biased, own_trunk):
    model = tiny_llama()
    critic, trunk = biased(model, own_trunk=own_trunk), model.base_model
    if own_trunk:
        trunk = critic.trunk
        torch.nn.init.normal_(trunk.layers[0].mlp.up_proj.weight)
    (one,) = rollouts = sampled(model, 1)
    (batch,) = whole(rollouts, torch.ones(1)).batches
    prompt, ids = one.rollout.prompt_ids, one.rollout.response_ids
    states = trunk(input_ids=torch.tensor([[*prompt, *ids]])).last_hidden_state[0]
    wanted = states[len(prompt) - 1 : -1].sum(-1)
    assert_close(critic.values(model, batch), wanted, atol=1e-4, rtol=1e-4)


def test_states_in_half_precision_are_valued_in_single(tiny_llama, sampled, whole, biased):
    rollouts = sampled(tiny_llama(), 2)
    (batch,) = whole(rollouts, torch.ones(2)).batches
    model = tiny_llama().bfloat16()
    critic = biased(model, own_trunk=False)
    assert critic.values(model, batch).dtype == torch.float32


def test_a_step_has_no_decay_and_leaves_no_gradient(tiny_llama):
    critic = Critic(tiny_llama(), own_trunk=True, optimizer=OptimizerConfig(learning_rate=0.1))
    torch.nn.init.ones_(critic.head.weight)
    weights = [*critic.head.parameters(), *critic.trunk.parameters()]
    before = [p.detach().clone() for p in weights]
    for p in weights:
        p.grad = torch.zeros_like(p)
    critic.step(0.0, 0)
    assert all(torch.equal(p, old) for p, old in zip(weights, before, strict=True))
    assert all(p.grad is None for p in weights)


@pytest.mark.parametrize("own_trunk", [True, False])
def test_a_state_continues_bit_for_bit(tiny_llama, sampled, whole, own_trunk):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches

    def learn(critic, steps):
        for _ in range(steps):
            (critic.values(model, batch) - 3.0).square().mean().backward()
            critic.step(0.0, 0)
            model.zero_grad()

    critic, fresh = (
        Critic(model, own_trunk=own_trunk, optimizer=OptimizerConfig(learning_rate=0.01))
        for _ in range(2)
    )
    begun = [p.detach().clone() for p in critic.optimizer.parameters]
    learn(critic, 3)
    state = copy.deepcopy(critic.state())
    assert (state["trunk"] is None) != own_trunk
    fresh.load(state)
    learn(critic, 2)
    learn(fresh, 2)
    now = critic.optimizer.parameters
    assert all(torch.equal(p, q) for p, q in zip(now, fresh.optimizer.parameters, strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(now, begun, strict=True))
    assert len(now) > 2 if own_trunk else len(now) == 2


def test_a_trunk_of_its_own_is_a_copy_and_its_loss_leaves_the_policy_alone(
    tiny_llama, sampled, whole, biased
):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches
    own, shared = biased(model, own_trunk=True), biased(model, own_trunk=False)
    own.values(model, batch).sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert own.trunk.layers[0].mlp.up_proj.weight.grad is not None
    shared.values(model, batch).sum().backward()
    assert model.base_model.layers[0].mlp.up_proj.weight.grad is not None


def test_a_step_brings_values_to_their_targets_and_a_state_brings_them_back(
    tiny_llama, sampled, whole
):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches
    critic = Critic(model, own_trunk=True, optimizer=OptimizerConfig(learning_rate=1e-2))
    for _ in range(30):
        (critic.values(model, batch) - 3.0).square().mean().backward()
        critic.step(0.0, 0)
    learned = critic.values(model, batch).detach()
    assert (learned - 3.0).abs().mean() < 0.5
    fresh = Critic(
        tiny_llama(seed=7), own_trunk=True, optimizer=OptimizerConfig(learning_rate=1e-2)
    )
    fresh.load(copy.deepcopy(critic.state()))
    assert torch.equal(fresh.values(model, batch), learned)
    slower = Critic(
        tiny_llama(seed=7), own_trunk=True, optimizer=OptimizerConfig(learning_rate=1e-3)
    )
    slower.load(copy.deepcopy(critic.state()))
    assert slower.optimizer.step(0.0, 0)[1] == 1e-3  # the recipe's, not the state's


def test_a_gradient_that_is_no_number_stops_it(tiny_llama):
    critic = Critic(tiny_llama(), own_trunk=False, optimizer=OptimizerConfig(learning_rate=0.1))
    critic.head.bias.grad = torch.tensor([float("nan")])
    with pytest.raises(FloatingPointError, match="critic's gradient norm is nan"):
        critic.check()
    assert critic.head.bias.grad is None


def test_started_from_a_reward_model_it_expects_the_centred_reward_of_what_is_written(
    tiny_classifier, tiny_llama, graded, whole
):
    head = ScalarHead(tiny_classifier)
    head.zero_point = 0.75
    answers = [(7, 8), (9, 3, 4, 4, 6), (5,)]
    written = [graded((1, 5), (*answer, 0)) for answer in answers]  # a state before each token
    rewards = head.rewards(
        [EncodedAnswer(prompt=(1, 5), completion=a, segments=(0,) * len(a)) for a in answers],
        TrainerConfig(),
    )
    critic = Critic(
        tiny_llama(), own_trunk=True, optimizer=OptimizerConfig(learning_rate=0.1), start=head
    )
    (batch,) = whole(written, torch.ones(3), row=64).batches
    values = critic.values(tiny_llama(), batch).detach().split(batch.lengths_B.tolist())
    found = {n: one[-1].item() for n, one in zip(batch.rollout_B.tolist(), values, strict=True)}
    assert [found[n] for n in range(3)] == pytest.approx(rewards, abs=1e-5)
    assert len(set(rewards)) == 3 and critic.trunk.training


def test_a_critic_from_a_reward_model_learns_all_of_it_but_the_models_own_head(
    tiny_classifier, tiny_llama, sampled, whole
):
    policy, start = tiny_llama(), ScalarHead(tiny_classifier)
    critic = Critic(
        policy, own_trunk=True, optimizer=OptimizerConfig(learning_rate=0.1), start=start
    )
    (batch,) = whole(sampled(policy, 2), torch.ones(2)).batches
    before = critic.trunk.layers[0].mlp.up_proj.weight.detach().clone()
    critic.values(policy, batch).square().sum().backward()
    critic.step(0.0, 0)
    assert not critic.trunk.layers[0].mlp.up_proj.weight.equal(before)
    assert not critic.head.weight.equal(start.model.score.weight)
    assert all(p.grad is None for p in policy.parameters())


TRAINED = {
    "learning_rate": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.3, "max_grad_norm": 0.1,
    "warmup_steps": 2, "schedule": "cosine", "floor": 0.25,
}  # fmt: skip


@pytest.mark.parametrize(("own", "rate"), [(None, 0.05), (1e-3, 1e-3)])
def test_its_optimizer_is_the_policys_with_another_rate_and_without_muon(own, rate):
    algorithm = AlgorithmConfig(preset="ppo", critic_learning_rate=own)
    policy = OptimizerConfig(**TRAINED, moments="8bit", muon_learning_rate=0.02)
    expected = {"learning_rate": rate, "muon_learning_rate": 0.0}
    assert critic_optimizer(algorithm, policy) == policy.model_copy(update=expected)


def test_in_the_recipe_of_all_presets_its_rate_is_a_thousandth():
    recipe = read("tiny/algorithms")
    assert critic_optimizer(recipe.algorithm, recipe.optimizer).learning_rate == 1e-3


@pytest.mark.parametrize(("progress", "done"), [(0.0, 0), (0.1, 1), (0.2, 2), (0.6, 6), (1.0, 10)])
def test_a_step_clips_decays_and_follows_the_schedule_as_the_policys_does(
    tiny_llama, progress, done
):
    model, config = tiny_llama(), OptimizerConfig(**TRAINED)
    critic = Critic(model, own_trunk=True, optimizer=config)
    twin = copy.deepcopy(critic.trunk)
    twins = Optimizer(torch.nn.ModuleList([copy.deepcopy(critic.head), twin]), config)
    torch.manual_seed(0)
    for p, q in zip(critic.optimizer.parameters, twins.parameters, strict=True):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.clone()
    critic.check()
    critic.step(progress, done)
    twins.step(progress, done)
    assert all(map(torch.equal, critic.optimizer.parameters, twins.parameters))
    (group,) = critic.optimizer.state()[0]["param_groups"]
    assert group["lr"] == pytest.approx(0.01 * schedule(config, progress, done))
    assert (group["betas"], group["weight_decay"]) == ((0.8, 0.9), 0.3)


def test_the_learner_gives_it_the_same_place_in_the_schedule_as_the_policy(
    tiny_llama, sampled, monkeypatch
):
    recipe = ZeroRecipe.model_validate(
        {
            "name": "test", "start": "given", "steps": 4,
            "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 9},
            "algorithm": {"preset": "ppo", "minibatches": 2, "critic_warmup": 1},
            "optimizer": TRAINED, "trainer": {"row": 32, "rows": 8},
        }
    )  # fmt: skip
    model, steps = tiny_llama(spread=0.2), []
    learner, step = PolicyLearner(recipe, model, None), Optimizer.step

    def kept(optimizer, progress, done):
        norm, rate = step(optimizer, progress, done)
        steps.append((optimizer is learner.critic.optimizer, progress, done, rate))
        return norm, rate

    monkeypatch.setattr(Optimizer, "step", kept)
    for turn in range(2):
        learner.learn(turn, sampled(model, 8), Random(turn))
    critics = [(rest, rate) for own, *rest, rate in steps if own]
    policys = [(rest, rate) for own, *rest, rate in steps if not own]
    assert [rest for rest, _ in critics] == [[0.0, 0], [0.125, 1], [0.25, 2], [0.375, 3]]
    assert [rest for rest, _ in policys] == [rest for rest, _ in critics[2:]]
    for (_, rate), (_, policys_rate) in zip(critics[2:], policys, strict=True):
        assert rate == pytest.approx(5 * policys_rate)


def test_a_state_leaves_out_the_frozen_weights_that_are_the_policys(tiny_llama, sampled, whole):
    model = prepare(tiny_llama(), TrainerConfig(lora={"rank": 2}))
    (batch,) = whole(sampled(tiny_llama(), 2), torch.ones(2)).batches
    critic, fresh = (
        Critic(model, own_trunk=True, optimizer=OptimizerConfig(learning_rate=0.01))
        for _ in range(2)
    )
    for _ in range(2):
        critic.values(model, batch).square().mean().backward()
        critic.step(0.0, 0)
    state = copy.deepcopy(critic.state())
    assert state["trunk"] and all("lora_" in name for name in state["trunk"])
    fresh.load(state)
    assert torch.equal(fresh.values(model, batch), critic.values(model, batch))
