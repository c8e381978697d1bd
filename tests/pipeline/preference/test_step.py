"""A step on preferences: the loss that was named, and the same gradient however it is split."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.losses import preference
from veriloop.pipeline.losses.preference import two_d_dpo
from veriloop.pipeline.model.sharded import Ranks
from veriloop.pipeline.preference.logps import segment_logps
from veriloop.pipeline.preference.reference_pass import log_probs
from veriloop.pipeline.preference.step import PreferenceObjective, gradient, learn, measure
from veriloop.pipeline.training.optimizer import Optimizer

ONE = TrainerConfig(row=64, rows=64, logits_chunk=7)
MANY = TrainerConfig(row=16, rows=1, logits_chunk=7)
LOSSES = {
    "dpo": {"beta": 0.3, "label_smoothing": 0.1},
    "dpo_likelihood": {"beta": 0.3, "likelihood": 0.7},
    "ipo": {"tau": 0.2},
    "ipo_mean": {"tau": 0.2, "length": "mean"},
    "cpo": {"beta": 0.3, "cloning": 0.7, "label_smoothing": 0.1},
    "simpo": {"beta": 2.0, "gamma": 0.4},
    "orpo": {"odds_weight": 0.3},
    "two_d_dpo": {"beta": 0.3},
    "kto": {"beta": 0.3, "desirable_weight": 1.3, "undesirable_weight": 0.8},
}


def config(name):
    return PreferenceLossConfig(
        name=name.removesuffix("_mean").removesuffix("_likelihood"), **LOSSES[name]
    )


@pytest.fixture
def case(tiny_llama, pairs, labelled_answers):
    """Function: (policy, examples, reference or None, loss config) of a loss."""

    def build(name):
        policy, other = tiny_llama(0), tiny_llama(1)
        segments = 3 if name == "two_d_dpo" else 1
        examples = labelled_answers(9) if name == "kto" else pairs(6, segments=segments)
        loss = config(name)
        reference = log_probs(other, examples, ONE) if loss.has_reference else None
        return policy, examples, reference, loss

    return build


def objective(loss, trainer=ONE):
    w = (loss.desirable_weight, loss.undesirable_weight) if loss.name == "kto" else (1.0, 1.0)
    return PreferenceObjective(loss=loss, trainer=trainer, weights=w)


def taken(model):
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_any_split_into_micro_batches_has_the_same_gradient_and_numbers(case, name):
    policy, examples, reference, loss = case(name)
    one = gradient(policy, examples, reference, objective(loss))
    whole = taken(policy)
    many = gradient(policy, examples, reference, objective(loss, MANY))
    assert_close(taken(policy), whole, atol=2e-6 * max(1.0, whole.norm().item()), rtol=1e-4)
    assert many == pytest.approx(one, abs=1e-4, rel=1e-4)
    assert whole.norm() > 1e-3
    assert measure(policy, examples, reference, objective(loss, MANY)) == pytest.approx(
        one, abs=1e-4
    )
    assert all(p.grad is None for p in policy.parameters())


def sums(model, examples, side):
    answers = [e.answers[side] for e in examples]
    with torch.no_grad():
        parts = segment_logps(model, answers, TrainerConfig(row=64, logits_chunk=50))
    return parts.reshape(len(answers), -1).sum(1), torch.tensor(
        [len(a.completion) for a in answers]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in LOSSES if n not in ("kto", "two_d_dpo")])
def test_the_loss_is_the_pure_function_of_its_name(case, tiny_llama, name):
    policy, examples, reference, loss = case(name)
    (chosen, long), (rejected, short) = (sums(policy, examples, side) for side in (0, 1))
    (ref_chosen, _), (ref_rejected, _) = (sums(tiny_llama(1), examples, side) for side in (0, 1))
    both, told = (chosen, rejected, ref_chosen, ref_rejected), {"pairs": len(examples)}
    settings = {k: v for k, v in LOSSES[name].items() if k not in ("length", "odds_weight")}
    expected = {
        "dpo": lambda: preference.dpo(*both, **settings, **told),
        "dpo_likelihood": lambda: preference.dpo(*both, **settings, **told, tokens_P=long),
        "ipo": lambda: preference.ipo(*both, **settings, **told),
        "ipo_mean": lambda: preference.ipo(*both, **settings, **told, lengths=(long, short)),
        "cpo": lambda: preference.cpo(chosen, rejected, **settings, **told),
        "simpo": lambda: preference.simpo(chosen / long, rejected / short, **settings, **told),
        "orpo": lambda: preference.orpo(chosen / long, rejected / short, weight=0.3, **told),
    }[name]()
    got = measure(policy, examples, reference, objective(loss))
    assert got["loss"] == pytest.approx(expected.item(), abs=1e-5, rel=1e-5)
    per_token = name in ("ipo_mean", "simpo", "orpo")
    lengths = (long, short) if per_token else (1, 1)
    scale = loss.tau if loss.name == "ipo" else loss.beta
    ratios = (chosen, rejected)
    if reference is not None:
        ratios = (chosen - ref_chosen, rejected - ref_rejected)
    good, bad = (scale * r / n for r, n in zip(ratios, lengths, strict=True))
    assert got["rewards/chosen"] == pytest.approx(good.mean().item(), abs=1e-5, rel=1e-5)
    assert got["rewards/rejected"] == pytest.approx(bad.mean().item(), abs=1e-5, rel=1e-5)
    assert got["rewards/margins"] == pytest.approx((good - bad).mean().item(), abs=1e-5, rel=1e-5)
    assert got["rewards/accuracies"] == pytest.approx((good > bad).float().mean().item())
    assert got["logps/chosen"] == pytest.approx(chosen.mean().item(), abs=1e-4)
    assert got["logps/rejected"] == pytest.approx(rejected.mean().item(), abs=1e-4)


def test_matched_segments_are_compared(case, tiny_llama):
    policy, examples, reference, loss = case("two_d_dpo")
    parts = {}
    for which, model in (("own", policy), ("ref", tiny_llama(1))):
        for side in (0, 1):
            answers = [e.answers[side] for e in examples]
            with torch.no_grad():
                parts[which, side] = segment_logps(
                    model, answers, TrainerConfig(row=64, logits_chunk=50)
                ).reshape(-1, 3)
    picked = [(p, m) for p, e in enumerate(examples) for m in e.matches]
    columns = [
        torch.stack([parts[which, side][p, m.rejected if side else m.chosen] for p, m in picked])
        for which in ("own", "ref")
        for side in (0, 1)
    ]
    scores = [torch.tensor([getattr(m, f"{x}_score") for _, m in picked]) for x in
              ("chosen", "rejected")]  # fmt: skip
    expected = two_d_dpo(*columns, *scores, beta=0.3, pairs=6)
    got = measure(policy, examples, reference, objective(loss))["loss"]
    assert got == pytest.approx(expected.item(), abs=1e-5, rel=1e-5)


def test_kto_reads_the_mismatched_answers_of_the_whole_step(case, tiny_llama):
    policy, examples, reference, loss = case("kto")
    own, strange = (sums(policy, examples, side)[0] for side in (0, 1))
    theirs, ref_strange = (sums(tiny_llama(1), examples, side)[0] for side in (0, 1))
    point = (strange - ref_strange).mean().clamp(min=0)
    liked = torch.tensor([e.label for e in examples])
    expected = preference.kto(
        own, theirs, liked, point, beta=0.3, weights=(1.3, 0.8), examples=len(examples)
    )
    got = measure(policy, examples, reference, objective(loss, MANY))
    assert got["loss"] == pytest.approx(expected.item(), abs=1e-5, rel=1e-5)
    assert got["kl"] == pytest.approx(point.item(), abs=1e-5, rel=1e-5)
    gains = 0.3 * (own - theirs)
    assert got["rewards/chosen"] == pytest.approx(gains[liked].mean().item(), abs=1e-5, rel=1e-5)
    assert got["rewards/rejected"] == pytest.approx(gains[~liked].mean().item(), abs=1e-5, rel=1e-5)
    assert got["logps/chosen"] == pytest.approx(own[liked].mean().item(), abs=1e-4)
    assert got["logps/rejected"] == pytest.approx(own[~liked].mean().item(), abs=1e-4)
    assert "rewards/accuracies" not in got


@pytest.mark.parametrize("liked", [(True, False, True), (False, True, False), (True, True, True)])
def test_means_of_kto_are_over_the_answers_of_each_label(case, tiny_llama, liked):
    policy, examples, _, loss = case("kto")
    examples = [replace(e, label=label) for e, label in zip(examples, liked, strict=False)]
    reference = log_probs(tiny_llama(1), examples, ONE)
    own, theirs = (sums(model, examples, 0)[0] for model in (policy, tiny_llama(1)))
    got = measure(policy, examples, reference, objective(loss))
    for side, label in (("chosen", True), ("rejected", False)):
        mine = torch.tensor(liked) == label
        logp = own[mine].mean().item() if mine.any() else 0.0
        reward = 0.3 * (own - theirs)[mine].mean().item() if mine.any() else 0.0
        assert got[f"logps/{side}"] == pytest.approx(logp, abs=1e-4)
        assert got[f"rewards/{side}"] == pytest.approx(reward, abs=1e-5)


def test_the_gradient_of_kto_does_not_pass_through_its_reference_point(case):
    policy, examples, reference, loss = case("kto")
    strange = sums(policy, examples, 1)[0]
    theirs = [torch.stack([r[0], s - 3.0]) for r, s in zip(reference, strange, strict=True)]
    got = gradient(policy, examples, theirs, objective(loss, MANY))
    assert got["kl"] == pytest.approx(3.0, abs=1e-4)
    found = taken(policy)
    own = segment_logps(
        policy, [e.answers[0] for e in examples], TrainerConfig(row=64, logits_chunk=50)
    )
    preference.kto(
        own,
        torch.stack([r[0] for r in reference]),
        torch.tensor([e.label for e in examples]),
        torch.tensor(3.0),
        beta=0.3,
        weights=(1.3, 0.8),
        examples=len(examples),
    ).backward()
    expected = taken(policy)
    assert expected.norm() > 1e-3
    assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpo", "ipo", "two_d_dpo", "kto"])
def test_a_run_begins_at_its_reference(case, name):
    policy, examples, _, loss = case(name)
    loss = loss.model_copy(update={"label_smoothing": 0.0})
    reference = log_probs(policy, examples, ONE)
    got = measure(policy, examples, reference, objective(loss))
    first = {"dpo": math.log(2), "ipo": (1 / 0.4) ** 2, "two_d_dpo": 3 * math.log(2)}
    if name == "kto":
        liked = sum(e.label for e in examples)
        first["kto"] = (1.3 * liked + 0.8 * (9 - liked)) / 2 / 9
    assert got["loss"] == pytest.approx(first[name], abs=1e-4)
    assert got["rewards/margins"] == pytest.approx(0, abs=1e-5, rel=1e-5)
    assert got.get("rewards/accuracies", 0.5) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_steps_lower_the_loss_and_open_the_margin(case, name):
    policy, examples, reference, loss = case(name)
    optimizer = Optimizer(policy, OptimizerConfig(learning_rate=3e-3))
    told = [
        learn(policy, optimizer, examples, reference, objective(loss), progress=i / 8, done=i)
        for i in range(8)
    ]
    after = measure(policy, examples, reference, objective(loss))
    assert after["loss"] < told[0]["loss"]
    assert after["rewards/margins"] > told[0]["rewards/margins"]
    assert told[0]["grad_norm"] > 0 and told[0]["learning_rate"] == 3e-3


def test_the_other_ranks_are_told_of_a_step_between_its_gradient_and_its_own(case, monkeypatch):
    policy, examples, reference, loss = case("dpo")
    optimizer, order = Optimizer(policy, OptimizerConfig(learning_rate=3e-3)), []

    class Others(Ranks):
        def together(self, function, model, *values):
            order.append(function.__name__)
            return super().together(function, model, *values)

        def command(self, *message):
            order.append(message)

    def stepped(*place, own=optimizer.step):
        order.append("own step")
        return own(*place)

    monkeypatch.setattr(optimizer, "step", stepped)
    asked = objective(loss)
    learn(policy, optimizer, examples, reference, asked, progress=0.5, done=3, ranks=Others())
    assert order == ["gradient", ("step", 0.5, 3), "own step"]
