"""Values of states: where they are read, what a cut response is worth, what a resumed one knows."""

import copy

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.rl.critic import Critic


@pytest.fixture
def biased():
    """Function: a critic whose head sums a hidden state, so that values differ by position."""

    def build(policy, *, own_trunk):
        critic = Critic(policy, own_trunk=own_trunk, learning_rate=0.1)
        torch.nn.init.ones_(critic.head.weight)
        return critic

    return build


def hidden(model, ids):
    return model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("own_trunk", [True, False])
def test_it_begins_by_expecting_nothing(tiny_llama, sampled, whole, own_trunk):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches
    critic = Critic(model, own_trunk=own_trunk, learning_rate=0.1)
    assert critic.values(model, batch).count_nonzero() == 0


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


@pytest.mark.parametrize(("row", "rows"), [(64, 8), (8, 1), (1, 2)])
def test_beyond_a_cut_lies_a_value_and_beyond_an_end_nothing(tiny_llama, graded, biased, row, rows):
    model = tiny_llama()
    answers = [(7, 8), (7, 0), (9, 3, 4, 4, 6), (2,)]
    ends = ["length", "stop", "length", "length"]
    given = [graded((1, 5), a, finish=e) for a, e in zip(answers, ends, strict=True)]
    critic, asked = biased(model, own_trunk=True), []
    critic.head.register_forward_hook(lambda _, given, __: asked.append(len(given[0])))
    found = critic.bootstrap_values(model, given, row=row, rows=rows)
    assert found[1] == 0 and sum(asked) == 3
    for n in (0, 2, 3):
        last = hidden(model, [1, 5, *answers[n]])[-1].sum()
        assert_close(found[n], last, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("own_trunk", [True, False])
def test_beyond_a_cut_is_what_its_own_trunk_says(tiny_llama, graded, biased, own_trunk):
    model = tiny_llama()
    critic, trunk = biased(model, own_trunk=own_trunk), model.base_model
    if own_trunk:
        trunk = critic.trunk
        torch.nn.init.normal_(trunk.layers[0].mlp.up_proj.weight)
    found = critic.bootstrap_values(model, [graded((1, 5), (7, 8), finish="length")], row=8, rows=1)
    states = trunk(input_ids=torch.tensor([[1, 5, 7, 8]])).last_hidden_state
    assert_close(found, states[0, -1:].sum(-1), atol=1e-4, rtol=1e-4)


def test_states_in_half_precision_are_valued_in_single(tiny_llama, sampled, whole, graded, biased):
    rollouts = sampled(tiny_llama(), 2)
    (batch,) = whole(rollouts, torch.ones(2)).batches
    model = tiny_llama().bfloat16()
    critic = biased(model, own_trunk=False)
    assert critic.values(model, batch).dtype == torch.float32
    cut = graded((1, 5), (7, 8), finish="length")
    assert critic.bootstrap_values(model, [cut], row=8, rows=1).dtype == torch.float32


def test_a_step_has_no_decay_and_leaves_no_gradient(tiny_llama):
    critic = Critic(tiny_llama(), own_trunk=True, learning_rate=0.1)
    torch.nn.init.ones_(critic.head.weight)
    weights = [*critic.head.parameters(), *critic.trunk.parameters()]
    before = [p.detach().clone() for p in weights]
    for p in weights:
        p.grad = torch.zeros_like(p)
    critic.step()
    assert all(torch.equal(p, old) for p, old in zip(weights, before, strict=True))
    assert all(p.grad is None for p in weights)


@pytest.mark.parametrize("own_trunk", [True, False])
def test_a_state_continues_bit_for_bit(tiny_llama, sampled, whole, own_trunk):
    model = tiny_llama()
    (batch,) = whole(sampled(model, 2), torch.ones(2)).batches

    def learn(critic, steps):
        for _ in range(steps):
            (critic.values(model, batch) - 3.0).square().mean().backward()
            critic.step()
            model.zero_grad()

    critic, fresh = (Critic(model, own_trunk=own_trunk, learning_rate=0.01) for _ in range(2))
    begun = [p.detach().clone() for p in critic._parameters()]
    learn(critic, 3)
    state = copy.deepcopy(critic.state())
    assert (state["trunk"] is None) != own_trunk
    fresh.load(state)
    learn(critic, 2)
    learn(fresh, 2)
    now = critic._parameters()
    assert all(torch.equal(p, q) for p, q in zip(now, fresh._parameters(), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(now, begun, strict=True))
    assert len(now) > 2 if own_trunk else len(now) == 2


def test_without_a_cut_there_is_nothing_beyond(tiny_llama, graded, biased):
    model = tiny_llama()
    found = biased(model, own_trunk=False).bootstrap_values(model, [graded()], row=64, rows=8)
    assert found.tolist() == [0.0]


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
    critic = Critic(model, own_trunk=True, learning_rate=1e-2)
    for _ in range(30):
        (critic.values(model, batch) - 3.0).square().mean().backward()
        critic.step()
    learned = critic.values(model, batch).detach()
    assert (learned - 3.0).abs().mean() < 0.5
    fresh = Critic(tiny_llama(seed=7), own_trunk=True, learning_rate=1e-2)
    fresh.load(copy.deepcopy(critic.state()))
    assert torch.equal(fresh.values(model, batch), learned)
    slower = Critic(tiny_llama(seed=7), own_trunk=True, learning_rate=1e-3)
    slower.load(copy.deepcopy(critic.state()))
    assert slower.optimizer.param_groups[0]["lr"] == 1e-3  # the recipe's, not the state's


def test_a_gradient_that_is_no_number_stops_it(tiny_llama):
    critic = Critic(tiny_llama(), own_trunk=False, learning_rate=0.1)
    critic.head.bias.grad = torch.tensor([float("nan")])
    with pytest.raises(FloatingPointError, match="critic's gradient norm is nan"):
        critic.clip(1.0)
    assert critic.head.bias.grad is None


def test_started_from_a_reward_model_it_expects_the_centred_reward_of_what_is_written(
    tiny_classifier, tiny_llama, graded
):
    head = ScalarHead(tiny_classifier)
    head.zero_point = 0.75
    answers = [(7, 8), (9, 3, 4, 4, 6), (5,)]
    cut = [graded((1, 5), answer, finish="length") for answer in answers]
    rewards = head.rewards(
        [EncodedAnswer(prompt=(1, 5), completion=a, segments=(0,) * len(a)) for a in answers],
        TrainerConfig(),
    )
    critic = Critic(tiny_llama(), own_trunk=True, learning_rate=0.1, start=head)
    values_N = critic.bootstrap_values(tiny_llama(), cut, row=64, rows=8)
    assert_close(values_N, torch.tensor(rewards), atol=1e-5, rtol=1e-5)
    assert len(set(rewards)) == 3 and critic.trunk.training


def test_a_critic_from_a_reward_model_learns_all_of_it_but_the_models_own_head(
    tiny_classifier, tiny_llama, sampled, whole
):
    policy, start = tiny_llama(), ScalarHead(tiny_classifier)
    critic = Critic(policy, own_trunk=True, learning_rate=0.1, start=start)
    (batch,) = whole(sampled(policy, 2), torch.ones(2)).batches
    before = critic.trunk.layers[0].mlp.up_proj.weight.detach().clone()
    critic.values(policy, batch).square().sum().backward()
    critic.step()
    assert not critic.trunk.layers[0].mlp.up_proj.weight.equal(before)
    assert not critic.head.weight.equal(start.model.score.weight)
    assert all(p.grad is None for p in policy.parameters())
