"""RLHF in two rounds: what a reward model on the policy's own new answers adds.

    python benchmarks/rlhf_rounds.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]

For each seed all stages of `recipes/tiny/rlhf_iterated.yaml`, in a separate process on one core.
The control is PPO that goes on from the first round for as long with the first reward model. Then
the SFT model and the policies answer the same held-out prompts, and the exact rule of the general
prompts, which RL never sees, says how many are right. The second round's pairs are of the policy
that it begins with, so the first reward model's accuracy on them (before the second round trains
it) says how far PPO has moved away from what it learned.

Claims, over the seeds: the first round raises the share that is right, the second raises it
further, and by more than the control does, each by more than its 95 % interval.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from listed_runs import Settings, Stage, each_seed, listed, shipped
from paired import interval
from publish import arguments, publish
from recipe_tables import REWARD_MODELS, ROUNDS, rlhf_rounds
from rlhf import PROMPTS, scores
from tiny_runs import OPTIONS

from veriloop.data import general

LIST, SEEDS = "tiny/rlhf_iterated", (0, 1, 2)
LEADS = (("ppo", "sft"), ("ppo_2", "ppo"), ("ppo_2", "control"))  # which is to lead which
FEW_PAIRS = {"questions": 8, "rollout.per_prompt": 8}
FEW_ROWS = {"data.held_out": 4, "epochs": 1}
FEW_STEPS = {"steps": 2, "rollout.prompts": 8, "evaluation.problems": 8}
QUICK: Settings = {
    "base": {"name": "tiny/quick", "steps": 60, "step_accuracy": 0.0},
    "sft": {"data.rows": 64, "data.held_out": 8, "epochs": 1, "evaluation.problems": 8},
    **dict.fromkeys(("pairs", "pairs_2"), FEW_PAIRS),
    **dict.fromkeys(REWARD_MODELS, FEW_ROWS),
    **dict.fromkeys(("ppo", "ppo_2", "control"), FEW_STEPS),
}


def control() -> Stage:
    """The second round's PPO with the first round's reward model."""
    own = {stage["name"]: stage for stage in shipped(LIST)["stages"]}
    take = own["ppo"]["take"] | {"start": "ppo.checkpoint"}
    return own["ppo_2"] | {"name": "control", "take": take}


def record_of(seed: int, stages: Mapping[str, Stage], *, quick: bool) -> dict[str, Any]:
    """What is published of one seed."""
    problems = general.distinct("test", 1, 8 if quick else PROMPTS)
    answers = {
        name: scores(Path(stages[name]["outputs"]["checkpoint"]), problems, 1000 + seed)
        for name in ROUNDS
    }
    return {
        "seed": seed,
        "right": {name: fmean(own) for name, own in answers.items()},
        "accuracy": {
            name: [stages[name][side]["accuracy"] for side in ("before", "after")]
            for name in REWARD_MODELS
        },
        "seconds": {name: stage["seconds"] for name, stage in stages.items()},
    }


def lead(results: Sequence[Mapping[str, Any]], policy: str, other: str) -> tuple[float, float]:
    """The lead of a policy over another in the share right, and half of its 95 % interval."""
    return interval([r["right"][policy] - r["right"][other] for r in results])


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    gaps = {f"{policy} less {other}": lead(results, policy, other) for policy, other in LEADS}
    return [
        f"right by the rule, {name}: {mean:+.3f} ± {noise:.3f}"
        for name, (mean, noise) in gaps.items()
        if mean <= noise
    ]


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
    )
    quick = options.quick
    results = [
        record_of(seed, stages, quick=quick)
        for seed, stages in each_seed(
            options,
            "rlhf-rounds",
            lambda seed: listed(LIST, seed, QUICK if quick else {}, [control()]),
        )
    ]
    missed = [] if quick or len(results) == 1 else shortfalls(results)
    return publish(options, "\n".join(rlhf_rounds(results)), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
