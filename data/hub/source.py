"""A published data set as a shuffled, endless source of questions with a held-out split."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from veriloop.data.arithmetic import Split
from veriloop.data.counts import counted
from veriloop.data.decontaminate import Overlap, words
from veriloop.data.hub.files import held_out_split, rows, training_split
from veriloop.data.hub.layout import Layout
from veriloop.data.hub.load import Entry, ProblemReader, layout_for, read
from veriloop.data.hub.reference_answers import plain_answer
from veriloop.data.problem import Problem

Fits = Callable[[Problem], bool]
NO_SPLIT = "give `test`, a split or a file, or `held_out`, a share"
CACHED_ORDERS = 4  # permutations kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Which rows of a data set to read, and how to split them."""

    name: str
    layout: Layout | None = None  # None: that of the known set `name`
    path: str = ""
    config: str = ""
    train: str = ""  # training split; "": the set's own
    test: str = ""  # held-out split, or a file; "": the set's own split
    held_out: float = 0.0  # share of the questions to hold out by hash instead of a split
    rows: int = 0  # first rows of the training split to read; 0: all
    fits: Fits = field(default=lambda _: True)  # whether a prompt is short enough


class SetSource:
    """Random access to the questions of a data set, repeated endlessly."""

    def __init__(
        self,
        name: str,
        training: Sequence[Problem],
        held_out: Sequence[Problem],
        worked: Mapping[str, str] = {},
    ) -> None:
        """`worked` has the steps to the answers, by problem id."""
        self.name, self._worked = name, worked
        self._training, self._held_out = training, held_out
        self._orders: dict[tuple[Split, int, int], list[int]] = {}

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index`; every pass over the split is shuffled differently.

        Raises ValueError if the split is empty.
        """
        problems = self._problems(split)
        epoch, position = divmod(index, len(problems))
        return problems[self._order(split, seed, epoch)[position]]

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """The first `count` questions, or all if there are fewer."""
        problems = self._problems(split)
        return [problems[i] for i in self._order(split, seed, 0)[:count]]

    def worked(self, problem: Problem) -> str:
        """The steps to the answer in the problem's row; "" if it has none."""
        return self._worked.get(problem.id, "")

    def answer(self, problem: Problem) -> str | None:
        """The answer in the problem's row; None without a single one."""
        return plain_answer(problem)

    def kinds(self) -> list[Problem]:
        """One question for each verifier."""
        return list({p.verifier: p for p in (*self._training, *self._held_out)}.values())

    def _problems(self, split: Split) -> Sequence[Problem]:
        problems = self._held_out if split == "test" else self._training
        if not problems:
            lack = "to train on"
            if split == "test":
                lack = f"is held out: {NO_SPLIT}, with prompts that fit"
            raise ValueError(f"{self.name}: no question {lack}")
        return problems

    def _order(self, split: Split, seed: int, epoch: int) -> list[int]:
        key = (split, seed, epoch)
        if key not in self._orders:
            order = list(range(len(self._problems(split))))
            Random(f"{self.name}/{split}/{seed}/{epoch}").shuffle(order)
            if len(self._orders) >= CACHED_ORDERS:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = order
        return self._orders[key]


def open_source(
    spec: SourceSpec, against: Overlap | None = None
) -> tuple[SetSource, dict[str, Any]]:
    """The source, and facts: counts `learned`, `held_out` and `dropped` by reason, and a hash.

    Training questions that are also held out, or that share an n-gram with `against`, are dropped.
    Raises ValueError and DatasetNotFoundError.
    """
    layout = layout_for(spec.name, spec.path, spec.layout)
    require_problems(spec.name, layout)
    dropped: Counter[str] = Counter()
    split = training_split(layout, spec.path, spec.train)
    entries = _read(spec, layout, spec.path, split, spec.rows, dropped)
    if spec.held_out:
        fractions = [hash_fraction(entry.problem.prompt) for entry in entries]
        pairs = list(zip(fractions, entries, strict=True))
        held_out = [entry.problem for fraction, entry in pairs if fraction < spec.held_out]
        entries = [entry for fraction, entry in pairs if fraction >= spec.held_out]
    else:
        path, split = held_out_split(layout, spec.path, spec.test)
        if path != spec.path:  # the file may be exported, or the other one
            layout = layout_for(spec.name, path, spec.layout)
        asked = _read(spec, layout, path, split, 0, dropped)
        held_out = [entry.problem for entry in asked]
    held_out_keys = {_key(problem) for problem in held_out}
    training: list[Problem] = []
    worked: dict[str, str] = {}
    for entry in entries:
        problem = entry.problem
        if _key(problem) in held_out_keys:
            dropped["also held out"] += 1
        elif against is not None and against.shared(entry.filled or problem.prompt, problem.prompt):
            dropped["contaminated"] += 1
        else:
            training.append(problem)
            worked[problem.id] = entry.worked
    facts = {
        "path": spec.path or layout.repo,
        "learned": len(training),
        "held_out": len(held_out),
        "dropped": dict(dropped),
        "sha256": fingerprint([*training, *held_out]),
    }
    return SetSource(spec.name, training, held_out, worked), facts


def require_rows(spec: SourceSpec, asked: Collection[Split] = ()) -> None:
    """Read the first row of each split, downloading a set of the hub into the cache; of the splits
    that are `asked`, up to the first question, of any length.

    Raises ValueError, also for a split without a question, and DatasetNotFoundError.
    """
    layout = layout_for(spec.name, spec.path, spec.layout)
    require_problems(spec.name, layout)
    part = training_split(layout, spec.path, spec.train)
    if spec.held_out:
        _require_shares(spec, layout, part, asked)
        return
    _require_split(spec, layout, spec.path, part, "to train on" if "rl" in asked else "")
    path, held_out = held_out_split(layout, spec.path, spec.test)
    if path != spec.path:
        layout = layout_for(spec.name, path, spec.layout)
    _require_split(spec, layout, path, held_out, "is held out" if "test" in asked else "")


def _require_split(spec: SourceSpec, layout: Layout, path: str, split: str, aim: str) -> None:
    """Raise ValueError unless a split has a question, if there is an aim for it."""
    if not aim:
        if split:
            next(rows(spec.name, layout, path, split, config=spec.config, streaming=False), None)
        return
    if not split:
        hint = NO_SPLIT if "held" in aim else "it has no training split; set `train`"
        raise ValueError(f"no question {aim}: {hint}")
    reader = _reader(spec, layout, path, split, 0)
    if next(iter(reader), None) is None:
        reasons = "".join(f"; {count:,} {reason}" for reason, count in reader.dropped.items())
        raise ValueError(
            f"no question {aim}: split {split!r} has {counted(reader.rows, 'row')}{reasons}"
        )


def _require_shares(spec: SourceSpec, layout: Layout, split: str, asked: Collection[Split]) -> None:
    missing, count = set(asked), 0
    for entry in _reader(spec, layout, spec.path, split, spec.rows):
        count += 1
        missing.discard("test" if hash_fraction(entry.problem.prompt) < spec.held_out else "rl")
        if not missing:
            return
    if missing:
        lacks_test = "test" in missing
        raise ValueError(
            f"no question {'is held out' if lacks_test else 'is left to train on'}: "
            f"held_out={spec.held_out:g} of {count:,} questions, chosen by a hash; give a "
            f"{'larger' if lacks_test else 'smaller'} share, or `test`, a split or a file"
        )


def hash_fraction(question: str) -> float:
    """A number in [0, 1) that depends only on the words of a question."""
    digest = hashlib.sha256(" ".join(words(question)).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def _read(
    spec: SourceSpec,
    layout: Layout,
    path: str,
    split: str,
    limit: int,
    dropped: Counter[str],
) -> list[Entry]:
    """The distinct questions of a split that fit, from its first `limit` rows (0: all), without
    their solutions. Adds to `dropped`."""
    if not split:
        return []
    reader = _reader(spec, layout, path, split, limit)
    entries: dict[str, Entry] = {}
    for entry in reader:
        problem = entry.problem  # of an exported file, its source may be another set
        problem = replace(problem, facts={**problem.facts, "source": spec.name})
        key = _key(problem)
        if key in entries:
            dropped["duplicate"] += 1
        elif not spec.fits(problem):
            dropped["prompt too long"] += 1
        else:
            entries[key] = replace(entry, problem=problem, solutions=())
    dropped.update(reader.dropped)
    return list(entries.values())


def _reader(spec: SourceSpec, layout: Layout, path: str, split: str, limit: int) -> ProblemReader:
    return read(
        spec.name,
        path=path,
        split=split,
        config=spec.config,
        layout=layout,
        streaming=False,
        limit=limit,
    )


def _key(problem: Problem) -> str:
    return " ".join(problem.prompt.split())


def fingerprint(problems: Iterable[Problem]) -> str:
    """sha256 of questions and references."""
    digest = hashlib.sha256()
    for problem in problems:
        fields = (problem.id, problem.prompt, problem.verifier, problem.reference)
        digest.update(repr(fields).encode())
    return digest.hexdigest()


def require_problems(name: str, layout: Layout) -> None:
    """Raise ValueError for a set of preferences or conversations, which have no right answer."""
    if layout.kind in ("preferences", "sft"):
        raise ValueError(f"{name}: holds {layout.kind} rows, not questions with right answers")
