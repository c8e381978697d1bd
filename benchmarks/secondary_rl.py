"""Secondary RL with its reward model, beside a control without: general and reasoning score.

    python benchmarks/secondary_rl.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]

For each seed the stages of `recipes/tiny/r1.yaml` up to its secondary RL, and `control`, which is
the same with `reward.preference: 0`, in a separate process on one core. The seeds share the base
model and nothing after it. Both RL stages of a seed start from one checkpoint and ask the same
questions; they differ in the reward model alone. Claims, over the seeds: the general score rises by
0.15 or more, by the whole of its 95 % interval more than the control's, and pass@1 falls by no more
than 0.01.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from listed_runs import Settings, Stage, listed, run, shipped
from paired import gain
from publish import arguments, publish, table
from recipe_tables import ARMS, SECONDARY
from tiny_runs import OPTIONS, work_folder

LIST, SEEDS = "tiny/r1", (4, 5, 6)  # the recipe was tuned on others
AFTER = ("student", "distill")
GAIN, COST = 0.15, 0.01  # of the general score, at least; of pass@1, at most
FEW: Mapping[str, Any] = {"evaluation.problems": 8, "evaluation.samples": 1}
RL = {"steps": 2, "rollout.prompts": 8, "rollout.ahead": 0} | FEW
COLLECTED = {"collect.questions": 512, "data.held_out": 1, "epochs": 1, "filters": {}} | FEW
QUICK: Settings = {
    "base": {"name": "tiny/quick", "steps": 60, "step_accuracy": 0.0},
    "zero": RL,
    "cold_start": COLLECTED,
    "reasoning_rl": RL,
    "rejection_sft": COLLECTED,
    "reward_model": {"data.rows": 64, "data.held_out": 16, "epochs": 1},
    **dict.fromkeys(ARMS, RL),
}


def control() -> Stage:
    """Secondary RL of the list with format and language alone for general prompts."""
    (own,) = (stage for stage in shipped(LIST)["stages"] if stage["name"] == "preference_rl")
    return own | {"name": "control", "set": own["set"] | {"reward.preference": 0}}


def told(seed: int, stages: Mapping[str, Stage], seconds: float) -> dict[str, Any]:
    """What is published of one seed."""
    return {
        "seed": seed,
        "seconds": seconds,
        "reward_model": {
            k: v for k, v in stages["reward_model"]["after"].items() if k.startswith("accuracy")
        },
        **{
            arm: {
                side: {k: stages[arm][side][k] for k in SECONDARY} for side in ("before", "after")
            }
            | {
                "curve": [step["rewards/accuracy/mean/general"] for step in stages[arm]["curve"]],
                "liked": [step["rewards/preference/mean"] for step in stages[arm]["curve"]],
            }
            for arm in ARMS
        },
    }


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    (rise, noise), (other, width) = (gain(results, arm, "general") for arm in ARMS)
    cost = -gain(results, "preference_rl", "pass@1")[0]
    missed: list[str] = []
    if rise < GAIN:
        missed.append(f"the general score rises by {rise:.3f}, less than {GAIN}")
    if rise - noise <= other + width:
        control = f"the control's {other:+.3f} ± {width:.3f}"
        missed.append(f"general score {rise:+.3f} ± {noise:.3f} (95 %) is not clear of {control}")
    if cost > COST:
        missed.append(f"pass@1 falls by {cost:.3f}, more than {COST}")
    return missed


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f"{ARMS[arm]}, seed {r['seed']}"]
        + [f"{r[arm]['before'][k]:.3f} > {r[arm]['after'][k]:.3f}" for k in SECONDARY]
        for r in results
        for arm in ARMS
    ]
    if len(results) > 1:
        rows += [
            [
                f"{name}, 95 %",
                *("{:+.3f} ± {:.3f}".format(*gain(results, arm, k)) for k in SECONDARY),
            ]
            for arm, name in ARMS.items()
        ]
    return table(["run", *SECONDARY], rows)


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder, results = work_folder(options.folder, "secondary-rl"), []
    for seed in seeds:
        began = time.monotonic()
        whole = listed(LIST, seed, QUICK if options.quick else {}, [control()], AFTER)
        stages = run(folder, whole, seed)
        results.append(told(seed, stages, time.monotonic() - began))
        print(f"seed {seed}: {results[-1]['seconds']:.0f} s", flush=True)
    missed = [] if options.quick or len(seeds) == 1 else shortfalls(results)
    return publish(options, summary(results), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
