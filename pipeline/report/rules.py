"""The rules of the health checks. Each assesses a stage and returns a level and its number.

A rule returns None if it does not apply to the stage, and level "unknown" for too few steps or
evaluations that cannot be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median, pvariance
from typing import Literal

from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.report.rollout_stats import RolloutStats
from veriloop.pipeline.report.tables import otherwise_asked

Level = Literal["good", "watch", "bad", "unknown"]
MIN_STEPS = 6  # fewer have no trend


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of a rule for one stage."""

    level: Level
    number: str  # formatted for display
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """Means of the first and the last third of a curve."""

    first: float
    last: float
    error: float  # standard error of the difference

    @property
    def gain(self) -> float:
        return self.last - self.first


def trend(values: Sequence[float]) -> Trend | None:
    """The trend of a curve; None for fewer than MIN_STEPS values."""
    if len(values) < MIN_STEPS:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    error = sqrt((pvariance(first) + pvariance(last)) / max(third - 1, 1))
    return Trend(fmean(first), fmean(last), error)


def _few(values: Sequence[float]) -> Assessment:
    return Assessment("unknown", f"{len(values)} steps; needs {MIN_STEPS}")


def _level(value: float, watch: float, bad: float) -> Level:
    return "bad" if value >= bad else "watch" if value >= watch else "good"


def _by_trend(stage: Stage, name: str, assess: Callable[[Trend], Assessment]) -> Assessment | None:
    values = stage.column(name)
    if not values or not stage.learns_from_rewards:
        return None
    thirds = trend(values)
    return _few(values) if thirds is None else assess(thirds)


def reward(stage: Stage, _: RolloutStats) -> Assessment | None:
    best = max(stage.column("reward"), default=0.0)

    def assess(thirds: Trend) -> Assessment:
        number = f"{thirds.first:.3g} → {thirds.last:.3g}"
        margin = 2 * thirds.error
        settled = best > 0 and thirds.first >= 0.95 * best
        if thirds.gain > margin or (settled and thirds.gain > -max(margin, 0.02 * best)):
            return Assessment("good", number, thirds.gain)
        return Assessment("bad" if thirds.gain < -margin else "watch", number, thirds.gain)

    return _by_trend(stage, "reward", assess)


def zero_variance(stage: Stage, _: RolloutStats) -> Assessment | None:
    def assess(thirds: Trend) -> Assessment:
        wrong = trend(stage.column("frac_groups_all_wrong"))
        right = trend(stage.column("frac_groups_all_right"))
        split = (
            f" (of all groups {right.last:.0%} all right, {wrong.last:.0%} all wrong)"
            if right and wrong
            else ""
        )
        level = _level(thirds.last, 0.6, 0.8)
        if wrong and wrong.last >= 0.6:
            level = "bad"
        return Assessment(level, f"{thirds.last:.0%}{split}", thirds.last)

    return _by_trend(stage, "frac_reward_zero_std", assess)


def truncation(stage: Stage, _: RolloutStats) -> Assessment | None:
    def assess(thirds: Trend) -> Assessment:
        return Assessment(_level(thirds.last, 0.2, 0.4), f"{thirds.last:.1%}", thirds.last)

    return _by_trend(stage, "completions/clipped_ratio", assess)


def entropy(stage: Stage, _: RolloutStats) -> Assessment | None:
    def assess(thirds: Trend) -> Assessment:
        number = f"{thirds.first:.3g} → {thirds.last:.3g} nats"
        share = thirds.last / thirds.first if thirds.first > 0 else 1.0
        lost = share < 0.03 or thirds.last < 0.005
        return Assessment(
            "bad" if lost else "watch" if share < 0.1 else "good", number, thirds.last
        )

    return _by_trend(stage, "entropy", assess)


def mismatch(stage: Stage, _: RolloutStats) -> Assessment | None:
    def assess(thirds: Trend) -> Assessment:
        number = f"{thirds.first:.1e} → {thirds.last:.1e} nats"
        times = thirds.last / thirds.first if thirds.first > 0 else 1.0
        if thirds.last >= 0.05 or (times >= 10 and thirds.last > 1e-3):
            return Assessment("bad", number, thirds.last)
        # Below 1e-5 nats the difference is float32 rounding.
        grown = times > 3 and thirds.last > 1e-5
        return Assessment("watch" if grown or thirds.last >= 0.01 else "good", number, thirds.last)

    return _by_trend(stage, "sampling/sampling_logp_difference/mean", assess)


def gradient(stage: Stage, _: RolloutStats) -> Assessment | None:
    norms = stage.column("grad_norm")
    if not norms:
        return None
    if len(norms) < MIN_STEPS:
        return _few(norms)
    settled = norms[len(norms) // 10 :]
    usual = median(settled)
    spikes = sum(norm > 5 * usual for norm in settled) if usual > 0 else 0
    times = max(settled) / usual if usual > 0 else 0.0
    level = "good" if not spikes else "bad" if spikes > max(0.02 * len(settled), 1) else "watch"
    return Assessment(
        level,
        f"{spikes} spike{'s' * (spikes != 1)}, largest {times:.1f} × the median",
        float(spikes),
    )


def errors(_: Stage, stats: RolloutStats) -> Assessment | None:
    return _share_of(stats, "error", 0.005, 0.02)


def timeouts(_: Stage, stats: RolloutStats) -> Assessment | None:
    return _share_of(stats, "timeout", 0.01, 0.05)


def _share_of(stats: RolloutStats, kind: str, watch: float, bad: float) -> Assessment | None:
    """The share of verdicts of one kind, for the verifier with the largest share."""
    shares = {
        name: sum(mix[kind] for mix in steps.values()) / sum(mix.total() for mix in steps.values())
        for name, steps in stats.verdicts.items()
    }
    if not shares:
        return None
    worst = max(shares, key=lambda name: shares[name])
    number = f"{shares[worst]:.2%}" + (f" ({worst})" if shares[worst] else "")
    return Assessment(_level(shares[worst], watch, bad), number, shares[worst])


def format_alone(stage: Stage, _: RolloutStats) -> Assessment | None:
    right, layout = (stage.column(f"rewards/{name}/mean") for name in ("accuracy", "format"))
    if not right or not layout:
        return None
    accuracy, shape = trend(right), trend(layout)
    if accuracy is None or shape is None:
        return _few(right)
    number = f"accuracy {accuracy.gain:+.2f}, format {shape.gain:+.2f}"
    if shape.gain <= 0.01 or accuracy.gain >= -0.005:
        return Assessment("good", number, accuracy.gain)
    sure = accuracy.gain < -0.02 and accuracy.gain < -2 * accuracy.error
    return Assessment("bad" if sure else "watch", number, accuracy.gain)


def length_alone(stage: Stage, _: RolloutStats) -> Assessment | None:
    lengths, right = stage.column("completions/mean_length"), stage.column("rewards/accuracy/mean")
    if not lengths or not right:
        return None
    length, accuracy = trend(lengths), trend(right)
    if length is None or accuracy is None:
        return _few(lengths)
    grown = length.gain / max(length.first, 1.0)
    number = f"length {grown:+.0%}, accuracy {accuracy.gain:+.2f}"
    if accuracy.gain >= 0.01:
        return Assessment("good", number, grown)
    return Assessment(_level(grown, 0.2, 0.5), number, grown)


def language(stage: Stage, _: RolloutStats) -> Assessment | None:
    _, share = stage.after("language")
    # R1-Zero has no language reward and is known to mix languages (DeepSeek-R1, section 2.2).
    rewarded = stage.kind != "zero"
    if share is None:
        rewards = trend(stage.column("rewards/language/mean"))
        share = rewards.last if rewards else None
    if share is None:
        return None
    level = "good" if share >= 0.9 else "watch" if share >= 0.7 or not rewarded else "bad"
    return Assessment(level, f"{share:.1%} of words", share)


def evaluation(stage: Stage, _: RolloutStats) -> Assessment | None:
    """Compare pass@1, or accuracy for stages without problems such as reward models. Evaluations
    that asked otherwise, as before and after a stage that was resumed with others, are unknown."""
    for figure in ("pass@1", "accuracy"):
        before, after = stage.after(figure)
        if before is None or after is None:
            continue
        low, high = stage.after(f"{figure} 95%")[0] or (before, before)
        number = f"{figure} {before:.3f} → {after:.3f}"
        if difference := otherwise_asked(figure, stage.entry["before"], stage.entry["after"]):
            return Assessment("unknown", f"{number}, of {difference}")
        if after < low:
            return Assessment("bad", number, after - before)
        return Assessment(
            "good" if after > high or after >= 0.95 else "watch", number, after - before
        )
    return None
