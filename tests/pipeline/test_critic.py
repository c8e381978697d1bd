"""Values of states: where they are read, what a cut response is worth, what a resumed one knows."""

import copy

import pytest
import torch
from torch.testing import assert_close

from pipeline.critic import Critic


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
    found = biased(model, own_trunk=True).beyond(model, given, row=row, rows=rows)
    assert found[1] == 0
    for n in (0, 2, 3):
        last = hidden(model, [1, 5, *answers[n]])[-1].sum()
        assert_close(found[n], last, atol=1e-4, rtol=1e-4)


def test_without_a_cut_there_is_nothing_beyond(tiny_llama, graded, biased):
    model = tiny_llama()
    found = biased(model, own_trunk=False).beyond(model, [graded()], row=64, rows=8)
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
        critic.step(1.0)
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
        critic.step(1.0)
