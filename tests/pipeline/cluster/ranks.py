"""Called on every rank: compares what several ranks learn with what one process learns."""

import copy
import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import torch

from tests.pipeline.cluster.cases import CASES
from tests.rollouts import graded
from veriloop.pipeline.cluster.rank_group import join, leave
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.distill.on_policy import OnPolicyDistiller
from veriloop.pipeline.model.policy import without_dropout
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import fingerprint
from veriloop.pipeline.model.sharded import SINGLE, gathered, sharded_state, whole, whole_state
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.training import muon
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.stop import ProcessEnd

VOCABULARY = 96


def model_of(recipe, tied, seed=0):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    model = prepare(without_dropout(Qwen2ForCausalLM(config)).train(), recipe.trainer)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):  # at 0 the adapters' other half has no gradient
            torch.nn.init.normal_(parameter, std=0.05)
    return model


@torch.no_grad()
def rollouts_of(model, count):
    """Random answers in groups of four, with the model's own log-probs."""
    random, rollouts = Random(1), []
    for i in range(count):
        if i % 4 == 0:
            prompt = [random.randrange(3, VOCABULARY) for _ in range(random.randint(3, 8))]
        response = [random.randrange(3, VOCABULARY) for _ in range(random.randint(1, 20))]
        ids = torch.tensor([[*prompt, *response]])
        logp = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        chosen = logp.gather(1, torch.tensor(response)[:, None])[:, 0]
        answer = replace(
            graded(
                prompt,
                response,
                reward=random.choice((0.0, 1.0, 2.0)),
                logp=chosen.tolist(),
                group=f"1/{i // 4}",
                finish=random.choice(("stop", "length")),
                said="x",
            ),
            steps=((1, 0.5),),
        )
        rollouts.append(answer)
    return rollouts


def learner_of(case, ranks):
    settings = CASES[case]
    values = {
        "name": "t",
        "start": "given",
        "steps": 4,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 20},
        "optimizer": {"learning_rate": 2e-3, **settings.get("optimizer", {})},
        "trainer": {"device": "cpu", "row": 16, "rows": 2, **settings.get("trainer", {})},
        "sampler": {"engine": "torch"},
    }
    if "distill" in settings:
        return distiller_of(values, settings, ranks)
    algorithm = {"kl_coefficient": 0.0, **settings.get("algorithm", {})}
    recipe = ZeroRecipe.model_validate({**values, "algorithm": algorithm})
    policy = model_of(recipe, settings.get("tied", False))
    rollouts = rollouts_of(policy, settings.get("rollouts", 16))
    generator = SimpleNamespace(tokenizer=Spelling())
    learner = PolicyLearner(recipe, policy, generator, ranks)
    return learner, rollouts


def distiller_of(values, settings, ranks):
    method = {"method": "on_policy", "teacher": "given", **settings["distill"]}
    recipe = DistillRecipe.model_validate({**values, **method})
    policy, teacher = (model_of(recipe, tied, seed=tied) for tied in (False, True))
    rollouts = rollouts_of(policy, settings.get("rollouts", 16))
    teacher.eval().requires_grad_(False)
    return OnPolicyDistiller(recipe, policy, teacher, ranks), rollouts


class Spelling:
    """A tokenizer of characters."""

    def __call__(self, text, add_special_tokens):
        del add_special_tokens
        return {"input_ids": [3 + ord(c) % (VOCABULARY - 3) for c in text]}

    def decode(self, ids, *, clean_up_tokenization_spaces):
        del clean_up_tokenization_spaces
        return "x" * len(ids)


def learned(case, ranks, turns=1, gradients=None):
    """The learner after some turns, and what a turn shows to the outside."""
    learner, rollouts = learner_of(case, ranks)
    gradients = [] if gradients is None else gradients
    with recorded(gradients):
        for turn in range(turns):
            updates, advantages_N = learner.learn(turn, rollouts, Random(turn))
            learner.renew_reference()
    return learner, gradients, updates, advantages_N


class recorded:  # noqa: N801 - a context manager
    """Keeps the gradients that optimizers are about to step with."""

    def __init__(self, gradients):
        self.gradients, self.step = gradients, Optimizer.step

    def keep(self, parameters):
        self.gradients += [whole(p.grad).clone() for p in parameters if p.grad is not None]

    def __enter__(self):
        original = self.step

        def step(optimizer, *args):
            self.keep(optimizer.parameters)
            return original(optimizer, *args)

        Optimizer.step = step

    def __exit__(self, *_):
        Optimizer.step = self.step


def gap(one, other):
    """The largest difference of two lists of tensors, relative to the norm of each."""
    pairs = [(a.double(), b.double()) for a, b in zip(one, other, strict=True)]
    return max(((a - b).norm() / a.norm().clamp(min=1e-9)).item() for a, b in pairs)


def joint_gap(one, other):
    """The difference of two lists of tensors, relative to the norm of all."""
    flat, other_flat = (torch.cat([x.flatten() for x in tensors]) for tensors in (one, other))
    return gap([flat], [other_flat])


def compare(case, group):
    """{quantity: difference} on rank 0; quantities of later steps begin with "later"."""
    learner, own, own_updates, own_advantages_N = learned(case, group)
    weights = whole_state(learner.policy)
    traces = group.collect(dict(learner.trace.seen))
    mark = fingerprint(learner.policy)
    resumed = not CASES[case].get("resumes") or same_after_resumption(case, learner, weights, group)
    if group.rank:
        return {}
    alone, gradients, updates, advantages_N = learned(case, SINGLE)
    first = len(gradients) // len(updates)
    result = {
        "gradient": gap(gradients[:first], own[:first]),
        "later gradients": joint_gap(gradients, own),
        "advantages": gap([advantages_N], [own_advantages_N]),
        "later weights": joint_gap(alone.policy.state_dict().values(), weights.values()),
        "other resumption": not resumed,
    }
    for prefix, one, other in zip(("", "later "), updates, own_updates, strict=False):
        for name, value in asdict(one).items():
            if isinstance(value, float):
                difference = abs(value - asdict(other)[name]) / max(abs(value), 1e-3)
                result[f"{prefix}{name}"] = difference
            else:
                result[f"{prefix}other {name}"] = value != asdict(other)[name]
    seen = {number: tokens for trace in traces for number, tokens in trace.items()}
    result["other rollouts"] = seen.keys() != alone.trace.seen.keys()
    for number, tokens in alone.trace.seen.items():
        result[f"later trace {number}"] = gap([tokens.logp_T], [seen[number].logp_T])
    alone.policy.load_state_dict(weights)
    result["other fingerprint"] = fingerprint(alone.policy) != mark
    return result


def same_after_resumption(case, learner, weights, group):
    """Whether a learner with the saved state learns what the one that saved it learns next."""
    state = copy.deepcopy(gathered(learner.state()))  # the numbers of steps would be shared
    again, rollouts = learner_of(case, group)
    again.policy.load_state_dict(sharded_state(again.policy, weights))
    again.load(state)
    turns = []
    for each in (learner, again):
        gradients = []
        with recorded(gradients):
            each.learn(1, rollouts, Random(1))
        turns.append([*gradients, *whole_state(each.policy).values()])
    return all(torch.equal(a, b) for a, b in zip(*turns, strict=True))


def orthogonal(x_BMN, coefficients, steps, eps):
    """Muon's iterations in float32: in bfloat16 a difference in the last bit of a gradient can be
    one in the third digit of the direction."""
    a, b, c = coefficients
    x_BMN = x_BMN / torch.linalg.vector_norm(x_BMN, dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram_BMM = x_BMN @ x_BMN.mT
        x_BMN = a * x_BMN + (b * gram_BMM + c * gram_BMM @ gram_BMM) @ x_BMN
    return x_BMN


def main(file, cases):
    write_differences(file, cases, compare)


def write_differences(file, cases, compare):
    """Write {case: {quantity: relative difference}} to the file, as JSON."""
    end = ProcessEnd()
    group = join("cpu", 300.0)
    muon.orthogonal = orthogonal
    results = {}
    for case in cases:
        try:
            results[case] = compare(case, group)
        except Exception as failure:
            raise RuntimeError(f"case {case!r} failed on rank {group.rank}") from failure
        if group.rank == 0:
            print(case, results[case], flush=True)
    if group.rank == 0:
        Path(file).write_text(json.dumps(results))
    leave()
    end.code = 0
