"""Select recorded answers to read: by stage, step, group and outcome, in some order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.read_run import Stage, step_files
from veriloop.pipeline.report.rollout_stats import (
    Group,
    components,
    groups_of,
    outcome,
    scalar_rows,
)

Row = Mapping[str, Any]
Kind = Literal["", "right", "wrong", "errors"]
KINDS: Sequence[Kind] = ("right", "wrong", "errors")
SORTS: Mapping[str, Callable[[Row], float | None]] = {  # descending
    "reward": lambda row: row["reward"],
    "advantage": lambda row: row["advantage"],
    "length": lambda row: row["length"],
    "time": lambda row: row["exec_s"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One recorded answer with its group."""

    group: Group
    i: int  # among the answers of its group, from 0
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The selected answers and the step that they belong to."""

    stage: str
    step: int
    answers: Sequence[Sample]
    matching: int  # answers of the step that match the query, shown or not
    all: int  # answers of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """Which answers to read. By default: the newest step of the last stage, in recorded order."""

    stage: str = ""
    step: int | None = None
    group: int | None = None
    kind: Kind = ""
    sort: str = "place"
    reverse: bool = False
    limit: int = 0  # answers; 0: all
    held_out: bool = False


def samples(stages: Sequence[Stage], query: SampleQuery) -> Samples:
    """The answers that match `query`.

    Raises RecipeError, listing what exists, for an unknown stage, step, group or order.
    """
    if query.sort not in ("place", *SORTS):
        raise RecipeError(f"--sort {query.sort}: {_nearest(query.sort, ('place', *SORTS))}")
    stage, files = _stage(stages, query)
    step, path = _step(stage.name, files, query.step)
    try:
        rows = scalar_rows(path)
    except (pa.ArrowException, OSError, KeyError) as failure:
        raise RecipeError(f"{path} cannot be read: {failure}; is it being written?") from failure
    groups = groups_of(step, rows)
    if query.group is not None:
        groups = [_group(groups, query.group, step)]
    matching = [
        Sample(group=group, i=i, row=rows[number])
        for group in groups
        for i, number in enumerate(group.rows)
        if _matches(rows[number], query.kind)
    ]
    ordered = _sort(matching, query)
    return Samples(
        stage=stage.name,
        step=step,
        answers=ordered[: query.limit] if query.limit else ordered,
        matching=len(matching),
        all=len(rows),
    )


def _sort(answers: list[Sample], query: SampleQuery) -> list[Sample]:
    """Answers in the requested order; those without the number come last."""
    if query.sort == "place":
        return answers[::-1] if query.reverse else answers
    number, sign = SORTS[query.sort], 1 if query.reverse else -1

    def key(answer: Sample) -> tuple[bool, float]:
        value = number(answer.row)
        return value is None, 0.0 if value is None else sign * value

    return sorted(answers, key=key)


def _matches(row: Row, kind: Kind) -> bool:
    if kind == "errors":
        return any(outcome(row, name) == "error" for name in components(row))
    if kind == "":
        return True
    if row.get("status/accuracy") is None:  # only other components judged it
        return False
    accuracy = outcome(row, "accuracy")
    return accuracy == "right" if kind == "right" else accuracy not in ("right", "error")


def _stage(stages: Sequence[Stage], query: SampleQuery) -> tuple[Stage, Sequence[tuple[int, Path]]]:
    folder = "evaluated" if query.held_out else "rollouts"
    by_name = {stage.name: (stage, step_files(stage.folder / folder)) for stage in stages}
    recorded = [name for name, (_, files) in by_name.items() if files]
    kind = "held-out samples" if query.held_out else "rollouts"
    if query.stage and query.stage not in by_name:
        raise RecipeError(f"no stage {query.stage!r}: {_nearest(query.stage, [*by_name])}")
    if not recorded:
        hint = "" if query.held_out else "; --held-out shows the samples of evaluations, if any"
        raise RecipeError(f"no stage of this run has recorded {kind} yet{hint}")
    if query.stage and query.stage not in recorded:
        raise RecipeError(
            f"stage {query.stage!r} has recorded no {kind}; stages with {kind}: "
            f"{', '.join(recorded)}"
        )
    return by_name[query.stage or recorded[-1]]


def _step(stage: str, files: Sequence[tuple[int, Path]], step: int | None) -> tuple[int, Path]:
    """The number and file of a step; the newest by default."""
    if step is None:
        return files[-1]
    known = dict(files)
    if step not in known:
        near = min(known, key=lambda number: abs(number - step))
        raise RecipeError(
            f"no step {step} in {stage}: it has {len(known)} steps from {files[0][0]} to "
            f"{files[-1][0]}; nearest: {near}"
        )
    return step, known[step]


def _group(groups: Sequence[Group], index: int, step: int) -> Group:
    if not 0 <= index < len(groups):
        near = min(max(index, 0), len(groups) - 1)
        raise RecipeError(
            f"no group {index} at step {step}: groups are 0 to {len(groups) - 1}; nearest: {near}"
        )
    return groups[index]


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Available: {', '.join(known)}"
