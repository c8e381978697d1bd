"""Called on every rank: compares what several ranks learn from examples with what one process
learns."""

from functools import partial
from random import Random

import torch

from tests.pipeline.cluster.ranks import VOCABULARY, joint_gap, model_of, write_differences
from veriloop.data.preference_ids import EncodedAnswer
from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.preference import PreferenceLossConfig, RewardModelRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.distill import logit_step
from veriloop.pipeline.losses.distillation import TopK
from veriloop.pipeline.model.policy import without_dropout
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import SINGLE, whole, whole_state
from veriloop.pipeline.preference import reward_training, step
from veriloop.pipeline.preference.examples import Example, Match, mismatched
from veriloop.pipeline.preference.reference_pass import log_probs
from veriloop.pipeline.sft import step as sft_step
from veriloop.pipeline.training.optimizer import Optimizer


class Case:
    """A model, the gradient to compare, and what is computed without one."""

    muon = 0.0

    def __init__(self, trainer):
        self.trainer = TrainerConfig(device="cpu", row=16, rows=2, **trainer)
        self.random = Random(1)

    def ids(self, low, high):
        return tuple(
            self.random.randrange(3, VOCABULARY) for _ in range(self.random.randint(low, high))
        )

    def answer(self, prompt=None, segments=1):
        ids = self.ids(segments, 14)
        parts = tuple(i * segments // len(ids) for i in range(len(ids)))
        return EncodedAnswer(prompt=prompt or self.ids(2, 6), completion=ids, segments=parts)

    def model(self):
        return model_of(self, tied=True)


class Rows(Case):
    def __init__(self, count=9, muon=0.0, **trainer):
        super().__init__(trainer)
        self.muon = muon
        ids = [self.ids(4, 16) for _ in range(count)]
        self.rows = [
            EncodedExample(ids=i, learned=(False, False) + (True,) * (len(i) - 2)) for i in ids
        ]

    def gradient(self, model, ranks):
        return sft_step.gradient(model, self.rows, self.trainer, ranks)

    def measured(self, model, ranks):
        return sft_step.measure(model, self.rows, self.trainer, ranks)


class Logits(Rows):
    def __init__(self, count=9):
        super().__init__(count)
        torch.manual_seed(2)
        self.targets = {}
        for row in self.rows:
            logq = torch.randn(row.targets, VOCABULARY).log_softmax(-1)
            kept, ids = logq.topk(4)
            rest = torch.log1p(-kept.exp().sum(-1))
            self.targets[row] = TopK(ids_XK=ids, logq_XK=kept, rest_X=rest)

    def gradient(self, model, ranks):
        return logit_step.gradient(model, self.rows, self.targets, self.trainer, 1.0, ranks)

    def measured(self, model, ranks):
        return logit_step.measure(model, self.rows, self.targets, self.trainer, 1.0, ranks)


class Pairs(Case):
    def __init__(self, count=7, segments=1, trainer=(), **loss):
        super().__init__(dict(trainer))
        self.objective = step.PreferenceObjective(
            loss=PreferenceLossConfig(**loss), trainer=self.trainer, weights=(1.0, 1.0)
        )
        self.examples = self.pairs(count, segments)
        if loss["name"] == "kto":
            answers = [example.answers[0] for example in self.examples]
            self.examples = mismatched(answers, [i % 3 > 0 for i in range(count)])
        scores = [[self.random.uniform(-30, -5) for _ in range(2 * segments)] for _ in range(count)]
        self.reference = [*map(torch.tensor, scores)] if self.objective.loss.has_reference else None

    def pairs(self, count, segments):
        matches = tuple(
            Match(chosen=i, rejected=i, chosen_score=0.9, rejected_score=0.2)
            for i in range(segments)
        )
        prompts = [self.ids(2, 6) for _ in range(count)]
        both = [tuple(self.answer(prompt, segments) for _ in range(2)) for prompt in prompts]
        return [Example(answers=answers, gap=1.0, matches=matches) for answers in both]

    def gradient(self, model, ranks):
        return step.gradient(model, self.examples, self.reference, self.objective, ranks)

    def measured(self, model, ranks):
        logps = log_probs(model, self.examples, self.trainer, ranks)
        own = step.measure(model, self.examples, self.reference, self.objective, ranks)
        return own | {f"logps {i}": logp_S.sum().item() for i, logp_S in enumerate(logps)}


class Rewards(Case):
    def __init__(self, sizes=(2,) * 7, **loss):
        super().__init__({})
        self.recipe = RewardModelRecipe.model_validate(
            {"name": "t", "start": "given", "optimizer": {"learning_rate": 1e-3}, **loss}
        ).model_copy(update={"trainer": self.trainer})
        prompts = [self.ids(2, 6) for _ in sizes]
        self.rankings = [
            tuple(self.answer(prompt) for _ in range(size))
            for prompt, size in zip(prompts, sizes, strict=True)
        ]

    def model(self):
        from transformers import Qwen2ForSequenceClassification

        config = model_of(self, tied=True).config
        config.num_labels, config.pad_token_id = 1, 0
        torch.manual_seed(0)
        model = Qwen2ForSequenceClassification(config)
        return prepare(without_dropout(model).train(), self.trainer)

    def gradient(self, model, ranks):
        return reward_training.gradient(model, self.rankings, self.recipe, ranks)

    def measured(self, model, ranks):
        answers = [answer for ranking in self.rankings for answer in ranking]
        rewards = reward_training.rewards_of(model, answers, self.trainer, ranks)
        own = reward_training.measure(model, self.rankings, self.trainer, ranks)
        return own | {f"reward {i}": reward.item() for i, reward in enumerate(rewards)}


CASES = {
    "rows": Rows,
    "one row": partial(Rows, 1),
    "adapters": partial(Rows, lora={"rank": 4}),
    "checkpointing": partial(Rows, gradient_checkpointing=True),
    "muon": partial(Rows, muon=1e-3),
    "logits": Logits,
    "logits of one row": partial(Logits, 1),
    "dpo": partial(Pairs, name="dpo", label_smoothing=0.1),
    "dpo on one pair": partial(Pairs, 1, name="dpo"),
    "dpo without shared prompts": partial(
        Pairs, name="dpo", trainer={"share_prompts": False, "packed_attention": False}
    ),
    "ipo": partial(Pairs, name="ipo", length="mean"),
    "kto": partial(Pairs, name="kto"),
    "cpo": partial(Pairs, name="cpo"),
    "simpo": partial(Pairs, name="simpo"),
    "orpo": partial(Pairs, name="orpo"),
    "two_d_dpo": partial(Pairs, segments=2, name="two_d_dpo"),
    "rewards": partial(Rewards, centring=0.1),
    "rewards of one pair": partial(Rewards, (2,)),
    "rankings": partial(Rewards, (4, 2, 4, 3, 4, 2), ranking="plackett_luce"),
}


def learned(case, ranks, steps=3):
    """Gradients, metrics and weights of some optimizer steps."""
    case = CASES[case]()
    model = case.model()
    ranks.shard(model)
    rates = {"learning_rate": 2e-3, "muon_learning_rate": case.muon}
    optimizer = Optimizer(model, OptimizerConfig(**rates))
    gradients, metrics = [], []
    for done in range(steps):
        found = case.gradient(model, ranks)
        gradients.append([whole(p.grad).clone() for p in model.parameters() if p.requires_grad])
        norm, _ = optimizer.step(done / steps, done)
        metrics.append(found | {"grad_norm": norm})
        if not done:
            metrics[0] |= {f"later {k}": v for k, v in case.measured(model, ranks).items()}
    return gradients, metrics, list(whole_state(model).values())


def compare(case, group):
    """{quantity: difference} on rank 0; quantities after the first step begin with "later"."""
    own, own_metrics, own_weights = learned(case, group)
    if group.rank:
        return {}
    alone, metrics, weights = learned(case, SINGLE)
    result = {
        "gradient": joint_gap(alone[0], own[0]),
        "later gradients": max(map(joint_gap, alone[1:], own[1:])),
        "later weights": joint_gap(weights, own_weights),
    }
    for prefix, one, other in zip(("", "later ", "later "), metrics, own_metrics, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            key = f"{prefix}{name}"
            result[key] = max(result.get(key, 0.0), abs(value - other[name]) / max(abs(value), 0.1))
    return result


def main(file, cases):
    write_differences(file, cases, compare)
