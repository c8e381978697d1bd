"""Off-policy prefetching: the next turn's rollouts are collected while this turn is learned.

They are one turn older than the policy that learns from them; importance ratios against the
sampler's log-probs correct for this (and clip). The rollouts of the turn after the next are started
as soon as the sampler has the weights for them, while this turn is still being recorded. Finished
rollouts that were not yet learned from are part of a checkpoint, so a resumed run repeats an
uninterrupted one; unfinished ones are collected again.
"""

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from random import Random
from typing import Any, Protocol

import torch

from veriloop.data.problem import Problem
from veriloop.pipeline.rollouts.collect import CollectedStep
from veriloop.pipeline.rollouts.columns import concatenated, split
from veriloop.pipeline.rollouts.grade import Verdicts
from veriloop.pipeline.rollouts.ledger import OpenTurn
from veriloop.pipeline.training.measurements import Clock
from veriloop.pipeline.types import Graded, Rollout
from veriloop.verifiers.verdict import Verdict

# Rollout fields that a checkpoint holds as tensors; the others are stored as JSON.
TENSOR_FIELDS = {"prompt_ids": torch.int32, "response_ids": torch.int32, "logp": torch.float64}


class Collects(Protocol):
    """Collects turns in their order."""

    @property
    def next_question(self) -> int: ...
    @property
    def open(self) -> tuple[OpenTurn, ...]: ...  # begun turns after the one collected last

    def __call__(self, step: int, random: Random, clock: Clock) -> CollectedStep: ...


class RolloutPrefetcher:
    """Holds at most one collected turn, and collects at most one more in a thread."""

    def __init__(self, collector: Collects) -> None:
        self._collector = collector
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._ready: tuple[CollectedStep, Clock] | None = None
        self._pending: Future[tuple[CollectedStep, Clock]] | None = None
        self._pending_first = 0  # the collector's next question when `_pending` began
        self._pending_open: tuple[OpenTurn, ...] = ()  # its begun turns at that time

    @property
    def next_question(self) -> int:
        """The first question after those of rollouts that are ready or were learned from."""
        return self._collector.next_question if self._pending is None else self._pending_first

    @property
    def open(self) -> tuple[OpenTurn, ...]:
        """The turns begun after those that are ready or were learned from."""
        return self._collector.open if self._pending is None else self._pending_open

    def begin(self, step: int, random: Random) -> None:
        """Start collecting the rollouts of turn `step`; does nothing while a turn is pending."""
        if self._pending is None:
            self._pending_first = self._collector.next_question
            self._pending_open = self._collector.open
            self._pending = self._thread.submit(self._collect, step, random)

    def finish(self, clock: Clock) -> None:
        """Wait for the pending turn, if any; raises what collecting it raised."""
        if self._pending is None:
            return
        if self._ready is not None:
            raise RuntimeError("the rollouts collected before were not taken: they would be lost")
        with clock("wait"):
            pending, self._pending = self._pending, None
            self._ready = pending.result()

    def take(self) -> tuple[CollectedStep, Clock] | None:
        """The rollouts of the turn that begins, and the times of collecting them."""
        ready, self._ready = self._ready, None
        return ready

    def close(self) -> None:
        """Wait for the pending turn and drop it; a closed sampler ends it early."""
        self._thread.shutdown()

    def state(self) -> dict[str, Any] | None:
        return None if self._ready is None else pack(self._ready[0])

    def load(self, state: Mapping[str, Any] | None) -> None:
        self._ready = None if state is None else (unpack(state), Clock())

    def _collect(self, step: int, random: Random) -> tuple[CollectedStep, Clock]:
        clock = Clock()
        return self._collector(step, random, clock), clock


def pack(collected: CollectedStep) -> dict[str, Any]:
    """The collected step as tensors, numbers and strings; `unpack` restores it to the bit."""
    rollouts = [g.rollout for g in collected.graded]
    tensors = {
        name: concatenated([getattr(rollout, name) for rollout in rollouts], dtype)
        for name, dtype in TENSOR_FIELDS.items()
    }
    records = json.dumps([_record(g) for g in collected.graded])
    return {
        "tensors": tensors,
        "told": records,
        "asked": collected.asked,
        "missing": collected.missing,
        "dropped": json.dumps([_plain(verdicts) for verdicts in collected.dropped]),
    }


def unpack(state: Mapping[str, Any]) -> CollectedStep:
    """Inverse of `pack`."""
    columns = zip(*(split(*state["tensors"][name]) for name in TENSOR_FIELDS), strict=True)
    graded = [
        _graded(record, dict(zip(TENSOR_FIELDS, values, strict=True)))
        for record, values in zip(json.loads(state["told"]), columns, strict=True)
    ]
    # Checkpoints of earlier versions have no verdicts on what was dropped.
    dropped = [_verdicts(verdicts) for verdicts in json.loads(state.get("dropped", "[]"))]
    return CollectedStep(
        graded=graded, asked=state["asked"], missing=state["missing"], dropped=dropped
    )


def _plain(verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    return {name: asdict(verdict) for name, verdict in verdicts.items()}


def _verdicts(record: Mapping[str, Mapping[str, Any]]) -> dict[str, Verdict]:
    return {name: Verdict(**verdict) for name, verdict in record.items()}


def _record(graded: Graded) -> dict[str, Any]:
    rollout = asdict(graded.rollout)
    for name in TENSOR_FIELDS:
        del rollout[name]
    return {
        "rollout": rollout,
        "verdicts": _plain(graded.verdicts),
        "reward": graded.reward,
        "steps": graded.steps,
    }


def _graded(record: Mapping[str, Any], values: Mapping[str, tuple[Any, ...]]) -> Graded:
    problem = Problem(**record["rollout"]["problem"])
    steps = record.get("steps")  # not in checkpoints of earlier versions, nor are the versions
    versions = record["rollout"].get("versions")
    several = None if versions is None else tuple(versions)
    fields = {**record["rollout"], **values, "problem": problem, "versions": several}
    return Graded(
        rollout=Rollout(**fields),
        verdicts=_verdicts(record["verdicts"]),
        reward=record["reward"],
        steps=None if steps is None else tuple((end, score) for end, score in steps),
    )
