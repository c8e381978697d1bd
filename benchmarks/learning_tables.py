"""Results of algorithms and preference losses as Markdown for README and docs/."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

Runs = Sequence[Mapping[str, Any]]


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [line(header), line(["---"] * len(header)), *map(line, rows)]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean, minimum and maximum over the seeds."""
    least, most = min(values), max(values)
    return f"{fmean(values):.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def others(runs: Runs, later: Runs) -> list[Mapping[str, Any]]:
    """The runs of presets that were not measured again in `later`."""
    again = {run["preset"] for run in later}
    return [run for run in runs if run["preset"] not in again]


def algorithms(runs: Runs) -> list[str]:
    """One row per preset, over its seeds; the curve is held-out accuracy during training."""
    rows: list[list[str]] = []
    for preset in dict.fromkeys(run["preset"] for run in runs):
        own = [run for run in runs if run["preset"] == preset]
        curve = [fmean(points) for points in zip(*(_curve(run) for run in own), strict=True)]
        rows.append(
            [
                f"`{preset}`",
                spread([run["after"]["pass@1"] for run in own]),
                " ".join(f"{value:.2f}".removeprefix("0") for value in curve),
                f"{fmean(run['after']['greedy'] for run in own):.3f}",
                f"{fmean(run['kl'] for run in own):.2f}" if own[0]["kl"] else "-",
                f"{fmean(run['after']['mean_length'] for run in own):.1f}",
                f"{fmean(run['rollouts'] for run in own):.0f}",
                f"{fmean(run['seconds'] for run in own):.0f}",
                f"{max(run['peak_gib'] for run in own):.2f}",
            ]
        )
    header = ["preset", "pass@1", "on the way", "greedy", "KL", "length", "questions", "s", "GiB"]
    return table(header, rows)


EPOCHS_HEADER = ["preset", "epochs", "pass@1", "on the way", "updates", "KL to old", "clipped"]


def epochs(runs: Runs) -> list[str]:
    """One row for each preset and number of epochs."""
    return table(EPOCHS_HEADER, epoch_rows(runs))


def epoch_rows(runs: Runs) -> list[list[str]]:
    """The cells of `epochs`, over the seeds."""
    rows: list[list[str]] = []
    for preset, count in dict.fromkeys((run["preset"], run["epochs"]) for run in runs):
        own = [run for run in runs if (run["preset"], run["epochs"]) == (preset, count)]
        curve = [fmean(points) for points in zip(*(_curve(run) for run in own), strict=True)]
        rows.append(
            [
                f"`{preset}`",
                str(count),
                spread([run["after"]["pass@1"] for run in own]),
                " ".join(f"{value:.2f}".removeprefix("0") for value in curve),
                f"{fmean(run['optimizer_steps'] for run in own):.0f}",
                f"{fmean(run['old_kl'] for run in own):.4f}",
                f"{fmean(run['clipped'] for run in own):.3f}",
            ]
        )
    return rows


def zero_kl(runs: Runs) -> list[str]:
    """One row per reward and KL coefficient, over its seeds."""
    rewards = {"none": "the verifiers'", "random": "random"}
    rows: list[list[str]] = []
    for control, coefficient in dict.fromkeys((r["control"], r["kl_coefficient"]) for r in runs):
        own = [
            run for run in runs if (run["control"], run["kl_coefficient"]) == (control, coefficient)
        ]
        changes = [
            "; ".join(f"{run['before'][key]:.2f} → {run['after'][key]:.2f}" for run in own)
            for key in ("pass@1", "greedy", "format")
        ]
        kl = max(step["kl"] for run in own for step in run["curve"])
        rows.append([rewards[control], f"{coefficient:g}", *changes, f"{kl:.2f}"])
    header = [
        "rewards",
        "KL coefficient",
        "pass@1",
        "greedy",
        "format",
        "largest KL, nats a token",
    ]
    return table(header, rows)


def pretraining(rows: Runs) -> list[str]:
    """One row per model and precision, over the seeds."""
    header = ["model", "passes", "CPU seconds", "loss, nats", "accuracy: sums", "programs"]
    cells: list[list[str]] = []
    for model, precision in dict.fromkeys((row["model"], row["precision"]) for row in rows):
        own = [row for row in rows if (row["model"], row["precision"]) == (model, precision)]
        cells.append([
            f"`{model}`",
            precision,
            ", ".join(f"{row['cpu_s']:.0f}" for row in own),
            *(
                ", ".join(f"{row[key]:.{digits}f}" for row in own)
                for key, digits in (("loss", 3), ("step_accuracy", 2), ("program_accuracy", 2))
            ),
        ])  # fmt: skip
    return table(header, cells)


def _curve(run: Mapping[str, Any]) -> list[float]:
    return [accuracy for _, accuracy in run["held_out"]]


def kl_places(result: Mapping[str, Any]) -> list[str]:
    """How often each published claim held, and a row for each trained setting."""
    keys = ("estimator", "place", "beta", "rate")
    rows: list[list[str]] = []
    for cell in dict.fromkeys(tuple(run[k] for k in keys) for run in result["runs"]):
        own = [run for run in result["runs"] if tuple(run[k] for k in keys) == cell]
        estimator, placement, beta, rate = cell
        none = beta < 1e-6
        rows.append(
            [
                "none" if none else f"`{estimator}` in the {placement}",
                "-" if none else f"{beta:g}",
                f"{rate:g}",
                spread([run["after"] for run in own]),
                f"{fmean(run['best'] for run in own):.3f}",
                f"{fmean(run['kl'] for run in own):.3f}",
                f"{sum(run['unstable'] for run in own)} of {len(own)}",
            ]
        )
    claims = table(["claim", "holds in (beta, rate) cells"], result["claims"])
    header = ["KL", "beta", "rate", "pass@1", "best on the way", "KL left", "unstable"]
    return [*claims, "", *table(header, rows)]


def preferences(result: Mapping[str, Any]) -> list[str]:
    """One row per loss, over its seeds, and IPO's final margin."""
    rows = [
        [
            f"`{name}`",
            spread([run["win_rate"] for run in runs]),
            f"{fmean(run['margin'] for run in runs):.2f}",
            f"{fmean(run['kl'] for run in runs):.2f}",
            f"{fmean(run['after']['pass@1'] for run in runs):.3f}",
            f"{fmean(run['after']['format'] for run in runs):.3f}",
            f"{fmean(run['seconds'] for run in runs):.0f}",
        ]
        for name, runs in result["runs"].items()
    ]
    stood = ", ".join(f"{margin:.2f}" for margin in result["ipo_margins"])
    header = [
        "loss",
        "wins over the start",
        "margin",
        "KL, nats an answer",
        "pass@1",
        "format",
        "s",
    ]
    note = (
        f"IPO's margin after many passes: {stood} nats; 1 / (2 tau) = {result['ipo_optimum']:.2f}."
    )
    return [*table(header, rows), "", note]


CONDUCT = {  # the row -> where `aha.py` has it, and digits
    "accuracy": (("accuracy",), 3),
    "mean length, tokens": (("length",), 1),
    "responses that verify": (("verify",), 3),
    "that correct themselves": (("correct",), 3),
    "that mend a wrong step": (("mend",), 3),
    "reflective words": (("words",), 2),
    "accuracy of those that check": (("ways", "checks", "accuracy"), 3),
    "of plain steps": (("ways", "plain steps", "accuracy"), 3),
    "of answers at once": (("ways", "answers at once", "accuracy"), 3),
    "steps at myths: wrong when stated": (("on myths", "wrong"), 3),
    "checked": (("on myths", "checked"), 3),
    "wrong and checked: caught": (("on myths", "caught"), 3),
    "and mended": (("on myths", "mended"), 3),
    "left wrong, of all": (("on myths", "left wrong"), 3),
    "steps elsewhere: wrong when stated": (("elsewhere", "wrong"), 3),
    "checked ": (("elsewhere", "checked"), 3),
    "false alarms, of right ones checked": (("elsewhere", "false alarms"), 3),
    "left wrong, of all ": (("elsewhere", "left wrong"), 3),
}


def aha(runs: Runs) -> list[str]:
    """Each run before and after training, then a picked problem whose wrong step is corrected after
    it."""
    rows: list[list[str]] = []
    for name, (path, digits) in CONDUCT.items():
        pairs = [(_at(run["before"], path), _at(run["after"], path)) for run in runs]
        rows.append([name.strip(), *(f"{b:.{digits}f} → {a:.{digits}f}" for b, a in pairs)])
    lines = table(["", *(run["name"] for run in runs)], rows)
    for run in runs:
        readable = sorted(run["examples"], key=lambda example: not example["question"].isascii())
        for example in readable[:1]:
            lines += ["", f"{run['name']}, picked: *{example['question']}*", ""]
            lines += [f"- before: `{example['before']}`", f"- after: `{example['after']}`"]
    return lines


def rise(runs: Runs) -> tuple[str, str, str]:
    """The row for README: the ranges over the seeds."""
    changes: list[str] = []
    for key in ("verify", "correct"):
        old, new = ([run[when][key] for run in runs] for when in ("before", "after"))
        changes.append(f"{min(old):.2f} to {max(old):.2f} → {min(new):.2f} to {max(new):.2f}")
    what = f"R1-Zero where verification pays, {len(runs)} seeds: responses that verify; that"
    return f"{what} correct themselves ([table](aha.md#outcome))", "; ".join(changes), "aha"


def _at(values: Mapping[str, Any], path: Sequence[str]) -> float:
    return values[path[0]] if len(path) == 1 else _at(values[path[0]], path[1:])
