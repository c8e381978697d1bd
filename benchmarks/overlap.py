"""Sampling one step ahead on two cores, against one core: speed and learning.

    python benchmarks/overlap.py [--quick] [--json FILE] [--sizes 1M 10M] [--rounds N]
                                 [--seeds N ...] [--folder DIR] [--jobs N]

Speed: steps of `grpo_turns.py` on random models, taking turns: on one core, on two cores without
overlap, and on two cores with `rollout.ahead: 1`, where one core samples while the other learns.
Learning: runs of `recipes/tiny/algorithms.yaml` with and without overlap, four optimizer steps per
rollout, the same base and questions for both runs of a seed; the 95 % interval of the difference
in held-out accuracy must lie within +-MARGIN.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from contenders import SIZES, Contender, Process, in_turn, model_of
from paired import differs, interval
from publish import arguments, publish, table
from tiny_runs import OPTIONS, PRECISELY, Ended, all_of, run, work_folder

BAR = 1.7  # times the tokens a second of one core
MARGIN = 0.02  # of held-out accuracy, within which both ways count as equal
WARM_UP = 2
BASIC = {"sampler.engine": "vllm", "trainer.compute": "bfloat16"}
WAYS: Mapping[str, tuple[int, Mapping[str, Any]]] = {  # cores, settings
    "one core": (1, BASIC),
    "two cores, in turn": (2, BASIC | {"trainer.threads": 2}),
    "two cores, ahead": (2, BASIC | {"rollout.ahead": 1}),
}
SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)
FLAGS = ("--algorithm.preset", "grpo", "--algorithm.minibatches", "4", *PRECISELY)


def speeds(size: str, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Tokens per second of each setting."""
    cores = sorted(os.sched_getaffinity(0))
    model = model_of(folder / size, SIZES[size])
    running = [
        Process(
            Contender(name=name, side="ours", settings=settings),
            "grpo_turns.py", model, folder, cores[:count],
        )
        for name, (count, settings) in WAYS.items()
    ]  # fmt: skip
    rows = in_turn(running, WARM_UP, rounds)
    alone, in_order = (row["tokens_per_s"] for row in rows[:2])
    return [
        {
            "size": size,
            **row,
            "times": row["tokens_per_s"] / alone,
            "times_in_turn": row["tokens_per_s"] / in_order,
        }
        for row in rows
    ]


def summary(ahead: int, seed: int, ended: Ended) -> dict[str, Any]:
    if ended.status:
        raise SystemExit(f"{ended.output.name} failed:\n{ended.log.read_text()[-3000:]}")
    last = ended.steps[-1]
    shown = ("staleness", "clip_ratio/region_mean", "kl", "sync/max")
    values = {name: last[name] for name in shown if name in last}
    return {"ahead": ahead, "seed": seed, "pass@1": ended.stage["after"]["pass@1"], **values}


def learned(options: Any, seeds: Sequence[int], *, quick: bool) -> list[dict[str, Any]]:
    """The results of both runs of each seed."""
    folder = work_folder(options.folder, "overlap")

    def train(job: tuple[int, int]) -> Mapping[str, Any]:
        seed, ahead = job
        flags = (*FLAGS, "--rollout.ahead", str(ahead))
        summarize = partial(summary, ahead, seed)
        return run(folder, f"ahead-{ahead}-{seed}", flags, seed, summarize, quick=quick)

    return all_of([(seed, ahead) for seed in seeds for ahead in (0, 1)], options.jobs, train)


def difference(runs: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Mean difference of accuracy (ahead minus in turn) over the seeds, and half of its 95 %
    interval."""
    by = {(r["seed"], r["ahead"]): r["pass@1"] for r in runs}
    gaps = [by[seed, 1] - by[seed, 0] for seed in dict.fromkeys(r["seed"] for r in runs)]
    return interval(gaps)


def main() -> int:
    options = arguments(
        __doc__ or "",
        sizes={"nargs": "+", "choices": list(SIZES), "default": ["1M", "10M"]},
        rounds={"type": int, "default": 7, "help": "steps of each way that are counted"},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        **OPTIONS,
    )
    quick = options.quick
    sizes, rounds = (["1M"], 1) if quick else (options.sizes, options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    rows = [row for size in sizes for row in speeds(size, rounds, folder)]
    runs = learned(options, options.seeds[:1] if quick else options.seeds, quick=quick)
    gap, noise = difference(runs)
    text = table(
        ["size", "way", "s", "tokens a second", "x one core", "x two in turn"],
        [
            [r["size"], r["name"], r["s"], r["tokens_per_s"], r["times"], r["times_in_turn"]]
            for r in rows
        ],
    )
    text += "\n\n" + table(
        ["seed", "steps ahead", "pass@1", "staleness"],
        [[str(r["seed"]), str(r["ahead"]), r["pass@1"], r.get("staleness", 0.0)] for r in runs],
    )
    text += f"\n\nahead minus in turn: {gap:+.4f} ± {noise:.4f} (95 %)"
    result = {"speed": rows, "runs": runs, "difference": gap, "noise": noise}
    return publish(options, text, result, failed=[] if quick else shortfalls(result))


def shortfalls(result: Mapping[str, Any]) -> list[str]:
    """Claims that the result does not support."""
    slow = [
        f"{r['size']}: {r['times']:.2f} x one core with sampling ahead, wanted {BAR}"
        for r in result["speed"]
        if r["name"].endswith("ahead") and r["times"] < BAR
    ]
    gap = result["difference"], result["noise"]
    return slow + differs("pass@1, ahead minus in turn", gap, MARGIN)


if __name__ == "__main__":
    sys.exit(main())
