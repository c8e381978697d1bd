"""Preference rows as training examples: token ids, labels and matched segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import torch

from veriloop.data.preference_ids import EncodedAnswer, encode
from veriloop.data.preferences import Labelled, Pair, Row, Segment
from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.preference import aspect_score, matched_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A segment of the chosen and one of the rejected answer, by index, with their scores."""

    chosen: int
    rejected: int
    chosen_score: float
    rejected_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The chosen and the rejected answer, or, for KTO, the labelled answer and a mismatched one.

    A mismatched answer is another prompt's completion under this prompt.
    """

    answers: tuple[EncodedAnswer, EncodedAnswer]
    label: bool = True  # KTO: whether the first answer is desirable
    gap: float | None = None  # score of the chosen minus that of the rejected answer
    matches: tuple[Match, ...] = ()  # 2D-DPO


def to_pairs(rows: Sequence[Row]) -> list[Pair]:
    """Rows as pairs: a ranking pairs its best answer with each of the others.

    The gap is then the difference in rank (Curry-DPO, arXiv 2403.07230).
    """
    pairs: list[Pair] = []
    for row in rows:
        if isinstance(row, Labelled):
            raise RecipeError(
                "the data are single labelled answers (prompt, completion, label), which only the "
                "loss kto reads"
            )
        if isinstance(row, Pair):
            pairs.append(row)
            continue
        best, *rest = row.answers
        pairs += [
            Pair(prompt=row.prompt, chosen=best, rejected=worse, gap=float(rank), place=row.place)
            for rank, worse in enumerate(rest, 1)
        ]
    return pairs


def to_labelled(rows: Sequence[Row]) -> list[Labelled]:
    """Rows as single answers: a pair gives a desirable and an undesirable one."""
    if rows and isinstance(rows[0], Labelled):
        return [row for row in rows if isinstance(row, Labelled)]
    return [
        Labelled(prompt=pair.prompt, completion=text, label=label, place=pair.place)
        for pair in to_pairs(rows)
        for text, label in ((pair.chosen, True), (pair.rejected, False))
    ]


def encode_pairs(
    pairs: Sequence[Pair], tokenizer: Any, ends: Sequence[int], config: PreferenceLossConfig
) -> list[Example]:
    """One example per pair. Raises RecipeError, with its place, for one that cannot be encoded."""
    examples: list[Example] = []
    for number, pair in enumerate(pairs, 1):
        try:
            examples.append(_encode_pair(pair, tokenizer, ends, config))
        except ValueError as mistake:
            raise RecipeError(f"{pair.place or f'pair {number}'}: {mistake}") from mistake
    return examples


def _encode_pair(
    pair: Pair, tokenizer: Any, ends: Sequence[int], config: PreferenceLossConfig
) -> Example:
    segmented = config.name == "two_d_dpo"
    if segmented and not (pair.chosen_segments and pair.rejected_segments):
        raise ValueError("two_d_dpo needs chosen_segments and rejected_segments, with scores")
    segments = (pair.chosen_segments, pair.rejected_segments) if segmented else ((), ())
    chosen = encode(pair.prompt, pair.chosen, tokenizer, ends, segments[0])
    rejected = encode(pair.prompt, pair.rejected, tokenizer, ends, segments[1])
    matches = _matches(*segments, config) if segmented else ()
    return Example(answers=(chosen, rejected), gap=pair.gap, matches=matches)


def _matches(
    chosen: Sequence[Segment], rejected: Sequence[Segment], config: PreferenceLossConfig
) -> tuple[Match, ...]:
    good, bad = (_scores(side, config) for side in (chosen, rejected))
    return tuple(
        Match(chosen=w, rejected=l, chosen_score=good[w], rejected_score=bad[l])
        for w, l in matched_segments(good, bad)  # noqa: E741
    )


def _scores(segments: Sequence[Segment], config: PreferenceLossConfig) -> list[float]:
    """One score in [0, 1] per segment."""
    scores_SA = torch.tensor([s.scores for s in segments], dtype=torch.float64) / config.score_scale
    if not ((scores_SA >= 0) & (scores_SA <= 1)).all():
        raise ValueError(
            f"scores of segments must lie in [0, {config.score_scale:g}] (loss.score_scale)"
        )
    aspects = scores_SA.shape[1]
    weights = config.aspects or (1 / aspects,) * aspects
    if len(weights) != aspects:
        raise ValueError(f"{aspects} scores a segment, loss.aspects has {len(weights)} weights")
    return aspect_score(scores_SA, torch.tensor(weights, dtype=torch.float64)).tolist()


def encode_labelled(
    rows: Sequence[Labelled], tokenizer: Any, ends: Sequence[int], limits: tuple[int, int]
) -> tuple[list[Example], int]:
    """One example per answer within the limits of prompt and completion, in tokens, each with a
    mismatched one (see `mismatched`), and how many answers exceed the limits.

    Raises RecipeError, with its place, for an answer that cannot be encoded.
    """
    answers: list[EncodedAnswer] = []
    labels: list[bool] = []
    for number, row in enumerate(rows, 1):
        try:
            answer = encode(row.prompt, row.completion, tokenizer, ends)
        except ValueError as mistake:
            raise RecipeError(f"{row.place or f'answer {number}'}: {mistake}") from mistake
        if fits(answer, *limits):
            answers.append(answer)
            labels.append(row.label)
    return mismatched(answers, labels), len(rows) - len(answers)


def mismatched(answers: Sequence[EncodedAnswer], labels: Sequence[bool]) -> list[Example]:
    """KTO's examples: each answer with the completion of the next answer to another prompt.

    The order is cyclic and fixed for the run, so that the reference scores each example only once.
    Raises RecipeError if all answers have the same prompt.
    """
    examples: list[Example] = []
    for i, (own, label) in enumerate(zip(answers, labels, strict=True)):
        following = (answers[(i + step) % len(answers)] for step in range(1, len(answers)))
        other = next((answer for answer in following if answer.prompt != own.prompt), None)
        if other is None:
            raise RecipeError(
                f"all {len(answers)} answers are to one prompt: KTO's reference point needs an "
                "answer to another"
            )
        mismatch = EncodedAnswer(
            prompt=own.prompt, completion=other.completion, segments=other.segments
        )
        examples.append(Example(answers=(own, mismatch), label=label))
    return examples


def unpair(pairs: Sequence[Example]) -> list[Example]:
    """KTO's examples of pairs: each answer labelled, with a mismatched one."""
    answers = [answer for pair in pairs for answer in pair.answers]
    return mismatched(answers, [True, False] * len(pairs))


def within_limits(
    examples: Sequence[Example], prompt: int, completion: int
) -> tuple[list[Example], int]:
    """The examples within both limits, in tokens, and how many exceed them."""
    short = [e for e in examples if all(fits(a, prompt, completion) for a in e.answers)]
    return short, len(examples) - len(short)


def fits(answer: EncodedAnswer, prompt: int, completion: int) -> bool:
    """Whether an answer is within both limits, in tokens."""
    return len(answer.prompt) <= prompt and len(answer.completion) <= completion


def split_by_gap(examples: Sequence[Example], rounds: int) -> list[list[Example]]:
    """Rounds of nearly equal size, largest gaps first; equal gaps keep their order."""
    if any(e.gap is None for e in examples):
        raise RecipeError(
            "schedule 'curriculum' orders pairs by their gap: the data need score_chosen and "
            "score_rejected, or rankings (prompt, ranked)"
        )
    if len(examples) < rounds:
        raise RecipeError(f"schedule.rounds={rounds} is more than the {len(examples)} pairs")
    ordered = sorted(examples, key=lambda e: -(e.gap or 0.0))
    edges = [len(ordered) * k // rounds for k in range(rounds + 1)]
    return [ordered[a:b] for a, b in pairwise(edges)]


def shuffled(examples: Sequence[Example], purpose: str) -> list[int]:
    """A permutation of the examples' indices, seeded by `purpose`."""
    order = list(range(len(examples)))
    Random(purpose).shuffle(order)
    return order
