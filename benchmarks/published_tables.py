"""Results of a published model, as Markdown."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any

from learning_tables import spread, table

from veriloop.pipeline.evaluation.statistics import mean_change

Run = Mapping[str, Any]


def published_gains(runs: Sequence[Run]) -> list[str]:
    """A published model after each stage, sampled and greedy by source, over the seeds."""
    first = runs[0]["cold_start"]["after"]
    sources = [key.removeprefix("greedy/") for key in first if re.fullmatch(r"greedy/\w+", key)]
    keys = [f"{name}/{source}" for source in sources for name in ("pass@1", "greedy")]
    rows = [
        [name]
        + [_over([run[stage][side][key] for run in runs], 3) for key in [*keys, "format"]]
        + [_over([run[stage]["seconds"] / 60 for run in runs], 0) if side == "after" else ""]
        for name, stage, side in (
            ("the model", "cold_start", "before"),
            ("cold start", "cold_start", "after"),
            ("cold start, GRPO", "reasoning_rl", "after"),
            ("cold start, further SFT", "further_sft", "after"),
        )
    ]
    lines = table(["after", *keys, "format", "minutes of the last stage"], rows)
    compared = [run for run in runs if "scores" in run]
    if not compared:
        return lines
    each = [[run] for run in compared] + [compared] * (len(compared) > 1)
    leads = ["{:+.3f} ({:+.3f} to {:+.3f})".format(*sft_lead(some)) for some in each]
    note = "Greedy SVAMP, GRPO less further SFT, paired by question (95 %), by seed: "
    note += "; ".join(leads[: len(compared)])
    return [*lines, "", f"{note}; over the seeds: {leads[-1]}." if leads[1:] else f"{note}."]


def sft_lead(runs: Sequence[Run]) -> tuple[float, float, float]:
    """The lead of GRPO over further SFT in greedy answers to SVAMP, and its 95 % interval, paired
    by question, over the runs' mean of each question. One that could not be judged is left out."""
    if len({run.get("problems") for run in runs}) > 1:
        raise SystemExit("the seeds were asked different questions")
    grpo, sft = ([run["scores"][arm] for run in runs] for arm in ("reasoning_rl", "further_sft"))
    changes: list[float] = []
    for ones, others in zip(zip(*grpo, strict=True), zip(*sft, strict=True), strict=True):
        pairs = [(a, b) for a, b in zip(ones, others, strict=True) if None not in (a, b)]
        changes += [fmean(a - b for a, b in pairs)] if pairs else []
    change = mean_change(changes)
    return change.value, change.low, change.high


def published_code(runs: Sequence[Run]) -> list[str]:
    """A published model that learns to write programs: a row for each seed and stage."""
    header = ["seed", "stage", "pass@1", "its rise, 95 %", "greedy", "format", "steps", "minutes"]
    rows = [
        [
            str(run["seed"]),
            name,
            _change(run[name], "pass@1"),
            _gain(run[name]),
            *(_change(run[name], key) for key in ("greedy", "format")),
            str(run[name]["steps"]),
            f"{run[name]['seconds'] / 60:.0f}",
        ]
        for run in runs
        for name in ("cold_start", "code_rl")
    ]
    return table(header, rows)


def published_sets(rows: Sequence[Run]) -> list[str]:
    """A published model on whole test sets, greedy and sampled."""
    columns = ["model", "set", "questions", "answers", "right (95 %)", "cut off", "no answer",
               "tokens"]  # fmt: skip
    return table(columns, [[
        row["model"],
        row["set"],
        f"{row['questions']:,}",
        row["answers"],
        "{:.3f} ({:.3f} to {:.3f})".format(*row["right"]),
        f"{row['cut_off'][0]:.3f}",
        f"{row['none'][0]:.3f}",
        f"{row['mean_tokens']:.0f}",
    ] for row in rows])  # fmt: skip


def published_zero(runs: Sequence[Run]) -> list[str]:
    """R1-Zero of a published model without a cold start, by seed."""
    header = ["seed", "pass@1", "greedy", "format, held out", "rewarded for the answer",
              "for the format", "steps that moved it", "tokens an answer", "minutes"]  # fmt: skip
    return table(header, [[
        str(run["seed"]),
        *(_change(run, key) for key in ("pass@1", "greedy", "format")),
        *(f"{fmean(step[key] for step in run['steps']):.4f}" for key in ("accuracy", "format")),
        f"{sum(step['grad_norm'] > 0 for step in run['steps'])} of {len(run['steps'])}",
        " → ".join(f"{run['steps'][side]['mean_length']:.0f}" for side in (0, -1)),
        f"{run['seconds'] / 60:.0f}",
    ] for run in runs])  # fmt: skip


def published_trl(result: Run) -> list[str]:
    """GRPO of a published model here and in TRL: the cost of a step, and of the same reward."""
    header = ["", "s a step", "tokens/s", "GiB", "mean reward: first step", "last five steps",
              f"s until {result['target']:.2f}"]  # fmt: skip
    rows = [[
        row["name"],
        f"{row['s']:.1f}",
        f"{row['tokens_per_s']:.0f}",
        f"{row['peak_gib']:.1f}",
        f"{row['steps'][0]['paid']:.2f}",
        f"{fmean(step['paid'] for step in row['steps'][-5:]):.2f}",
        f"{row['reached_s']:.0f}",
    ] for row in result["rows"]]  # fmt: skip
    chosen = ", ".join(f"`{key}={value}`" for key, value in result["settings"].items())
    return [*table(header, rows), "", f"TRL, searched: {chosen}.", "", *_rewards(result["rows"])]


def _rewards(sides: Sequence[Run]) -> list[str]:
    """The mean reward of every second step of each side, and the seconds until it had ended."""
    curves = [side["steps"] for side in sides]
    shown = range(1, min(map(len, curves)), 2)
    until = [[*accumulate(step["s"] for step in curve)] for curve in curves]
    header = ["mean reward (seconds)", *(f"step {i + 1}" for i in shown)]
    rows = [
        [side["name"], *(f"{curve[i]['paid']:.2f} ({s[i]:,.0f})" for i in shown)]
        for side, curve, s in zip(sides, curves, until, strict=True)
    ]
    return table(header, rows)


PUBLISHED = ("pass@1/chain_sum", "greedy/chain_sum", "pass@1/two_digits", "pass@1/svamp",
             "greedy/svamp", "pass@1")  # fmt: skip


def published_whole(result: Run) -> list[str]:
    """The stages of a published model's whole recipe, and what all of them took."""
    rows = [
        [stage["name"]]
        + [_change(stage, key) for key in PUBLISHED]
        + [_gain(stage), f"{stage['seconds'] / 60:.0f}"]
        for stage in result["stages"]
    ]
    note = f"{result['seconds'] / 60:.0f} minutes, at most {result['peak_gib']:.1f} GiB."
    return [*table(["stage", *PUBLISHED, "rise of pass@1", "minutes"], rows), "", note]


def _gain(stage: Run) -> str:
    """The 95 % interval of the rise of pass@1, if it was recorded."""
    bounds = stage.get("gains", {}).get("pass@1 95%")
    return f"{bounds[0]:+.3f} to {bounds[1]:+.3f}" if bounds else ""


def _change(stage: Run, key: str) -> str:
    """A figure before and after a stage."""
    sides = [stage.get(side, {}).get(key) for side in ("before", "after")]
    return " → ".join(f"{value:.3f}" for value in sides if value is not None)


def _over(values: Sequence[float], digits: int) -> str:
    """Mean, minimum and maximum over the seeds; of one seed its value."""
    return spread(values, digits) if len(values) > 1 else f"{values[0]:.{digits}f}"


def proofs(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of docs/results.md: (what, measured, the script that printed it)."""
    rows = {"published_whole": _whole, "published_gains": _gains, "published_sets": _sets}
    rows |= {"published_trl": _against_trl}
    return [(*row(results[name]), name) for name, row in rows.items() if name in results]


def _whole(result: Run) -> tuple[str, str]:
    stages = [stage for stage in result["stages"] if stage["status"] == "done"]
    ends = [stages[0]["before"], *(stage["after"] for stage in stages)]
    names = ", ".join(stage["name"] for stage in stages)
    return (
        f"SmolLM2-135M, the whole list: time; peak memory; pass@1 of the model and after {names} "
        "([table](real.md#smollm2-135m-instruct-on-a-cpu))",
        f"{result['seconds'] / 60:.0f} minutes; {result['peak_gib']:.1f} GiB; "
        + ", ".join(f"{end['pass@1']:.2f}" for end in ends),
    )


def _gains(runs: Sequence[Run]) -> tuple[str, str]:
    def after(stage: str, key: str) -> str:
        return _over([run[stage]["after"][key] for run in runs], 3)

    sums, words = "pass@1/chain_sum", "greedy/svamp"
    return (
        f"SmolLM2-135M, {len(runs)} seed{'s' * (len(runs) > 1)}, held out: pass@1 of sums, cold "
        "start → GRPO; greedy SVAMP, cold start → GRPO (further SFT) "
        "([table](real.md#smollm2-135m-instruct-on-a-cpu))",
        f"{after('cold_start', sums)} → {after('reasoning_rl', sums)}; "
        f"{after('cold_start', words)} → {after('reasoning_rl', words)} "
        f"({after('further_sft', words)})",
    )


def _sets(rows: Sequence[Run]) -> tuple[str, str]:
    gsm8k = [r for r in rows if r["set"] == "gsm8k"]
    asked = "; ".join("{answers} {model}".format(**r) for r in gsm8k)
    return (
        f"SmolLM2-135M-Instruct, GSM8K's test questions: right, {asked} "
        "([table](real.md#smollm2-135m-instruct-on-a-cpu))",
        "; ".join("{:.3f} ({:.3f} to {:.3f})".format(*r["right"]) for r in gsm8k),
    )


def _against_trl(result: Run) -> tuple[str, str]:
    seconds = {row["name"]: row["reached_s"] for row in result["rows"]}
    shares = [seconds["ours"] / seconds[other] for other in ("TRL, searched", "TRL")]
    return (
        "GRPO of SmolLM2-135M on sums, wall time to the same reward over that of TRL with searched "
        "settings; as it installs ([table](real.md#against-trl))",
        "; ".join(f"{share:.2f} x" for share in shares),
    )


TABLES = {  # by result: the page, and what it says there
    name: ("docs/real.md", lines)
    for name, lines in {
        "published_gains": published_gains,
        "published_whole": published_whole,
        "published_sets": published_sets,
        "published_trl": published_trl,
        "published_zero": published_zero,
    }.items()
}
