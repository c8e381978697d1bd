"""How much of a response is new: the share of its n-grams that differ from one another."""

import re
from collections.abc import Sequence

from data.problem import Problem
from verifiers.registry import verifier
from verifiers.verdict import Verdict
from verifiers.words import CJK

SIZE = 3  # of an n-gram, unless told
LONGEST = 32  # letters of a word; what is longer is counted by the letter, so that aaaa... repeats
MAX_CHARS = 400_000

_TAG = re.compile(r"</?(?:think|answer)>")
_PIECE = re.compile(rf"[{CJK}]|[^\W{CJK}]+|[^\w\s]")


def pieces(text: str) -> list[str]:
    """Words, ideographs and marks in lower case, without think and answer tags; a run of over
    LONGEST letters as single ones."""
    found = _PIECE.findall(_TAG.sub(" ", text).lower())
    return [part for one in found for part in (one if len(one) > LONGEST else [one])]


def distinct_share(found: Sequence[str], size: int) -> float:
    """Different n-grams over all n-grams, in (0, 1]; 1 where there are none (open-r1 and
    arXiv 2502.03373 pay `share - 1`, scaled)."""
    count = len(found) - size + 1
    if count <= 0:
        return 1.0
    return len({tuple(found[i : i + size]) for i in range(count)}) / count


@verifier(
    "repetition",
    reference={"repetition_ngram": 2},
    accepts="<think>First this, then that.</think> A short answer.",
    rejects=("", " "),
    components=("ngrams", "distinct_share", "penalty"),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of different n-grams of the whole response, and `penalty`, that share less 1.

    `reference["repetition_ngram"]`, or the fact of that name: words in an n-gram, 3 unless given.
    """
    facts = problem.facts
    size = problem.reference.get("repetition_ngram", facts.get("repetition_ngram", SIZE))
    if type(size) is not int or size < 1:
        raise ValueError(f"repetition_ngram must be a positive integer, got {size!r}")
    found = pieces(response[:MAX_CHARS])
    thinks_on = response.count("<think>") > response.count("</think>")
    if thinks_on or not any(map(str.isalnum, found)):
        return Verdict(score=0.0, status="no_answer", detail="no finished text")
    share = distinct_share(found, size)
    parts = {
        "ngrams": float(max(0, len(found) - size + 1)),
        "distinct_share": share,
        "penalty": share - 1.0,
    }
    return Verdict(score=share, components=parts)
