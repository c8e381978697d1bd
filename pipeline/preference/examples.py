"""Rows of preference data as examples of one optimizer step: ids, labels and matched segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import torch

from data.preference_ids import Ids, encode
from data.preferences import Labelled, Pair, Row, Segment
from pipeline.failures import RecipeError
from pipeline.losses.preference_segments import aspect_score, matched_segments
from pipeline.preference_config import PreferenceLossConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A segment of the chosen answer beside one of the rejected: their indices and scores."""

    chosen: int
    rejected: int
    chosen_score: float
    rejected_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Two answers: the chosen and the rejected one, or, for KTO, the labelled one and a
    mismatched one, which is another prompt's answer under this prompt."""

    answers: tuple[Ids, Ids]
    label: bool = True  # KTO: whether the first answer is desirable
    gap: float | None = None  # by how much the chosen answer is better
    matches: tuple[Match, ...] = ()  # 2D-DPO


def as_pairs(rows: Sequence[Row]) -> list[Pair]:
    """Pairs of the rows: a ranking gives its best answer over each of the others, the gap being
    the difference in rank (Curry-DPO's pairs, arXiv 2403.07230)."""
    pairs: list[Pair] = []
    for row in rows:
        if isinstance(row, Labelled):
            raise RecipeError(
                "the data are answers labelled one by one (prompt, completion, label), which only "
                "the loss kto reads"
            )
        if isinstance(row, Pair):
            pairs.append(row)
            continue
        best, *rest = row.answers
        pairs += [
            Pair(prompt=row.prompt, chosen=best, rejected=worse, gap=float(rank))
            for rank, worse in enumerate(rest, 1)
        ]
    return pairs


def as_labelled(rows: Sequence[Row]) -> list[Labelled]:
    """Rows as single answers: a pair is a desirable and an undesirable one."""
    if rows and isinstance(rows[0], Labelled):
        return [row for row in rows if isinstance(row, Labelled)]
    return [
        Labelled(prompt=pair.prompt, completion=text, label=label)
        for pair in as_pairs(rows)
        for text, label in ((pair.chosen, True), (pair.rejected, False))
    ]


def paired(
    pairs: Sequence[Pair], tokenizer: Any, ends: Sequence[int], config: PreferenceLossConfig
) -> list[Example]:
    """One example for each pair. Raises RecipeError naming the pair that cannot be encoded."""
    segmented = config.name == "two_d_dpo"
    return [_pair(number, pair, tokenizer, ends, config, segmented) for number, pair in
            enumerate(pairs, 1)]  # fmt: skip


def _pair(
    number: int,
    pair: Pair,
    tokenizer: Any,
    ends: Sequence[int],
    config: PreferenceLossConfig,
    segmented: bool,
) -> Example:
    if segmented and not (pair.chosen_segments and pair.rejected_segments):
        raise RecipeError(
            f"pair {number}: two_d_dpo needs chosen_segments and rejected_segments, with scores"
        )
    pieces = (pair.chosen_segments, pair.rejected_segments) if segmented else ((), ())
    try:
        chosen = encode(pair.prompt, pair.chosen, tokenizer, ends, pieces[0])
        rejected = encode(pair.prompt, pair.rejected, tokenizer, ends, pieces[1])
        matches = _matches(*pieces, config) if segmented else ()
    except ValueError as mistake:
        raise RecipeError(f"pair {number}: {mistake}") from mistake
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


def labelled(rows: Sequence[Labelled], tokenizer: Any, ends: Sequence[int]) -> list[Example]:
    """One example for each answer, with a mismatched one; see `mismatched`."""
    answers: list[Ids] = []
    for number, row in enumerate(rows, 1):
        try:
            answers.append(encode(row.prompt, row.completion, tokenizer, ends))
        except ValueError as mistake:
            raise RecipeError(f"answer {number}: {mistake}") from mistake
    return mismatched(answers, [row.label for row in rows])


def mismatched(answers: Sequence[Ids], labels: Sequence[bool]) -> list[Example]:
    """KTO's examples: beside each answer that of the next other prompt, the last followed by the
    first. Fixed for the whole run, so that the reference needs to see each only once.

    Raises RecipeError when all have the same prompt.
    """
    examples: list[Example] = []
    for i, (own, label) in enumerate(zip(answers, labels, strict=True)):
        turned = (answers[(i + step) % len(answers)] for step in range(1, len(answers)))
        other = next((one for one in turned if one.prompt != own.prompt), None)
        if other is None:
            raise RecipeError(
                f"all {len(answers)} answers are to one prompt: KTO's reference point needs an "
                "answer to another"
            )
        strange = Ids(prompt=own.prompt, completion=other.completion, segments=other.segments)
        examples.append(Example(answers=(own, strange), label=label))
    return examples


def short_enough(
    examples: Sequence[Example], prompt: int, completion: int
) -> tuple[list[Example], int]:
    """The examples that fit into both limits (tokens), and how many do not."""
    kept = [
        e
        for e in examples
        if all(len(a.prompt) <= prompt and len(a.completion) <= completion for a in e.answers)
    ]
    return kept, len(examples) - len(kept)


def by_gap(examples: Sequence[Example], rounds: int) -> list[list[Example]]:
    """Nearly equal shares, the largest gaps first; equal gaps keep their order."""
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
    """An order of the examples, the same for the same purpose."""
    order = list(range(len(examples)))
    Random(purpose).shuffle(order)
    return order
