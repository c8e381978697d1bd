"""`rollout.ahead: S` where a few answers are ten times as slow: time, accuracy and oldest token.

    python benchmarks/staleness.py [--quick] [--json FILE] [--seeds N ...] [--steps N]
                                   [--folder DIR] [--jobs N]

Runs of `recipes/tiny/algorithms.yaml` with S = 0, 1 and 4, one optimizer step each turn, so that
only the weight of each token differs: `corrected` by `algorithm.old_logp: trainer`, and without
any. Which weights sample a token depends on token counts alone, so the time is computed from the
records of the runs, under a virtual clock: a token of an answer takes 1 unit, of one answer in
TAIL_SHARE it takes TAIL, all open answers are sampled at the same time, and an update takes as long
as a usual answer. Accuracy is that on held-out problems after the run, where what is corrected must
equal sampling in turn, and that of the sampled answers over the second half of the turns, where
what is not corrected must be worse. Intervals are of 95 %, over the seeds. Learning rate, turns and
both measures were chosen on seeds 0, 1 and 7, which are not shown.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any

from paired import differs, interval
from publish import arguments, publish, table
from tiny_runs import OPTIONS, PRECISELY, Ended, all_of, run, work_folder

from veriloop.pipeline.runs.rollout_file import read_rollouts

TAIL = 10  # times as slow as a usual answer
TAIL_SHARE = 20  # one answer in so many
BAR = 0.6  # times the time of S = 0, for the largest S
MARGIN = 0.02  # of held-out accuracy, as in overlap.py, within which two ways count as equal
SEEDS = (2, 3, 4, 5, 6)
PLAIN = ("--algorithm.minibatches", "1", "--optimizer.learning-rate", "2e-4", *PRECISELY)
CORRECTED = ("--algorithm.old-logp", "trainer")
UNCORRECTED = ("--algorithm.objective", "policy_gradient", "--algorithm.allow-biased")
WAYS: Mapping[str, tuple[int, Sequence[str]]] = {  # S, flags
    "in turn": (0, CORRECTED),
    "1, corrected": (1, CORRECTED),
    "1, uncorrected": (1, UNCORRECTED),
    "4, corrected": (4, CORRECTED),
    "4, uncorrected": (4, UNCORRECTED),
}
Row = Mapping[str, Any]


def versions_of(row: Row) -> Sequence[int]:
    """The turns that the weights of each token had learned from: one optimizer step each."""
    return row["versions"] or [row["policy_version"]] * len(row["response_ids"])


def oldest(rows: Sequence[Row]) -> int:
    """The most turns between the weights that sampled a token and those that learn from it."""
    return max(row["step"] - 1 - min(versions_of(row)) for row in rows)


def slowness(seed: int, row: Row, number: int) -> int:
    """Units of time that a token of this answer takes, the same in every run of a seed."""
    slow = Random(f"{seed}/{row['group']}/{number}").randrange(TAIL_SHARE) == 0
    return TAIL if slow else 1


def wall(rows: Sequence[Row], seed: int, update: float) -> float:
    """Units of time of a run. Each turn first samples what its own update lacks; beside the update
    those of later turns are sampled, and the longer of both is waited for."""
    first, beside = defaultdict[int, float](float), defaultdict[int, float](float)
    count = defaultdict[str, int](int)
    for row in rows:
        number = count[row["group"]]
        count[row["group"]] += 1
        versions, each = versions_of(row), slowness(seed, row, number)
        for version in set(versions):
            times = first if version == row["step"] - 1 else beside
            times[version] = max(times[version], each * versions.count(version))
    turns = range(max(row["step"] for row in rows))
    return sum(first[turn] + max(update, beside[turn]) for turn in turns)


def summary(way: str, seed: int, ended: Ended) -> dict[str, Any]:
    if ended.status:
        raise SystemExit(f"{ended.output.name} failed:\n{ended.log.read_text()[-3000:]}")
    files = sorted((ended.output / "zero" / "rollouts").glob("*.parquet"))
    rows = [row for path in files for row in read_rollouts(path)]
    update = fmean(len(row["response_ids"]) for row in rows)
    return {
        "way": way,
        "ahead": WAYS[way][0],
        "seed": seed,
        "wall": wall(rows, seed, update),
        "pass@1": ended.stage["after"]["pass@1"],
        "late": late(ended.steps),
        "oldest": oldest(rows),
        "staleness": fmean(step["staleness"] for step in ended.steps),
    }


def late(steps: Sequence[Row]) -> float:
    """Mean accuracy of the answers that the second half of the turns learned from."""
    return fmean(step["rewards/accuracy/mean"] for step in steps[len(steps) // 2 :])


def gap(runs: Sequence[Row], measure: str, way: str, other: str) -> tuple[float, float]:
    """Mean difference of two ways in "pass@1" or "late", and half of its 95 % interval."""
    by = {(r["seed"], r["way"]): r[measure] for r in runs}
    return interval([by[seed, way] - by[seed, other] for seed in dict.fromkeys(s for s, _ in by)])


def times(runs: Sequence[Row], way: str) -> float:
    """The time of a way over that of S = 0, a mean over the seeds."""
    by = {(r["seed"], r["way"]): r["wall"] for r in runs}
    return fmean(by[seed, way] / by[seed, "in turn"] for seed in dict.fromkeys(s for s, _ in by))


def shortfalls(results: Mapping[str, Any]) -> list[str]:
    """The targets that the results miss."""
    runs = results["runs"]
    failed = [
        f"S = {r['ahead']}: a token {r['oldest']} turns old, seed {r['seed']}"
        for r in runs
        if r["oldest"] > r["ahead"]
    ]
    if (ratio := times(runs, "4, corrected")) > BAR:
        failed.append(f"S = 4 takes {ratio:.2f} x the time of S = 0, wanted {BAR}")
    corrected = gap(runs, "pass@1", "4, corrected", "in turn")
    failed += differs("pass@1, S = 4 corrected minus in turn", corrected, MARGIN)
    mean, noise = gap(runs, "late", "4, uncorrected", "4, corrected")
    if mean + noise >= 0:
        failed.append(
            "S = 4 uncorrected is not worse than corrected in the second half: "
            f"{mean:+.4f} ± {noise:.4f} (95 %)"
        )
    return failed


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        steps={"type": int, "default": 150, "help": "turns of each run"},
        **OPTIONS,
    )
    quick, folder = options.quick, work_folder(options.folder, "staleness")

    def train(job: tuple[int, str]) -> Mapping[str, Any]:
        seed, way = job
        ahead, own = WAYS[way]
        flags = [*PLAIN, *own, "--rollout.ahead", str(ahead), "--steps", str(options.steps)]
        name = f"{way.replace(', ', '-').replace(' ', '-')}-{seed}"
        return run(folder, name, flags, seed, partial(summary, way, seed), quick=quick)

    seeds = options.seeds[:1] if quick else options.seeds
    runs = all_of([(seed, way) for seed in seeds for way in WAYS], options.jobs, train)
    text = table(
        ["S", "seed", "time", "x in turn", "pass@1", "second half", "oldest token", "mean age"],
        [
            [r["way"], str(r["seed"]), r["wall"], times([*runs], r["way"]), r["pass@1"],
             r["late"], str(r["oldest"]), r["staleness"]]
            for r in runs
        ],
    )  # fmt: skip
    gaps = {
        way: {measure: gap(runs, measure, way, "in turn") for measure in ("pass@1", "late")}
        for way in WAYS
        if way != "in turn"
    }
    for way, both in gaps.items():
        for measure, (mean, noise) in both.items():
            text += f"\n{way}: {measure} {mean:+.4f} ± {noise:.4f} (95 %) against S = 0"
    result = {"runs": runs, "gaps": gaps}
    return publish(options, text, result, failed=[] if quick else shortfalls(result))


if __name__ == "__main__":
    sys.exit(main())
