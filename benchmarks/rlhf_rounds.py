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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from listed_runs import Settings, Stage, listed, run, shipped
from paired import interval
from publish import arguments, publish
from recipe_tables import REWARD_MODELS, rlhf_rounds
from rlhf import PROMPTS, scores
from tiny_runs import OPTIONS, work_folder

from veriloop.data import general

LIST, SEEDS = "tiny/rlhf_iterated", (0, 1, 2)
POLICIES = ("sft", "ppo", "ppo_2", "control")
STEPS = (("ppo", "sft"), ("ppo_2", "ppo"), ("ppo_2", "control"))  # which is to lead which
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
        for name in POLICIES
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


def led(results: Sequence[Mapping[str, Any]], one: str, other: str) -> tuple[float, float]:
    """The lead of a policy over another in the share right, and half of its 95 % interval."""
    return interval([r["right"][one] - r["right"][other] for r in results])


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    gaps = {f"{one} less {other}": led(results, one, other) for one, other in STEPS}
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
    folder, results = work_folder(options.folder, "rlhf-rounds"), []
    for seed in options.seeds[:1] if quick else options.seeds:
        began = time.monotonic()
        stages = run(folder, listed(LIST, seed, QUICK if quick else {}, [control()]), seed)
        results.append(record_of(seed, stages, quick=quick))
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    missed = [] if quick or len(results) == 1 else shortfalls(results)
    return publish(options, "\n".join(rlhf_rounds(results)), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
