"""Reasoning RL, the first RL stage of R1: R1-Zero's rules plus a language-consistency reward.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 3.2.1): GRPO on the cold-start model with the
settings of R1-Zero, clip ratio 10 and a maximum length of 32,768 tokens. Chains of thought mixed
languages, so Reward_language = Num(Words_target) / Num(Words) over the chain is added to the
reward, at a small cost in accuracy (ablation in B.6).

Input: the cold-start checkpoint. Output: the policy checkpoint, teacher of the rejection sampling.

Differences: the target language is that of the question; a chain without words scores 0, since a
score of 1 would teach empty chains; the format reward of R1-Zero stays. `docs/verifiers.md`
defines a word. `recipes/tiny/reasoning_rl.yaml` keeps 32 questions x 16 responses and changes the
clip ratio to 0.2, the KL coefficient to 0.05 and the learning rate to 1.6e-4, for 25 rollouts of 4
mini-batches on sums and one-line programs; `recipes/paper/reasoning_rl.yaml` has the paper's
numbers.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.rl import ReasoningRecipe, ReasoningReward
from veriloop.pipeline.rollouts.grade import Task, score_of
from veriloop.pipeline.rollouts.sources import Sources
from veriloop.stages import rl
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format", "language": "language"}


def reward(verdicts: Mapping[str, Verdict], weights: ReasoningReward) -> float:
    """Reward = accuracy + format + share of words in the question's language, weighted."""
    rules = weights.accuracy * score_of(verdicts, "accuracy")
    rules += weights.format * score_of(verdicts, "format")
    return rules + weights.language * score_of(verdicts, "language")


def task(recipe: ReasoningRecipe, sources: Sources = SOURCES) -> Task:
    """Problems with a verifiable answer, rewarded by rules."""
    weights = recipe.reward
    return rl.task(
        recipe,
        VERIFIERS,
        lambda _, verdicts: reward(verdicts, weights),
        sources=sources,
    )


def run(recipe: ReasoningRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train in `output`/`name`; see `rl.run`."""
    return rl.run(recipe, task, output, resume=resume, name=name)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("reasoning-rl"))
