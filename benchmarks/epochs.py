"""PPO and GRPO at 1, 2 and 4 epochs over each rollout: held-out accuracy, KL, clipping.

    python benchmarks/epochs.py [--quick] [--json FILE] [--presets NAME ...] [--epochs K ...]
                                [--seeds N ...] [--folder DIR] [--jobs N]

Each run is `recipes/tiny/algorithms.yaml` with the preset, the flags that `algorithms.py` gives it
and `--algorithm.epochs`: the same rollouts a step, so more optimizer steps with more epochs.
"""

import sys
from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

from algorithms import SEEDS, TUNED, summary
from learning_tables import EPOCHS_HEADER, epoch_rows
from publish import arguments, publish, table
from tiny_runs import OPTIONS, Ended, all_of, run, work_folder

PRESETS = ("ppo", "grpo")
EPOCHS = (1, 2, 4)
Job = tuple[str, int, int]  # preset, epochs, seed


def flags_of(preset: str, epochs: int) -> list[str]:
    own = ["--algorithm.preset", preset, *TUNED.get(preset, ())]
    return [*own, "--algorithm.epochs", str(epochs)]


def ended(preset: str, epochs: int, seed: int, run: Ended) -> dict[str, Any]:
    """What `algorithms.py` records of a run, and how far its updates went from the sampler."""
    steps = run.steps
    return summary(preset, seed, run) | {
        "epochs": epochs,
        "optimizer_steps": steps[-1]["optimizer_steps"],
        "old_kl": fmean(step["old_kl"] for step in steps),
        "clipped": fmean(step["clip_ratio/region_mean"] for step in steps),
    }


def main() -> int:
    options = arguments(
        __doc__ or "",
        presets={"nargs": "+", "default": list(PRESETS), "choices": list(PRESETS)},
        epochs={"nargs": "+", "type": int, "default": list(EPOCHS)},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        **OPTIONS,
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = work_folder(options.folder, "epochs")
    wanted = [(p, k, seed) for seed in seeds for p in options.presets for k in options.epochs]

    def one(job: Job) -> Mapping[str, Any]:
        preset, epochs, seed = job
        name, record = f"{preset}-{epochs}-{seed}", partial(ended, preset, epochs, seed)
        row = run(folder, name, flags_of(preset, epochs), seed, record, quick=options.quick)
        print(f"{name}: pass@1 {row['after']['pass@1']:.3f}, {row['seconds']:.0f} s", flush=True)
        return row

    results = all_of(wanted, options.jobs, one)
    return publish(options, table(EPOCHS_HEADER, epoch_rows(results)), results)


if __name__ == "__main__":
    sys.exit(main())
