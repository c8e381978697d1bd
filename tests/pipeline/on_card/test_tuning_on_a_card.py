"""Supervised learning, distillation and preferences on a card: the numbers are those of before."""

from random import Random

import pytest
import torch

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.preference import PreferenceLossConfig, RewardModelRecipe
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill import logit_step as logits
from veriloop.pipeline.distill.teacher_pass import TopKOptions, score_top_k
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.preference import reward_training
from veriloop.pipeline.preference import step as preference
from veriloop.pipeline.preference.examples import Example, Match, mismatched
from veriloop.pipeline.preference.reference_pass import log_probs
from veriloop.pipeline.sft import step as sft

ROWS = {"row": 24, "rows": 2, "logits_chunk": 7}


def gradient(model):
    found = torch.cat([p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def examples(count):
    random, made = Random(0), []
    for _ in range(count):
        prompt, answer = random.randint(1, 4), random.randint(1, 6)
        ids = tuple(random.randrange(1, 40) for _ in range(prompt + answer))
        made.append(EncodedExample(ids=ids, learned=(False,) * prompt + (True,) * answer))
    return made


@pytest.mark.slow
def test_supervised_learning(on_both, tiny_llama):
    def work(device):
        trainer = TrainerConfig(device=device, **ROWS)
        model = prepare(tiny_llama(), trainer)
        told = sft.gradient(model, examples(9), trainer)
        return told | sft.measure(model, examples(9), trainer) | {"gradient": gradient(model)}

    on_both(work)


@pytest.mark.slow
@pytest.mark.parametrize(("compute", "close"), [("float32", 1e-5), ("bfloat16", 0.03)])
def test_a_teachers_distributions(on_both, card, tiny_llama, compute, close):
    """In bfloat16 on a card the logits are of a product in float32."""

    def work(device):
        trainer = TrainerConfig(device=device, compute=compute, **ROWS)
        model = prepare(tiny_llama(spread=0.2), trainer)
        teacher = prepare(tiny_llama(seed=1, spread=0.2), trainer)
        options = TopKOptions(k=5, ids=40, temperature=1.5, trainer=trainer)
        kept = dict(zip(examples(9), score_top_k(teacher, examples(9), options), strict=True))
        assert all(one.logq_XK.device.type == "cpu" for one in kept.values())
        told = logits.gradient(model, examples(9), kept, trainer, 1.5)
        return told | logits.measure(model, examples(9), kept, trainer, 1.5) | {
            "gradient": gradient(model)
        }  # fmt: skip

    found = on_both(work, close=close)
    assert found["gradient"].dtype == torch.float32


def answer(random, prompt, segments=1):
    length = random.randint(segments, segments + 5)
    return EncodedAnswer(
        prompt=prompt,
        completion=tuple(random.randrange(1, 40) for _ in range(length)),
        segments=tuple(i * segments // length for i in range(length)),
    )


def pairs(count, segments=2):
    random, found = Random(0), []
    for _ in range(count):
        prompt = tuple(random.randrange(1, 40) for _ in range(3))
        both = answer(random, prompt, segments), answer(random, prompt, segments)
        match = Match(chosen=segments - 1, rejected=0, chosen_score=0.7, rejected_score=0.2)
        found.append(Example(answers=both, gap=random.random(), matches=(match,)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpo", "ipo", "kto", "cpo", "simpo", "orpo", "two_d_dpo"])
def test_preferences(on_both, tiny_llama, name):
    loss = PreferenceLossConfig(name=name, length="mean" if name == "ipo" else "sum")
    examples = pairs(6, segments=1 if name == "kto" else 2)
    if name == "kto":
        answers = [a for e in examples for a in e.answers]
        examples = mismatched(answers, [i % 3 > 0 for i in range(len(answers))])

    def work(device):
        trainer = TrainerConfig(device=device, row=16, rows=1, logits_chunk=7, share_prompts=False)
        policy = prepare(tiny_llama(), trainer)
        other = prepare(tiny_llama(seed=1), trainer)
        reference = log_probs(other, examples, trainer) if loss.has_reference else None
        asked = preference.PreferenceObjective(loss=loss, trainer=trainer, weights=(1.3, 0.8))
        told = preference.gradient(policy, examples, reference, asked)
        return told | {"gradient": gradient(policy)}

    on_both(work)


@pytest.fixture
def heads(tiny_classifier):
    """Two equal ones, by device; loaded before there is a card."""
    made = {name: ScalarHead(tiny_classifier) for name in ("cpu", "cuda:0")}
    for head in made.values():
        torch.nn.init.constant_(head.model.score.weight, 0.1)
    return made


@pytest.mark.slow
def test_a_reward_model(heads, on_both):
    random = Random(0)
    batch = [tuple(answer(random, (1, 5, 7)) for _ in range(k)) for k in (2, 3, 2, 4)]

    def work(device):
        told = RewardModelRecipe.model_validate(
            {"name": "n", "start": "s", "optimizer": {"learning_rate": 1e-3}}
            | {"trainer": {**ROWS, "device": device}, "centring": 0.1}
        )
        head = heads[device]
        model = prepare(head.model.train(), told.trainer)
        found = reward_training.gradient(model, batch, told)
        found |= reward_training.measure(model, batch, told.trainer)
        rewards = torch.tensor(head.rewards([a for one in batch for a in one], told.trainer))
        return found | {"gradient": gradient(model), "rewards": rewards}

    on_both(work)
