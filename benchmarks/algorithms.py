"""Every policy preset on the tiny base at equal samples: accuracy, KL, length, seconds, memory.

    python benchmarks/algorithms.py [--quick] [--json FILE] [--presets NAME ...] [--seeds N ...]
                                    [--folder DIR] [--jobs N]

Each run is `recipes/tiny/algorithms.yaml` with a preset and its settings listed below, in a
separate process on one core. All runs of a seed share the base, the questions and the number of
rollouts. With --folder the runs are kept there, and a finished run with the same flags is not
repeated.
"""

import sys
from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

from publish import arguments, publish, table
from tiny_runs import OPTIONS, Ended, all_of, run, work_folder

from veriloop.pipeline.config.presets import PRESETS

SEEDS = (0, 1, 2)
REACH = 0.85  # held-out pass@1 that these are to reach, every seed of theirs
TO_REACH = ("grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "ppo", "trpo")
# What a preset needs on a model of half a million parameters; the rest is the preset's own.
_SEVERAL = ("--algorithm.minibatches", "4")  # optimizer steps a rollout, as tiny/zero has
_ONE = ("--optimizer.learning-rate", "8e-4")  # a quarter of the steps, so larger ones
_WIDER = ("--algorithm.clip-low", "3e-3", "--algorithm.clip-high", "4e-3")  # answers of 20 tokens
TUNED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("reinforce", "vpg", "rloo"), _ONE),
    **dict.fromkeys(("grpo", "grpo_process", "dr_grpo", "dapo", "cispo"), _SEVERAL),
    "gspo": (*_SEVERAL, *_WIDER),
    "trpo": ("--algorithm.trust-region", "1e-3"),  # batches of 192 answers are noisy
}


def summary(preset: str, seed: int, ended: Ended) -> dict[str, Any]:
    """The evaluations, curves and costs of a run."""
    if ended.status:
        raise SystemExit(f"{ended.output.name} failed:\n{ended.log.read_text()[-3000:]}")
    stage, steps = ended.stage, ended.steps
    return {
        "preset": preset,
        "seed": seed,
        "before": stage["before"],
        "after": stage["after"],
        "seconds": stage["seconds"],
        "peak_gib": ended.peak_kb / 2**20,
        "rollouts": sum(step["questions"] for step in steps),
        "kl": steps[-1].get("kl", 0.0),
        "held_out": [[row["step"], row["pass@1"]] for row in ended.evaluations],
        "curve": [
            {k: step.get(k) for k in ("step", "rewards/accuracy/mean", "completions/mean_length",
                                      "kl", "entropy", "clip_ratio/region_mean")}
            for step in steps
        ],
    }  # fmt: skip


def shortfalls(results: list[dict[str, Any]]) -> list[str]:
    """Runs that miss the bar of their preset."""
    return [
        f"{r['preset']}, seed {r['seed']}: pass@1 {r['after']['pass@1']:.3f} < {REACH}"
        for r in results
        if r["preset"] in TO_REACH and r["after"]["pass@1"] < REACH
    ]


def rows_of(results: list[dict[str, Any]]) -> list[list[Any]]:
    """One row per preset: means over its seeds, and the worst accuracy."""
    rows: list[list[Any]] = []
    for preset in dict.fromkeys(r["preset"] for r in results):
        own = [r for r in results if r["preset"] == preset]
        after = [r["after"]["pass@1"] for r in own]
        rows.append(
            [preset, fmean(r["before"]["pass@1"] for r in own), fmean(after), min(after)]
            + [fmean(r[k] for r in own) for k in ("kl", "seconds", "peak_gib")]
            + [fmean(r["after"]["mean_length"] for r in own), fmean(r["rollouts"] for r in own)]
        )
    return rows


def main() -> int:
    options = arguments(
        __doc__ or "",
        presets={"nargs": "+", "default": list(PRESETS), "choices": list(PRESETS)},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        **OPTIONS,
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = work_folder(options.folder, "algorithms")
    wanted = [(preset, seed) for seed in seeds for preset in options.presets]

    def train(job: tuple[str, int]) -> Mapping[str, Any]:
        preset, seed = job
        flags = ["--algorithm.preset", preset, *TUNED.get(preset, ())]
        summarize = partial(summary, preset, seed)
        result = run(folder, f"{preset}-{seed}", flags, seed, summarize, quick=options.quick)
        accuracy, seconds = result["after"]["pass@1"], result["seconds"]
        print(f"{preset}, seed {seed}: pass@1 {accuracy:.3f}, {seconds:.0f} s", flush=True)
        return result

    results = all_of(wanted, options.jobs, train)
    header = ["preset", "before", "after", "worst seed", "KL", "seconds", "GiB", "length", "asked"]
    text = table(header, rows_of(results))
    return publish(options, text, results, failed=[] if options.quick else shortfalls(results))


if __name__ == "__main__":
    sys.exit(main())
