"""R1-Zero: reinforcement learning on a base model, without supervised fine-tuning.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 2): GRPO with a rule-based reward of two equally
weighted parts, accuracy and format; no neural reward model. 32 questions a step and 16 responses
to each at temperature 1; 8,192 responses a rollout, split into 16 mini-batches; learning rate
3e-6, KL coefficient 0.001, reference replaced by the policy every 400 steps; 10,400 steps.

Input: a base checkpoint and problems with verifiers. Output: the policy checkpoint.

`recipes/tiny/zero.yaml` trains a base of 580 k parameters on chains of sums: 640 responses a
rollout (40 x 16) in 4 mini-batches, 50 rollouts, learning rate 1.6e-4 (53 times the paper's) on a
cosine to a tenth, KL coefficient 0.2, reference replaced every 80 steps. `recipes/paper/zero.yaml`
has the paper's numbers, with the maximum length of 32,768 tokens throughout (65,536 after step
8,200 in the paper).
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.rl import RewardConfig, ZeroRecipe
from veriloop.pipeline.rollouts.grade import Task, score_of
from veriloop.pipeline.rollouts.sources import Sources
from veriloop.stages import rl
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier


def reward(verdicts: Mapping[str, Verdict], weights: RewardConfig) -> float:
    """Reward_rule = Reward_accuracy + Reward_format (section 2.2), weighted by the recipe."""
    rules = weights.accuracy * score_of(verdicts, "accuracy")
    return rules + weights.format * score_of(verdicts, "format")


def task(recipe: ZeroRecipe, sources: Sources = SOURCES) -> Task:
    """Problems with a verifiable answer, rewarded by rules."""
    weights = recipe.reward
    return rl.task(
        recipe,
        VERIFIERS,
        lambda _, verdicts: reward(verdicts, weights),
        sources=sources,
    )


def run(recipe: ZeroRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train in `output`/`name`; see `rl.run`."""
    return rl.run(recipe, task, output, resume=resume, name=name)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("zero"))
