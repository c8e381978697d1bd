"""What algorithms and preference losses came to, as Markdown for README and the pages in docs/."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

Runs = Sequence[Mapping[str, Any]]


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [line(header), line(["---"] * len(header)), *map(line, rows)]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean, and the least and the most over the seeds."""
    least, most = min(values), max(values)
    return f"{fmean(values):.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def algorithms(runs: Runs) -> list[str]:
    """One row a preset, its seeds together; the curve is held-out accuracy on the way."""
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


def _curve(run: Mapping[str, Any]) -> list[float]:
    return [accuracy for _, accuracy in run["held_out"]]


def kl_places(result: Mapping[str, Any]) -> list[str]:
    """How often each published claim held, and a row for each setting that was trained."""
    keys = ("estimator", "place", "beta", "rate")
    rows: list[list[str]] = []
    for cell in dict.fromkeys(tuple(run[k] for k in keys) for run in result["runs"]):
        own = [run for run in result["runs"] if tuple(run[k] for k in keys) == cell]
        estimator, place, beta, rate = cell
        none = beta < 1e-6
        rows.append(
            [
                "none" if none else f"`{estimator}` in the {place}",
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
    """One row a loss, its seeds together, and where IPO's margin stands."""
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
    told = (
        f"IPO's margin after many passes: {stood} nats; 1 / (2 tau) = {result['ipo_optimum']:.2f}."
    )
    return [*table(header, rows), "", told]
