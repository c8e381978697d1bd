"""Second RL stage of R1: rules for reasoning prompts, a reward model for general prompts.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 3.2.2): Reward = Reward_reasoning + Reward_general
+ Reward_language. Reasoning prompts keep the rules; general prompts get the reward model's score
plus format; language consistency applies to all. Helpfulness is scored on the final summary only,
harmlessness on the whole response (section 3.1). 1,700 steps with most settings of the first stage,
at temperature 0.7 (higher ones gave incoherent text); general prompts and the
preference reward join in the last 400 steps, because more of them leads to reward hacking (B.5).

Input: the SFT checkpoint and the reward model. Output: the final policy, DeepSeek-R1 in the paper.

Differences: one scalar head serves as both reward models (helpful and safety). General prompts are
sampled from the first step, rewarded for format and language; the preference score counts from
`reward.preference_from` on, squashed into (0, 1) so that it never exceeds a correct answer.
`reward.preference_scale: none` rewards the raw score instead, as in classical RLHF
(`recipes/tiny/rlhf.yaml`).
The exact rule for general prompts is recorded as accuracy and never rewarded: if it falls behind
`rewards/preference/mean`, the policy is hacking the reward model. `recipes/tiny/preference_rl.yaml`
runs 24 rollouts of 32 x 16 responses in 4 mini-batches, the last 6 with the preference reward.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from veriloop.data.problem import GENERAL
from veriloop.data.sources import SOURCES, source_of
from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.rl import PreferenceReward, PreferenceRLRecipe
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.preference.reward_judge import RAW, PreferenceJudge
from veriloop.pipeline.rollouts.grade import Task, score_of
from veriloop.pipeline.rollouts.sources import Sources
from veriloop.pipeline.types import Rollout
from veriloop.stages import rl
from veriloop.stages.rl import with_recipe_terms
from veriloop.verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format", "language": "language"}


def reward(
    verdicts: Mapping[str, Verdict], weights: PreferenceReward, *, general: bool, late: bool
) -> float:
    """Reward = (reasoning: accuracy; general: preference, if `late`) + format + language."""
    if not general:
        main = weights.accuracy * score_of(verdicts, "accuracy")
    else:
        main = weights.preference * preference_of(verdicts, weights) if late else 0.0
    rules = weights.format * score_of(verdicts, "format")
    return main + rules + weights.language * score_of(verdicts, "language")


def preference_of(verdicts: Mapping[str, Verdict], weights: PreferenceReward) -> float:
    """The reward model's score: in (0, 1), or centred and unbounded without a scale."""
    score = score_of(verdicts, "preference")
    return verdicts["preference"].components[RAW] if weights.preference_scale == "none" else score


def task(recipe: PreferenceRLRecipe, sources: Sources = SOURCES) -> Task:
    """Reasoning and general problems; the preference score is recorded from the first step."""
    weights = recipe.reward

    def phase_reward(rollout: Rollout, verdicts: Mapping[str, Verdict], *, late: bool) -> float:
        general = source_of(rollout.problem) == GENERAL
        return reward(verdicts, weights, general=general, late=late)

    head = ScalarHead(find_checkpoint(weights.reward_model, "reward.reward_model"))
    work = rl.task(recipe, VERIFIERS, partial(phase_reward, late=False), sources=sources)
    scale = None if weights.preference_scale == "none" else weights.preference_scale
    judge = PreferenceJudge(head, recipe.trainer, scale=scale)
    return replace(
        work,
        late_reward=with_recipe_terms(recipe, partial(phase_reward, late=True)),
        late_from=recipe.preference_turn,
        batch_judges={**work.batch_judges, "preference": judge},
    )


def run(recipe: PreferenceRLRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train in `output`/`name`; see `rl.run`."""
    return rl.run(recipe, task, output, resume=resume, name=name)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("preference-rl"))
