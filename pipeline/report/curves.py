"""The charts of a stage: which metrics they show, in what order, and what good curves look like."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.report.rollout_stats import RolloutStats

Row = Mapping[str, Any]
Style = Literal["lines", "stack", "log"]
OPTIONAL = ("value_loss", "old_kl")  # 0 unless enabled, and then not drawn
REST = "Everything else"  # the last group: metrics that no chart names
POINTS = 600  # of a curve; longer ones show every n-th step


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `names` maps metrics, or patterns with one `*`, to their labels."""

    id: str
    title: str
    names: Mapping[str, str]
    good: str
    unit: str = ""
    style: Style = "lines"
    band: str = ""  # metric drawn as a band around the first one
    top: float | None = None  # end of the axis
    limit: float | None = None  # horizontal line


GROUPS: Mapping[str, Sequence[Chart]] = {
    "Reward": (
        Chart("reward", "Reward", {"reward": "all answers", "scan/reward_whole": "not cut off"},
              "Rises, then levels off. The band is the standard deviation over a step's answers; "
              "it narrows as the policy converges.", band="reward_std"),
        Chart("components", "Reward by component", {"rewards/*/mean": ""},
              "Format rises first, then accuracy. A component that falls while another rises is "
              "being traded off."),
        Chart("sources", "Accuracy by source and language", {"rewards/accuracy/mean/*": ""},
              "All rise. A flat curve is a source that is too hard or too easy."),
        Chart("held-out", "Held-out accuracy", {"eval/*": ""},
              "Rises with the reward. Flat while the reward rises: the reward is being hacked."),
    ),
    "Signal": (
        Chart("zero-variance", "Groups that are all alike",
              {"frac_reward_zero_std": "equal rewards", "frac_groups_all_right": "all right",
               "frac_groups_all_wrong": "all wrong"},
              "Each under 60 %. Equal rewards: no gradient. All wrong: the prompts are too hard, "
              "and only the rest of the reward is learned. All right: they are solved; use harder "
              "ones.", unit="share of groups", top=1.0, limit=0.6),
        Chart("praised", "Praised failures", {"frac_praised_failures": "wrong, advantage > 0"},
              "Falls to 0. A wrong answer has a positive advantage if it beats worse ones.",
              unit="share of answers"),
        Chart("advantages", "Advantage, 5 % to 95 %",
              {"scan/advantage_p95": "95 %", "scan/advantage_p5": "5 %"},
              "Within a few units on both sides. A long tail on one side is a few answers that "
              "dominate the update."),
    ),
    "Length": (
        Chart("length", "Length",
              {"completions/mean_length": "mean", "scan/length_p50": "median",
               "scan/length_p95": "95 %"},
              "Grows with accuracy or not at all.", unit="tokens"),
        Chart("length-right", "Length of right and wrong",
              {"scan/length_right": "right", "scan/length_wrong": "wrong"},
              "Close together. Wrong answers that become much longer ramble.", unit="tokens"),
        Chart("truncated", "Cut off", {"completions/clipped_ratio": "share cut by max_tokens"},
              "Under 20 %. If higher, raise rollout.max_tokens or ask for shorter answers.",
              unit="share"),
    ),
    "Policy": (
        Chart("entropy", "Entropy", {"entropy": "entropy"},
              "Falls slowly and stays above 0. At 0 the policy no longer explores.",
              unit="nats per token"),
        Chart("kl", "KL",
              {"kl": "to the reference, or the teacher", "old_kl": "to the old policy"},
              "To the reference it grows smoothly, and a jump is a step that was too large. To the "
              "teacher of on-policy distillation it falls.", unit="nats per token"),
        Chart("mismatch", "Sampler against trainer",
              {"sampling/sampling_logp_difference/mean": "mean",
               "sampling/sampling_logp_difference/max": "largest", "sync/max": "at the sync"},
              "Flat, near the precision of the engines. A growing mean is the earliest warning of "
              "a collapse.", unit="nats", style="log"),
        Chart("clipping", "Clipped tokens",
              {"clip_ratio/low_mean": "at the lower bound", "clip_ratio/high_mean": "at the upper"},
              "A few per thousand. If more, the steps are too large for the clip range.",
              unit="share of tokens"),
        Chart("ratio", "Importance ratio", {"importance_ratio/mean": "mean"},
              "Stays at 1.", unit="current policy / old policy"),
        Chart("gradient", "Gradient norm", {"grad_norm": "before clipping"},
              "No spikes above five times its median."),
        Chart("rate", "Learning rate", {"learning_rate": "learning rate"}, "As set in the recipe."),
        Chart("loss", "Loss", {"loss": "loss", "eval_loss": "held out", "value_loss": "critic"},
              "In supervised stages it falls, and the held-out loss with it. In GRPO it stays near "
              "0 and says little."),
        Chart("token-accuracy", "Next-token accuracy",
              {"eval_mean_token_accuracy": "held out", "mean_token_accuracy": "training"},
              "Rises towards 1 on held-out rows.", unit="share"),
        Chart("preference", "Preference accuracy",
              {"accuracy": "training", "rewards/accuracies": "training",  # the latter of pairs
               "eval_accuracy": "held out", "accuracy/*": ""},
              "Above 0.5 and rising; held out close behind.", unit="share"),
    ),
    "Behaviour": (
        Chart("language", "Words in the question's language", {"rewards/language/mean": "share"},
              "At 0.9 and above.", unit="share of words"),
        Chart("reflection", "Reflection", {"reflection/*": ""},
              "May rise without a reward for it once checking answers pays off.",
              unit="per answer"),
    ),
    "Time": (
        Chart("phases", "Seconds per step", {"time/*": ""},
              "Constant. If sampling grows, answers are getting longer; if verifying grows, add "
              "workers.",
              unit="s", style="stack"),
        Chart("tokens", "Tokens per second", {"derived/tokens_per_second": "over the whole step"},
              "Constant. A slow fall comes from longer answers, a sudden one from the machine."),
        Chart("unscored", "Verifier failures", {"unscored": "answers without a verdict"},
              "0."),
    ),
    "System": (
        Chart("cpu", "CPU use", {"system/cpu/*": ""},
              "Constant. Far fewer cores than the machine has: the run waits for a GPU, a service "
              "or the disk.", unit="cores", style="stack"),
        Chart("resident", "Resident memory", {"system/memory/*": ""},
              "Flat after the first steps. A steady rise is a leak.", unit="GiB", style="stack"),
        Chart("memory", "Peak memory", {"memory/*": ""},
              "Flat after the first steps.", unit="GiB"),
        Chart("gpu", "GPU utilization", {"system/gpu/utilization": "mean over the step"},
              "High. Low values are steps that wait for verifiers, the CPU or the sampler.",
              unit="share of time", top=1.0),
        Chart("gpu-memory", "GPU memory in use", {"system/gpu/memory": "of all processes"},
              "Flat after the first steps, below the GPU's memory.", unit="GiB"),
        Chart("servers", "Tokens sampled by each server", {"system/sampled/*": ""},
              "Equal shares. A server without any is left out; the console has the reason.",
              unit="tokens", style="stack"),
        Chart("disk", "Free disk space", {"system/disk_free": "where the run is written"},
              "Falls with each checkpoint and its rollouts, and never to 0.", unit="GiB"),
    ),
}  # fmt: skip


def curves(stage: Stage, stats: RolloutStats, points: int = POINTS) -> dict[str, Any]:
    """{"steps": [...], "groups": [{name, charts: [{id, title, good, unit, style, series}]}]}.

    A series is {label, y} over the steps, or {label, x, y, low, high} with its own x. Metrics that
    no chart names come last, one chart each. Longer curves are thinned to about `points`, each
    metric that most steps lack for itself.
    """
    rows = _rows(stage, stats)
    every = -(-len(rows) // points) if rows else 1
    kept = [rows[index] for index in _drawn_rows(rows, points)]
    names = list(dict.fromkeys(name for row in kept for name in drawn_names(row)))
    groups = layout(names, stage.evaluations)
    for series in (s for group in groups for chart in group["charts"] for s in chart["series"]):
        if "x" not in series:
            series["y"] = [short(row.get(series["name"])) for row in kept]
        if "spread" in series:
            series["band"] = [short(row.get(series["spread"])) for row in kept]
    return {"steps": [row["step"] for row in kept], "every": every, "groups": groups}


def _drawn_rows(rows: Sequence[Row], points: int) -> list[int]:
    """Indices of the rows to draw: every n-th, and every m-th of those with a metric that most rows
    lack; the last one too."""
    having: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for name in drawn_names(row):
            having.setdefault(name, []).append(index)
    sparse = [indices for indices in having.values() if 2 * len(indices) < len(rows)]
    drawn = {
        index
        for indices in (range(len(rows)), *sparse)
        for index in (*indices[:: -(-len(indices) // points) or 1], *indices[-1:])
    }
    return sorted(drawn)


def layout(names: Sequence[str], evaluations: Sequence[Row] = ()) -> list[dict[str, Any]]:
    """The groups of charts for some metrics, as in `curves` but without values.

    A series has the `name` of its metric and of its `spread`; held-out series include their values.
    """
    held_out = list(_held_out_series(evaluations))
    groups = [
        {"name": group, "charts": non_empty}
        for group, charts in GROUPS.items()
        if (non_empty := [c for chart in charts if (c := _chart(chart, names, held_out))])
    ]
    shown = {s["name"] for g in groups for c in g["charts"] for s in c["series"]}
    shown |= {chart.band for charts in GROUPS.values() for chart in charts}
    rest = [n for n in names if n not in shown and n != "step" and not n.startswith("scan/")]
    others = [c for n in rest if (c := _chart(Chart(n, n, {n: n}, ""), names, []))]
    return [*groups, {"name": REST, "charts": others}] if others else groups


def drawn_names(row: Row) -> list[str]:
    """Names of the row's metrics that have a value to draw."""
    return [n for n, y in row.items() if y is not None and (y or n not in OPTIONAL)]


def derived(row: Row) -> dict[str, float]:
    """Metrics that are computed from other metrics of the row."""
    values = dict[str, float]()
    if row.get("step_time") and "num_tokens" in row:
        values["derived/tokens_per_second"] = row["num_tokens"] / row["step_time"]
    return values


def _rows(stage: Stage, stats: RolloutStats) -> list[dict[str, Any]]:
    """The rows of metrics, with statistics of the rollouts and derived metrics."""
    summaries = {summary.step: summary for summary in stats.steps}
    rows = list[dict[str, Any]]()
    for row in stage.metrics:
        extra = derived(row)
        if (summary := summaries.get(row["step"])) is not None:
            names = [name for name in summary.__slots__ if name != "step"]
            extra |= {f"scan/{name}": getattr(summary, name) for name in names}
        rows.append({**row, **extra})
    return rows


def _chart(
    chart: Chart, names: Sequence[str], held_out: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    series: list[dict[str, Any]] = []
    for pattern, label in chart.names.items():
        if pattern == "eval/*":
            series += held_out
        else:
            series += _matching(pattern, label, names, chart.band)
    if not series:
        return None
    text = {"id": chart.id, "title": chart.title, "good": chart.good, "unit": chart.unit}
    return text | {"style": chart.style, "top": chart.top, "limit": chart.limit, "series": series}


def _matching(
    pattern: str, label: str, names: Sequence[str], band: str
) -> Iterable[dict[str, Any]]:
    front, star, back = pattern.partition("*")
    for name in names:
        inside = name[len(front) : len(name) - len(back)]
        fits = star and name.startswith(front) and name.endswith(back) and "/" not in inside
        if name != pattern and not (fits and inside):
            continue
        spread = {"spread": band} if band in names and name == "reward" else {}
        yield {"name": name, "label": label or inside, **spread}


def _held_out_series(evaluations: Sequence[Row]) -> Iterable[dict[str, Any]]:
    """Held-out metrics with their intervals, of those with at least two evaluations. Those between
    the ends may ask a part of the questions, in which sources have other shares."""
    parts = [row for row in evaluations if row.get("full") is False]
    whole = [row for row in evaluations if row.get("full") is not False]
    size = max((row.get("problems", 0) for row in parts), default=0)
    kinds = [(whole, "", ""), (parts, " of a part", f", {size} questions")]
    for (sample, key, remark), name in product(kinds, ("pass@1", "greedy")):
        rows = [row for row in sample if "pass@1" in row and name in row]
        if len(rows) < 2:
            continue
        yield {
            "name": f"eval/{name}{key}",
            "label": f"{name}{remark}",
            "x": [row["step"] for row in rows],
            "y": [short(row[name]) for row in rows],
            "low": [short(row.get(f"{name} 95%", [row[name]] * 2)[0]) for row in rows],
            "high": [short(row.get(f"{name} 95%", [row[name]] * 2)[1]) for row in rows],
        }


def short(value: float | None) -> float | None:
    """The value with five significant digits, enough for a chart."""
    return None if value is None else float(f"{value:.5g}")
