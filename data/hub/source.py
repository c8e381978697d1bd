"""A published set as a source of questions: shuffled by a seed, endless, what is held out apart."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from data.arithmetic import Split
from data.decontaminate import Overlap, words
from data.hub.files import FILES
from data.hub.layout import Layout
from data.hub.load import layout_for, read
from data.problem import Problem

Fits = Callable[[Problem], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which rows of a set are wanted, and how they are split."""

    name: str
    layout: Layout | None = None  # of a set that is not known by name
    path: str = ""
    config: str = ""
    train: str = ""  # split to learn from; "": the set's own
    test: str = ""  # split held out, or a file of its own; "": the set's own split
    held_out: float = 0.0  # share of the questions to hold out by hash, instead of a split
    rows: int = 0  # of the split to learn from, its first ones; 0: all
    fits: Fits = field(default=lambda _: True)  # whether a prompt is short enough


class SetSource:
    """Random access to the questions of a set, as often as anybody asks."""

    def __init__(self, name: str, learned: Sequence[Problem], held_out: Sequence[Problem]) -> None:
        self.name = name
        self._problems: Mapping[str, Sequence[Problem]] = {"rl": learned, "test": held_out}
        self._orders: dict[tuple[Split, int, int], list[int]] = {}

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index`; after all of them they come again, in another order.

        Raises ValueError where the split holds none.
        """
        found = self._of(split)
        turn, place = divmod(index, len(found))
        return found[self._order(split, seed, turn)[place]]

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """The first `count` of them, or all there are."""
        found = self._of(split)
        return [found[place] for place in self._order(split, seed, 0)[:count]]

    def kinds(self) -> list[Problem]:
        """A question for each verifier that judges any."""
        every = [one for found in self._problems.values() for one in found]
        return list({one.verifier: one for one in every}.values())

    def _of(self, split: Split) -> Sequence[Problem]:
        found = self._problems["test" if split == "test" else "rl"]
        if not found:
            what = "is held out: give `test`, a split, or `held_out`, a share"
            told = what if split == "test" else "can be learned from"
            raise ValueError(f"{self.name}: no question {told}")
        return found

    def _order(self, split: Split, seed: int, turn: int) -> list[int]:
        key = (split, seed, turn)
        if key not in self._orders:
            order = list(range(len(self._of(split))))
            Random(f"{self.name}/{split}/{seed}/{turn}").shuffle(order)
            if len(self._orders) > 3:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = order
        return self._orders[key]


def opened(asked: Asked, against: Overlap | None = None) -> tuple[SetSource, dict[str, Any]]:
    """The source, and how many rows became of what: `learned`, `held_out`, `dropped` by reason.

    A question that is also held out is not learned, and neither is one that shows an n-gram of
    `against`. Raises ValueError and NotHereError.
    """
    layout = layout_for(asked.name, asked.path, asked.layout)
    require_problems(asked.name, layout)
    dropped: Counter[str] = Counter()
    learned = _read(asked, layout, asked.path, asked.train or layout.train, asked.rows, dropped)
    if asked.held_out:
        held_out = [one for one in learned if hashed(one.prompt) < asked.held_out]
        learned = [one for one in learned if hashed(one.prompt) >= asked.held_out]
    else:
        held_out = _read(asked, layout, *_held_out(asked, layout), 0, dropped)
    known = {_key(one) for one in held_out}
    kept: list[Problem] = []
    for one in learned:
        if _key(one) in known:
            dropped["also held out"] += 1
        elif against is not None and against.found(one.prompt):
            dropped["contaminated"] += 1
        else:
            kept.append(one)
    facts = {
        "path": asked.path or layout.repo,
        "learned": len(kept),
        "held_out": len(held_out),
        "dropped": dict(dropped),
        "sha256": fingerprint([*kept, *held_out]),
    }
    return SetSource(asked.name, kept, held_out), facts


def hashed(question: str) -> float:
    """A number in [0, 1) that hangs on the words of a question alone."""
    digest = hashlib.sha256(" ".join(words(question)).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def _held_out(asked: Asked, layout: Layout) -> tuple[str, str]:
    """(path, split) of the held-out questions; no split where there are none."""
    if Path(asked.test).suffix in FILES:
        return asked.test, "test"
    one_file = Path(asked.path).suffix in FILES  # it is one split
    return asked.path, asked.test or ("" if one_file and layout.train else layout.test)


def _read(
    asked: Asked, layout: Layout, path: str, split: str, most: int, dropped: Counter[str]
) -> list[Problem]:
    """The questions of a split that fit, each once; of no split none."""
    if not split:
        return []
    reading = read(
        asked.name, path=path, split=split, config=asked.config, layout=layout, streaming=False
    )
    found: dict[str, Problem] = {}
    for entry in reading:
        if _key(entry.problem) in found:
            dropped["duplicate"] += 1
        elif not asked.fits(entry.problem):
            dropped["prompt too long"] += 1
        else:
            found[_key(entry.problem)] = entry.problem
        if most and reading.rows >= most:
            break
    dropped.update(reading.dropped)
    return list(found.values())


def _key(problem: Problem) -> str:
    return " ".join(problem.prompt.split())


def fingerprint(problems: Iterable[Problem]) -> str:
    """sha256 of questions and of what is known of their answers."""
    digest = hashlib.sha256()
    for one in problems:
        digest.update(repr((one.id, one.prompt, one.verifier, one.reference)).encode())
    return digest.hexdigest()


def require_problems(name: str, layout: Layout) -> None:
    """Raise ValueError for a set that holds no problems to answer."""
    if layout.kind in ("preferences", "sft"):
        raise ValueError(f"{name}: holds {layout.kind} rows, not questions with right answers")
