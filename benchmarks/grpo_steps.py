"""One GRPO update on synthetic answers: random ids, random rewards, any size."""

from collections.abc import Callable
from random import Random
from typing import Any

import publish  # noqa: F401  puts this checkout on the path
import torch

from veriloop.data.problem import Problem
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.model.policy import without_dropout
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.estimator import AdvantageEstimator, score_parts
from veriloop.pipeline.rl.minibatches import minibatches
from veriloop.pipeline.rl.update import UpdateContext, update
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.types import Graded, Rollout, Update

ALGORITHM = AlgorithmConfig(minibatches=1, kl_coefficient=0.0)
GROUP = 8  # answers to one question


def qwen2(**sizes: int) -> Any:
    """A Qwen2 of these sizes with random weights and a tied head."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(**sizes, tie_word_embeddings=True, max_position_embeddings=65_536)
    return without_dropout(Qwen2ForCausalLM(config)).train()


def answers(count: int, prompt: int, answer: int, vocabulary: int) -> list[Graded]:
    """`count` rollouts of fixed lengths, with random rewards of 0 and 1."""
    random = Random(0)
    problem = Problem(id="p/0", prompt="?", verifier="number", reference={"value": "1"})

    def ids(length: int) -> tuple[int, ...]:
        return tuple(random.randrange(1, vocabulary) for _ in range(length))

    def one(i: int) -> Graded:
        rollout = Rollout(
            group=f"1/{i // GROUP}",
            problem=problem,
            prompt_ids=ids(prompt),
            response_ids=ids(answer),
            logp=(-8.0,) * answer,
            response="",
            finish="stop",
            temperature=1.0,
            policy_version=0,
        )
        return Graded(rollout=rollout, verdicts={}, reward=float(i % GROUP < random.randint(1, 7)))

    return [one(i) for i in range(count)]


def stepper(
    model: Any, graded: list[Graded], trainer: TrainerConfig, ranks: Ranks = SINGLE
) -> Callable[[], Update]:
    """A function that makes one whole update: rows, advantages, both passes, the optimizer.
    `ranks` divide the model."""
    prepare(model, trainer)
    ranks.shard(model)
    learner = UpdateContext(
        policy=model,
        optimizer=Optimizer(model, OptimizerConfig(learning_rate=1e-6)),
        algorithm=ALGORITHM,
        chunk=trainer.logits_chunk,
        ranks=ranks,
    )
    longest = max(len(g.rollout.response_ids) for g in graded)

    def step() -> Update:
        parts = minibatches(graded, ALGORITHM, trainer, max_tokens=longest, shuffle=Random(0))
        parts = score_parts(model, None, None, parts, ALGORITHM, trainer.logits_chunk, ranks)
        (part,), _ = AdvantageEstimator(ALGORITHM, RunningMean())(graded, parts)
        return update(learner, part, progress=0.0, done=0)

    return step
