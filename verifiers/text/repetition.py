"""Repetition in a response, measured by the share of distinct n-grams."""

import re
from collections.abc import Sequence
from dataclasses import replace

from veriloop.data.problem import Problem
from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.text.words import CJK
from veriloop.verifiers.verdict import Verdict, no_answer

SIZE = 3  # default number of words in an n-gram
LONGEST = 32  # letters of a word; a longer run is split into letters, so that aaaa... repeats
MAX_CHARS = 400_000
UNFINISHED = {"ngrams": 0.0, "distinct_share": 0.0, "penalty": -1.0}  # no finished text

_TAG = re.compile(r"</?(?:think|answer)>")
_PIECE = re.compile(rf"[{CJK}]|[^\W{CJK}]+|[^\w\s]")


def pieces(text: str) -> list[str]:
    """Words, ideographs and punctuation marks in lower case, without think and answer tags.

    A run of more than LONGEST letters is split into single letters.
    """
    runs = _PIECE.findall(_TAG.sub(" ", without_invisible(text)).lower())
    return [piece for run in runs for piece in (run if len(run) > LONGEST else [run])]


def distinct_share(tokens: Sequence[str], size: int) -> float:
    """The number of distinct n-grams over the number of n-grams, in (0, 1]; 1 without n-grams.

    open-r1 and arXiv 2502.03373 use `share - 1`, scaled, as a penalty.
    """
    count = len(tokens) - size + 1
    if count <= 0:
        return 1.0
    return len({tuple(tokens[i : i + size]) for i in range(count)}) / count


@verifier(
    "repetition",
    version="3",
    reference={"repetition_ngram": 2},
    accepts="<think>First this, then that.</think> A short answer.",
    rejects=("", " "),
    components=("ngrams", "distinct_share", "penalty"),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of distinct n-grams of the whole response; `penalty` is that share minus 1.

    A response without finished text has the share 0, so the penalty -1: ending early avoids none.

    `reference["repetition_ngram"]`, or the fact of that name: words in an n-gram, by default 3.
    """
    facts = problem.facts
    size = problem.reference.get("repetition_ngram", facts.get("repetition_ngram", SIZE))
    if type(size) is not int or size < 1:
        raise ValueError(f"repetition_ngram must be a positive integer, got {size!r}")
    tokens = pieces(response[:MAX_CHARS])
    unfinished = response.count("<think>") > response.count("</think>")
    if unfinished or not any(map(str.isalnum, tokens)):
        return replace(no_answer("no finished text"), components=UNFINISHED)
    share = distinct_share(tokens, size)
    parts = {
        "ngrams": float(max(0, len(tokens) - size + 1)),
        "distinct_share": share,
        "penalty": share - 1.0,
    }
    return Verdict(score=share, components=parts)
