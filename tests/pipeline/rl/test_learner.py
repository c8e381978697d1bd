"""The learner calls its parts in order, and keeps what its algorithm needs across turns."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.rl import learner as learning
from veriloop.pipeline.rl.learner import PolicyLearner, turn_random

TOKENIZER = "the tokenizer"


class Noted:
    """A function that keeps its calls, (arguments, keywords), and returns what it is given."""

    def __init__(self, result=None):
        self.calls, self.result = [], result

    def __call__(self, *arguments, **keywords):
        self.calls.append((arguments, keywords))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Fleet(Ranks):
    """Two ranks, of which this is the first; keeps what was divided."""

    count = 2

    def __init__(self):
        self.divided = []

    def shard(self, model):
        self.divided.append(model)


@pytest.fixture
def made(tiny_llama):
    """Function: a learner of the small policy."""

    def build(*, ranks=None, nonfinite="stop", trainer=(), **algorithm):
        recipe = ZeroRecipe.model_validate(
            {
                "name": "test", "start": "given", "steps": 4, "nonfinite": nonfinite,
                "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 9},
                "algorithm": {"minibatches": 2, **algorithm},
                "optimizer": {"learning_rate": 1e-2},
                "trainer": {"row": 32, "rows": 8, "logits_chunk": 17, **dict(trainer)},
            }
        )  # fmt: skip
        torch.manual_seed(0)
        generator = SimpleNamespace(tokenizer=TOKENIZER)
        model = tiny_llama(spread=0.2)
        return PolicyLearner(recipe, model, generator, *([] if ranks is None else [ranks]))

    return build


@pytest.fixture
def updates(monkeypatch):
    """The keywords of each update that a learner asks for; none of them is taken."""
    noted = Noted("an update")
    monkeypatch.setattr(learning, "update", noted)
    monkeypatch.setattr(learning, "batch_tolerance", lambda *_: 0.25)
    return lambda: [keywords for _, keywords in noted.calls]


def learn(learner, sampled, turn=0):
    return learner.learn(turn, sampled(learner.policy, 8), Random(7))


def test_a_learner_begins_before_its_first_step_with_what_its_algorithm_needs(made):
    plain = made(kl_coefficient=0.0)
    assert plain.reads_rewards and plain.state()["done"] == 0
    assert plain.reference is None and plain.critic is None and not plain.token_trace()
    context = plain.context
    assert (context.policy, context.algorithm) == (plain.policy, plain.recipe.algorithm)
    assert (context.chunk, context.critic, context.pretraining) == (17, None, None)
    assert context.trace is plain.trace and context.ranks is plain.ranks
    assert made(kl_coefficient=0.1).reference is not None
    separate, shared = made(preset="ppo"), made(preset="ppo", critic="shared")
    assert separate.critic.trunk is not None and shared.critic.trunk is None
    assert separate.context.critic is separate.critic


def test_policy_and_critic_are_divided_among_the_ranks(made):
    ranks = Fleet()
    learner = made(preset="ppo", ranks=ranks)
    assert learner.context.ranks is ranks
    assert any(model is learner.policy for model in ranks.divided)
    assert any(model is learner.critic.trunk for model in ranks.divided)


def test_text_is_learned_beside_answers_where_its_loss_has_a_weight(made, monkeypatch):
    noted = Noted("loss by step")
    monkeypatch.setattr(learning, "pretraining", noted)
    assert made().context.pretraining is None and not noted.calls
    learner = made(ptx_coefficient=0.5, trust_region=0.0)
    assert learner.context.pretraining == "loss by step"
    assert noted.calls == [((learner.recipe, learner.policy, TOKENIZER, learner.ranks), {})]


@pytest.mark.parametrize(("ranks", "empty"), [(None, False), (Fleet(), True)])
def test_a_critic_may_start_from_a_reward_model_with_the_policys_tokenizer(
    made, monkeypatch, tmp_path, ranks, empty
):
    head = SimpleNamespace(require_tokenizer=Noted(), model="its model")
    opened, prepared, critic = Noted(head), Noted(), Noted("critic")
    monkeypatch.setattr(learning, "find_checkpoint", lambda folder, name: (folder, name))
    monkeypatch.setattr(learning, "ScalarHead", opened)
    monkeypatch.setattr(learning, "prepare", prepared)
    monkeypatch.setattr(learning, "Critic", critic)
    learner = made(preset="ppo", critic_start="reward", ranks=ranks)
    assert opened.calls == [((("reward", "algorithm.critic_start"),), {"empty": empty})]
    assert head.require_tokenizer.calls == [((TOKENIZER,), {})]
    assert prepared.calls == [(("its model", learner.recipe.trainer), {})]
    ((_, settings),) = critic.calls
    assert settings["start"] is head and settings["ranks"] is learner.ranks
    made(preset="ppo")
    assert critic.calls[-1][1]["start"] is None and len(opened.calls) == 1


def test_a_reward_model_with_another_tokenizer_is_no_start_of_a_critic(
    made, monkeypatch, tiny_checkpoint
):
    def refused(self, tokenizer):
        raise ValueError("another tokenizer")

    monkeypatch.setattr(learning, "find_checkpoint", lambda folder, name: folder)
    monkeypatch.setattr(learning.ScalarHead, "__init__", lambda self, path, empty: None)
    monkeypatch.setattr(learning.ScalarHead, "require_tokenizer", refused)
    with pytest.raises(ValueError, match="another tokenizer"):
        made(preset="ppo", critic_start="reward")


def test_an_update_is_told_its_place_its_weight_and_the_first_its_tolerance(made, sampled, updates):
    learner = made(preset="ppo_klpen", epochs=2, critic_warmup=1, old_kl_target=0.5)
    learner.old_kl_coefficient = 0.75
    done, _ = learn(learner, sampled, turn=0)
    assert done == ["an update"] * 4 and learner.done == 4
    assert updates() == [
        {
            "progress": i / 4 / 4, "done": i, "old_kl_coefficient": 0.75, "critic_only": True,
            "tolerance": 0.25 if i == 0 else None,
        }
        for i in range(4)
    ]  # fmt: skip
    learn(learner, sampled, turn=1)
    assert [asked["critic_only"] for asked in updates()[4:]] == [False] * 4
    assert [asked["done"] for asked in updates()[4:]] == [4, 5, 6, 7]
    assert [asked["tolerance"] for asked in updates()[4:]] == [0.25, None, None, None]


def test_the_weight_of_the_kl_penalty_stays_where_it_is_no_number_or_no_step_was_taken(
    made, sampled, updates, monkeypatch
):
    measured = Noted(float("nan"))
    monkeypatch.setattr(learning, "distance", measured)
    learner = made(preset="ppo_klpen", nonfinite="skip", old_kl_target=0.5)
    before = learner.old_kl_coefficient
    learn(learner, sampled)
    assert learner.old_kl_coefficient == before and len(measured.calls) == 2
    assert learner.refused == ["KL(old || policy) is nan after optimizer step 2"]
    monkeypatch.setattr(learning, "update", Noted(NonFiniteError("infinite")))
    learn(learner, sampled)
    assert len(measured.calls) == 2 and learner.refused == ["infinite", "infinite"]


def test_scores_that_are_not_finite_stop_a_turn_or_leave_it_out(
    made, sampled, updates, monkeypatch
):
    monkeypatch.setattr(learning, "require_finite", Noted(NonFiniteError("nan scores")))
    with pytest.raises(NonFiniteError, match="nan scores"):
        learn(made(), sampled)
    learner = made(nonfinite="skip")
    done, advantages_N = learn(learner, sampled)
    assert done == [] and advantages_N.tolist() == [0.0] * 8
    assert learner.refused == ["nan scores"] and learner.done == 0 and not updates()


def test_an_update_that_is_not_finite_stops_the_run_or_is_left_out(made, sampled, monkeypatch):
    monkeypatch.setattr(learning, "update", Noted(NonFiniteError("infinite")))
    with pytest.raises(NonFiniteError, match="infinite"):
        learn(made(), sampled)
    learner = made(nonfinite="skip")
    done, advantages_N = learn(learner, sampled)
    assert done == [] and advantages_N.any() and learner.done == 2
    assert learner.refused == ["infinite", "infinite"]


@pytest.mark.parametrize("coefficient", [0.0, 0.1])
def test_the_reference_scores_where_there_is_one_and_is_checked_first(
    made, sampled, updates, monkeypatch, coefficient
):
    learner, scored = made(kl_coefficient=coefficient), learning.score_parts
    noted = []

    def score_parts(policy, reference, *rest):
        noted.append(reference)
        return scored(policy, reference, *rest)

    monkeypatch.setattr(learning, "score_parts", score_parts)
    checked = Noted()
    if coefficient:
        monkeypatch.setattr(learner.reference, "check", checked)
    learner.done = 6
    learn(learner, sampled)
    assert noted == [learner.reference.model if coefficient else None]
    assert checked.calls == ([((6,), {})] if coefficient else [])


def test_the_reference_is_replaced_when_due_and_checked(made):
    learner = made(kl_coefficient=0.1)
    learner.done = 6
    learner.reference = SimpleNamespace(replace_when_due=Noted(), check=Noted())
    learner.renew_reference()
    assert learner.reference.replace_when_due.calls == [((learner.policy, 6), {})]
    assert learner.reference.check.calls == [((6,), {})]
    made(kl_coefficient=0.0).renew_reference()


@pytest.mark.parametrize(("advantage", "steps"), [("process", True), ("group", False)])
def test_scores_of_steps_are_read_for_process_supervision_alone(
    made, sampled, updates, monkeypatch, advantage, steps
):
    learner = made(advantage=advantage)
    monkeypatch.setattr(learning, "token_steps", lambda graded, tokenizer: [(0, graded.reward)])
    noted, found, plain = [], [], learning.AdvantageEstimator.__call__

    def estimated(self, graded, parts, *, steps_N):
        noted.append(steps_N)
        found.append(plain(self, graded, parts, steps_N=steps_N))
        return found[-1]

    monkeypatch.setattr(learning.AdvantageEstimator, "__call__", estimated)
    rollouts = [replace(g, steps=((1, 0.5),)) for g in sampled(learner.policy, 8)]
    _, advantages_N = learner.learn(0, rollouts, Random(7))
    assert torch.equal(advantages_N, found[0][1]) and advantages_N.any()
    assert noted == [[[(0, g.reward)] for g in rollouts] if steps else None]


@pytest.mark.parametrize(
    ("asked", "supported", "critic", "shared"),
    [
        (True, ("policy", "trunk"), "separate", True),
        (True, ("policy",), "separate", False),
        (True, ("policy",), "shared", True),
        (True, ("trunk",), "separate", False),
        (False, ("policy", "trunk"), "separate", False),
    ],
)
def test_prompts_are_shared_where_the_recipe_asks_and_every_model_can(
    made, sampled, updates, monkeypatch, asked, supported, critic, shared
):
    learner = made(preset="ppo", critic=critic, trainer={"share_prompts": asked})
    models = {"policy": learner.policy, "trunk": learner.critic.trunk}
    able = [models[name] for name in supported]
    monkeypatch.setattr(
        learning, "supports_shared_prompts", lambda model: any(model is one for one in able)
    )
    noted = []
    plain = learning.minibatches

    def minibatches(*arguments, **settings):
        noted.append(settings)
        return plain(*arguments, **settings | {"share_prompts": False})

    monkeypatch.setattr(learning, "minibatches", minibatches)
    shuffle = Random(7)
    learner.learn(0, sampled(learner.policy, 8), shuffle)
    (settings,) = noted
    assert settings["share_prompts"] is shared and settings["shuffle"] is shuffle
    assert (settings["max_tokens"], settings["ranks"]) == (9, 1)


@pytest.mark.parametrize("skip", [True, False])
def test_answers_without_a_gradient_are_left_out_where_the_recipe_says_so(
    made, sampled, updates, monkeypatch, skip
):
    monkeypatch.setattr(learning, "without_gradient", lambda *_: frozenset({1}))
    noted = Noted([0, 2])
    monkeypatch.setattr(learning, "forwarded", noted)
    learn(made(trainer={"skip_zero_advantages": skip}), sampled)
    assert {skipped for (_, _, skipped), _ in noted.calls} == {frozenset({1} if skip else ())}


def test_values_of_tokens_are_those_of_the_last_turn(made, sampled):
    learner = made(minibatches=1)
    learner.learn(0, sampled(learner.policy, 8), Random(7))
    assert sorted(learner.token_trace()) == list(range(8))
    learner.learn(1, sampled(learner.policy, 4), Random(7))
    assert sorted(learner.token_trace()) == list(range(4))


def test_the_weight_of_the_kl_penalty_is_a_metric_where_it_is_adapted(made):
    learner = made(preset="ppo_klpen", old_kl_target=0.01)
    learner.done, learner.old_kl_coefficient = 3, 0.5
    assert learner.metrics() == {"optimizer_steps": 3.0, "old_kl_coefficient": 0.5}
    assert made().metrics() == {"optimizer_steps": 0.0}


@pytest.mark.parametrize("models", [True, False])
def test_a_state_has_what_each_part_keeps_and_gives_it_back(made, models):
    learner = made(preset="ppo", kl_coefficient=0.1) if models else made(kl_coefficient=0.0)
    learner.done, learner.old_kl_coefficient = 3, 0.5

    def part(name):
        return SimpleNamespace(state=Noted(f"{name} state"), load=Noted(), check=Noted())

    optimizer, reference, critic = (part(name) for name in ("optimizer", "reference", "critic"))
    learner.context = replace(learner.context, optimizer=optimizer)
    if models:
        learner.reference, learner.critic = reference, critic
    state = learner.state()
    past = state.pop("past")
    assert state == {
        "done": 3, "optimizer": "optimizer state", "old_kl_coefficient": 0.5,
        "reference": "reference state" if models else None,
        "critic": "critic state" if models else None,
    }  # fmt: skip
    changed = {name: value + 1 for name, value in past.items()}
    learner.load(state | {"done": 7, "old_kl_coefficient": 0.25, "past": changed})
    assert (learner.done, learner.old_kl_coefficient) == (7, 0.25)
    assert learner.state()["past"] == changed
    assert optimizer.load.calls == [(("optimizer state",), {})]
    for name, one in (("reference", reference), ("critic", critic)):
        assert one.load.calls == ([((f"{name} state",), {})] if models else [])
    assert reference.check.calls == ([((7,), {})] if models else [])


def test_a_turn_has_the_same_random_numbers_in_every_process():
    first = turn_random("shuffle", 3, 5).random()
    assert turn_random("shuffle", 3, 5).random() == first == Random("shuffle/3/5").random()
