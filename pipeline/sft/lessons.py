"""Rows as lessons: encoded, the ones that are too long left out and counted, some held out."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from data.sft_ids import Lesson, lesson
from data.sft_rows import Row, question
from pipeline.failures import RecipeError
from pipeline.sft_config import LessonConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """The data of a run as ids."""

    train: tuple[Lesson, ...]
    held_out: tuple[Lesson, ...]
    too_long: int  # rows left out

    @property
    def key(self) -> str:
        """Hash of all ids and of what is learned of them, in order."""
        digest = sha256()
        for one in (*self.train, *self.held_out):
            digest.update(struct.pack(f"<q{len(one.ids)}q", len(one.ids), *one.ids))
            digest.update(bytes(one.learned))
        return digest.hexdigest()

    @property
    def facts(self) -> dict[str, int]:
        """Counts, for the record."""
        return {
            "rows": len(self.train),
            "held_out": len(self.held_out),
            "too_long": self.too_long,
            "learned_tokens": sum(one.targets for one in self.train),
        }


def lessons(
    rows: Sequence[Row], config: LessonConfig, tokenizer: Any, ends: Sequence[int], seed: int
) -> Lessons:
    """Raises RecipeError naming the row that cannot be encoded or, when asked, is too long."""
    train, held_out = divided(rows, config.held_out, seed)
    sides = [_encoded(side, config, tokenizer, ends) for side in (train, held_out)]
    kept = [[one for one in side if len(one.ids) <= config.max_tokens] for side in sides]
    if not kept[0]:
        raise RecipeError(f"data: every row exceeds max_tokens={config.max_tokens}")
    left_out = sum(map(len, sides)) - sum(map(len, kept))
    return Lessons(train=tuple(kept[0]), held_out=tuple(kept[1]), too_long=left_out)


def divided(
    rows: Sequence[Row], held_out: int, seed: int
) -> tuple[list[tuple[int, Row]], list[tuple[int, Row]]]:
    """Numbered rows to learn and to hold out: whole questions are drawn, so that no answer to a
    held-out one is learned, until `held_out` rows or more are found."""
    asked = [question(row) for row in rows]
    order = sorted(set(asked))
    Random(f"held-out/{seed}").shuffle(order)
    counts = {one: 0 for one in order}
    for one in asked:
        counts[one] += 1
    chosen: set[str] = set()
    found = 0
    for one in order:
        if found >= held_out:
            break
        chosen.add(one)
        found += counts[one]
    numbered = list(enumerate(rows, 1))
    sides = [
        [(n, r) for n, r in numbered if (asked[n - 1] in chosen) is out] for out in (False, True)
    ]
    if not sides[0]:
        raise RecipeError(f"data.held_out={held_out} leaves none of the {len(rows)} rows to learn")
    return sides[0], sides[1]


def _encoded(
    rows: Sequence[tuple[int, Row]], config: LessonConfig, tokenizer: Any, ends: Sequence[int]
) -> list[Lesson]:
    found: list[Lesson] = []
    for number, row in rows:
        try:
            one = lesson(row, tokenizer, ends, last_turn=config.turns == "last")
        except ValueError as mistake:
            raise RecipeError(f"data: row {number}: {mistake}") from mistake
        if len(one.ids) > config.max_tokens and config.too_long == "refuse":
            raise RecipeError(
                f"data: row {number} has {len(one.ids)} tokens; max_tokens={config.max_tokens} "
                "(data.too_long: leave_out would leave it out)"
            )
        found.append(one)
    return found
