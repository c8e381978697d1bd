"""SmolLM2-135M-Instruct after its cold start, after GRPO, and after further SFT instead.

    python benchmarks/published_gains.py [--svamp FILE] [--quick] [--json FILE] [--seeds N ...]
                                         [--folder DIR]

For each seed all stages of `recipes/real/smollm2/against_sft.yaml` on two cores, about an hour.
FILE holds SVAMP's questions (`sets.svamp.path`); without it they are read from the hub. Needs the
model of requirements/published-model.sh. `--quick` takes a step of each on generated sums.

Claims, over the seeds: on held-out sums GRPO raises pass@1 by GAIN or more, to LEVEL or more; on
SVAMP's held-out questions its greedy answers are right more often than those after further SFT, by
more than the 95 % interval.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from listed_runs import Settings, Stage, figures, listed, run
from paired import interval
from publish import arguments, publish
from recipe_tables import published_gains
from tiny_runs import OPTIONS, work_folder

LIST, SEEDS, CORES = "real/smollm2/against_sft", (0, 1, 2), 2
ARMS = ("cold_start", "reasoning_rl", "further_sft")
SUMS, WORDS = "pass@1/chain_sum", "greedy/svamp"
GAIN, LEVEL = 0.2, 0.85
FEW: Mapping[str, Any] = {
    "evaluation.sources": ["chain_sum", "basic_arithmetic"],
    "evaluation.problems": 4,
    "evaluation.samples": 1,
}
SUMS_ALONE = {"chain_sum": 1.0}
ROWS = FEW | {"data.problems": SUMS_ALONE, "data.rows": 16, "data.held_out": 2, "epochs": 1}
QUICK: Settings = {
    "cold_start": ROWS,
    "reasoning_rl": FEW | {"problems": SUMS_ALONE, "steps": 1, "rollout.prompts": 2},
    "further_sft": ROWS,
}


def record_of(seed: int, stages: Mapping[str, Stage]) -> dict[str, Any]:
    """What is published of one seed."""
    return {"seed": seed} | {
        arm: {side: figures(stages[arm][side]) for side in ("before", "after")}
        | {"seconds": stages[arm]["seconds"], "steps": len(stages[arm]["curve"])}
        for arm in ARMS
    }


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""

    def after(arm: str, figure: str) -> list[float]:
        return [result[arm]["after"][figure] for result in results]

    level = fmean(after("reasoning_rl", SUMS))
    rise = level - fmean(after("cold_start", SUMS))
    pairs = zip(after("reasoning_rl", WORDS), after("further_sft", WORDS), strict=True)
    lead, noise = interval([grpo - sft for grpo, sft in pairs])
    missed: list[str] = []
    if rise < GAIN:
        missed.append(f"{SUMS} rises by {rise:.3f}, less than {GAIN}")
    if level < LEVEL:
        missed.append(f"{SUMS} after GRPO is {level:.3f}, below {LEVEL}")
    if lead <= noise:
        missed.append(f"{WORDS}: GRPO less further SFT {lead:+.3f} ± {noise:.3f} (95 %)")
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        svamp={"type": Path, "help": "file with SVAMP's questions; default: from the hub"},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    at = {"sets.svamp.path": str(options.svamp)} if options.svamp else {}
    over = QUICK if options.quick else dict.fromkeys(ARMS, at)
    folder, results = work_folder(options.folder, "published-gains"), []
    for seed in seeds:
        results.append(record_of(seed, run(folder, listed(LIST, seed, over), seed, cores=CORES)))
        print(f"seed {seed} ended", flush=True)
    missed = [] if options.quick else shortfalls(results)
    return publish(options, "\n".join(published_gains(results)), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
