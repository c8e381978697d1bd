"""The rules behind the health checks: a stage's records to a level and the number it rests on.

Each returns None where it does not concern the stage, and `unknown` where there is too little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median, pvariance
from typing import Literal

from pipeline.report.reading import Stage
from pipeline.report.scan import Scan

Level = Literal["good", "watch", "bad", "unknown"]
LEAST = 6  # steps; fewer have no trend


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule found in one stage."""

    level: Level
    number: str  # as it is shown
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """The first third of a curve against its last."""

    first: float
    last: float
    error: float  # standard error of the difference

    @property
    def gain(self) -> float:
        return self.last - self.first


def trend(values: Sequence[float]) -> Trend | None:
    """None of fewer than LEAST values."""
    if len(values) < LEAST:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    error = sqrt((pvariance(first) + pvariance(last)) / max(third - 1, 1))
    return Trend(fmean(first), fmean(last), error)


def _few(values: Sequence[float]) -> Answer:
    return Answer("unknown", f"{len(values)} steps; takes {LEAST}")


def _level(value: float, watch: float, bad: float) -> Level:
    return "bad" if value >= bad else "watch" if value >= watch else "good"


def _by_trend(stage: Stage, name: str, judge: Callable[[Trend], Answer]) -> Answer | None:
    values = stage.column(name)
    if not values or not stage.learns_from_rewards:
        return None
    found = trend(values)
    return _few(values) if found is None else judge(found)


def reward(stage: Stage, _: Scan) -> Answer | None:
    best = max(stage.column("reward"), default=0.0)

    def judge(found: Trend) -> Answer:
        number = f"{found.first:.3g} → {found.last:.3g}"
        margin = 2 * found.error
        settled = best > 0 and found.first >= 0.95 * best
        if found.gain > margin or (settled and found.gain > -max(margin, 0.02 * best)):
            return Answer("good", number, found.gain)
        return Answer("bad" if found.gain < -margin else "watch", number, found.gain)

    return _by_trend(stage, "reward", judge)


def zero_variance(stage: Stage, _: Scan) -> Answer | None:
    def judge(found: Trend) -> Answer:
        wrong = trend(stage.column("frac_groups_all_wrong"))
        right = trend(stage.column("frac_groups_all_right"))
        split = (
            f" ({right.last:.0%} all right, {wrong.last:.0%} all wrong)" if right and wrong else ""
        )
        level = _level(found.last, 0.6, 0.8)
        if wrong and wrong.last >= 0.6:
            level = "bad"
        return Answer(level, f"{found.last:.0%}{split}", found.last)

    return _by_trend(stage, "frac_reward_zero_std", judge)


def truncation(stage: Stage, _: Scan) -> Answer | None:
    def judge(found: Trend) -> Answer:
        return Answer(_level(found.last, 0.2, 0.4), f"{found.last:.1%}", found.last)

    return _by_trend(stage, "completions/clipped_ratio", judge)


def entropy(stage: Stage, _: Scan) -> Answer | None:
    def judge(found: Trend) -> Answer:
        number = f"{found.first:.3g} → {found.last:.3g} nats"
        share = found.last / found.first if found.first > 0 else 1.0
        lost = share < 0.03 or found.last < 0.005
        return Answer("bad" if lost else "watch" if share < 0.1 else "good", number, found.last)

    return _by_trend(stage, "entropy", judge)


def mismatch(stage: Stage, _: Scan) -> Answer | None:
    def judge(found: Trend) -> Answer:
        number = f"{found.first:.1e} → {found.last:.1e} nats"
        times = found.last / found.first if found.first > 0 else 1.0
        if found.last >= 0.05 or (times >= 10 and found.last > 1e-3):
            return Answer("bad", number, found.last)
        grown = times > 3 and found.last > 1e-5  # under that it is the last bit of a float
        return Answer("watch" if grown or found.last >= 0.01 else "good", number, found.last)

    return _by_trend(stage, "sampling/sampling_logp_difference/mean", judge)


def gradient(stage: Stage, _: Scan) -> Answer | None:
    norms = stage.column("grad_norm")
    if not norms:
        return None
    if len(norms) < LEAST:
        return _few(norms)
    settled = norms[len(norms) // 10 :]
    usual = median(settled)
    spikes = sum(norm > 5 * usual for norm in settled) if usual > 0 else 0
    times = max(settled) / usual if usual > 0 else 0.0
    level = "good" if not spikes else "bad" if spikes > max(0.02 * len(settled), 1) else "watch"
    return Answer(
        level,
        f"{spikes} spike{'s' * (spikes != 1)}, largest {times:.1f} × the median",
        float(spikes),
    )


def errors(_: Stage, scan: Scan) -> Answer | None:
    return _share_of(scan, "error", 0.005, 0.02)


def timeouts(_: Stage, scan: Scan) -> Answer | None:
    return _share_of(scan, "timeout", 0.01, 0.05)


def _share_of(scan: Scan, kind: str, watch: float, bad: float) -> Answer | None:
    """By the verifier that has most of them."""
    shares = {
        name: sum(mix[kind] for mix in steps.values()) / sum(mix.total() for mix in steps.values())
        for name, steps in scan.verdicts.items()
    }
    if not shares:
        return None
    worst = max(shares, key=lambda name: shares[name])
    told = f"{shares[worst]:.2%}" + (f" ({worst})" if shares[worst] else "")
    return Answer(_level(shares[worst], watch, bad), told, shares[worst])


def format_alone(stage: Stage, _: Scan) -> Answer | None:
    right, layout = (stage.column(f"rewards/{name}/mean") for name in ("accuracy", "format"))
    if not right or not layout:
        return None
    accuracy, shape = trend(right), trend(layout)
    if accuracy is None or shape is None:
        return _few(right)
    number = f"accuracy {accuracy.gain:+.2f}, format {shape.gain:+.2f}"
    if shape.gain <= 0.01 or accuracy.gain >= -0.005:
        return Answer("good", number, accuracy.gain)
    sure = accuracy.gain < -0.02 and accuracy.gain < -2 * accuracy.error
    return Answer("bad" if sure else "watch", number, accuracy.gain)


def length_alone(stage: Stage, _: Scan) -> Answer | None:
    lengths, right = stage.column("completions/mean_length"), stage.column("rewards/accuracy/mean")
    if not lengths or not right:
        return None
    length, accuracy = trend(lengths), trend(right)
    if length is None or accuracy is None:
        return _few(lengths)
    grown = length.gain / max(length.first, 1.0)
    number = f"length {grown:+.0%}, accuracy {accuracy.gain:+.2f}"
    if accuracy.gain >= 0.01:
        return Answer("good", number, grown)
    return Answer(_level(grown, 0.2, 0.5), number, grown)


def language(stage: Stage, _: Scan) -> Answer | None:
    _, share = stage.after("language")
    asked_for = stage.kind != "zero"  # R1-Zero is not rewarded for it, and mixes languages
    if share is None:
        rewards = trend(stage.column("rewards/language/mean"))
        share = rewards.last if rewards else None
    if share is None:
        return None
    level = "good" if share >= 0.9 else "watch" if share >= 0.7 or not asked_for else "bad"
    return Answer(level, f"{share:.1%} of words", share)


def evaluation(stage: Stage, _: Scan) -> Answer | None:
    """By pass@1; by accuracy where a stage has no problems, as a reward model."""
    for figure in ("pass@1", "accuracy"):
        before, after = stage.after(figure)
        if before is None or after is None:
            continue
        low, high = stage.after(f"{figure} 95%")[0] or (before, before)
        number = f"{figure} {before:.3f} → {after:.3f}"
        if after < low:
            return Answer("bad", number, after - before)
        return Answer("good" if after > high or after >= 0.95 else "watch", number, after - before)
    return None
