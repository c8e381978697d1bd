"""SmolLM2-135M-Instruct after its cold start, after GRPO, and after further SFT instead.

    python benchmarks/published_gains.py [--svamp FILE] [--quick] [--json FILE] [--seeds N ...]
                                         [--folder DIR] [--compute float32]

For each seed all stages of `recipes/real/smollm2/against_sft.yaml` on two cores, an hour or two.
FILE holds SVAMP's questions (`sets.svamp.path`); without it they are read from the hub. Needs the
model of requirements/published-model.sh. `--compute float32` trains and samples in float32, which
is faster on a processor without instructions for bfloat16. `--quick` takes a step of each on
generated sums.

Claim: on SVAMP's held-out questions the greedy answers after GRPO are right more often than those
after further SFT, by more than the 95 % interval. It is paired by question, over the seeds' mean of
each: it says how these runs answer other such questions, not what other seeds do.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from listed_runs import Settings, Stage, figures, last_scores, listed, run
from publish import arguments, publish
from published_tables import published_gains, sft_lead
from tiny_runs import OPTIONS, work_folder

LIST, SEEDS, CORES = "real/smollm2/against_sft", (0, 1, 2), 2
ARMS = ("cold_start", "reasoning_rl", "further_sft")
COMPARED = ARMS[1:]
WORDS = "greedy/svamp"
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


def record_of(
    seed: int, stages: Mapping[str, Stage], scores: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What is published of one seed. `scores`: the last ones by problem of the compared stages."""
    if len({by_problem["problems"] for by_problem in scores.values()}) > 1:
        raise SystemExit(f"{' and '.join(COMPARED)} were asked different questions")
    result: dict[str, Any] = {"seed": seed}
    for arm in ARMS:
        result[arm] = {side: figures(stages[arm][side]) for side in ("before", "after")}
        if gains := stages[arm].get("gains"):
            result[arm]["gains"] = figures(gains)
        result[arm] |= {"seconds": stages[arm]["seconds"], "steps": len(stages[arm]["curve"])}
    if all(WORDS in by_problem["scores"] for by_problem in scores.values()):
        result["scores"] = {arm: by_problem["scores"][WORDS] for arm, by_problem in scores.items()}
        result["problems"] = scores[COMPARED[0]]["problems"]  # their digest
    return result


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    value, low, high = sft_lead(results)
    if low > 0:
        return []
    return [f"{WORDS}: GRPO less further SFT {value:+.3f}, {low:+.3f} to {high:+.3f} (95 %)"]


def main() -> int:
    options = arguments(
        __doc__ or "",
        svamp={"type": Path, "help": "file with SVAMP's questions; default: from the hub"},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
        compute={"choices": ["bfloat16", "float32"], "default": "bfloat16"},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    at = {"trainer.compute": options.compute, "sampler.dtype": options.compute}
    at |= {"sets.svamp.path": str(options.svamp)} if options.svamp else {}
    over: Settings = QUICK if options.quick else dict.fromkeys(ARMS, at)
    folder, results = work_folder(options.folder, "published-gains"), []
    for seed in seeds:
        stages = run(folder, listed(LIST, seed, over), seed, cores=CORES)
        scores = {arm: last_scores(folder, seed, arm) for arm in COMPARED}
        results.append(record_of(seed, stages, scores))
        print(f"seed {seed} ended", flush=True)
    missed = [] if options.quick else shortfalls(results)
    return publish(options, "\n".join(published_gains(results)), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
