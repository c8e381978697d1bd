"""SmolLM2-135M-Instruct learns to write one-line programs: a short SFT, then GRPO by their tests.

    python benchmarks/published_code.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]
                                        [--compute float32]

For each seed both stages of `recipes/real/smollm2/code.yaml` on two cores, 20 minutes a seed. Needs
the model of requirements/published-model.sh. `--compute float32` trains and samples in float32,
which is faster on a processor without instructions for bfloat16. `--quick` takes a step of each.

Claim: each GRPO raises pass@1 by more than its 95 % interval.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from listed_runs import Settings, Stage, figures, listed, run
from publish import arguments, publish
from published_tables import published_code
from tiny_runs import OPTIONS, work_folder

LIST, SEEDS, CORES = "real/smollm2/code", (0, 1, 2), 2
STAGES = ("cold_start", "code_rl")
FEW: Mapping[str, Any] = {"evaluation.problems": 4, "evaluation.samples": 1}
QUICK: Settings = {
    "cold_start": FEW | {"data.rows": 16, "data.held_out": 2, "epochs": 1},
    "code_rl": FEW | {"steps": 1, "rollout.prompts": 2},
}


def record_of(seed: int, stages: Mapping[str, Stage]) -> dict[str, Any]:
    """What is published of one seed."""
    result: dict[str, Any] = {"seed": seed}
    for name in STAGES:
        stage = stages[name]
        sides = {side: figures(stage[side]) for side in ("before", "after", "gains")}
        result[name] = {**sides, "seconds": stage["seconds"], "steps": len(stage["curve"])}
    return result


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    gains = [(r["seed"], r["code_rl"]["gains"]) for r in results]
    return [
        f"seed {seed}: pass@1 rose by {gain['pass@1']:+.3f}, {low:+.3f} to {high:+.3f} (95 %)"
        for seed, gain in gains
        for low, high in [gain["pass@1 95%"]]
        if low <= 0
    ]


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
        compute={"choices": ["bfloat16", "float32"], "default": "bfloat16"},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    at = {"trainer.compute": options.compute, "sampler.dtype": options.compute}
    over = {name: at | dict(QUICK[name] if options.quick else {}) for name in STAGES}
    folder, results = work_folder(options.folder, "published-code"), []
    for seed in seeds:
        stages = run(folder, listed(LIST, seed, over), seed, cores=CORES)
        results.append(record_of(seed, stages))
        print(f"seed {seed} ended", flush=True)
    missed = [] if options.quick else shortfalls(results)
    return publish(options, "\n".join(published_code(results)), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
