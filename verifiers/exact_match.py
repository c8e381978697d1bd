"""Short answers in words: equal, or overlapping, once written the way SQuAD compares them."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Any

from data.problem import Problem
from verifiers.answer import after_think, final_answer, unboxed
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 20_000
READS = ("answer", "response")

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and double spaces (arXiv 1606.05250)."""
    lowered = unicodedata.normalize("NFKC", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def f1(answer: str, gold: str) -> float:
    """Harmonic mean of the precision and recall of the words, each counted as often as it is."""
    one, other = normal(answer).split(), normal(gold).split()
    if not one or not other:
        return float(one == other)
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other))


def _golds(reference: Mapping[str, Any]) -> list[str]:
    given = reference["answers"]
    golds = [given] if isinstance(given, str) else [str(one) for one in given]
    if not golds or not all(normal(one) for one in golds):
        raise ValueError(f"answers must be a text or a list of texts with words, got {given!r}")
    return golds


def _read(problem: Problem, response: str) -> str | None:
    reads = problem.reference.get("read", "answer")
    if reads not in READS:
        raise ValueError(f"read must be one of {READS}, got {reads!r}")
    reader = final_answer if reads == "answer" else after_think
    text = reader(response, prefilled_think=problem.facts.get("prefilled_think", False))
    return unboxed(text.strip())[:MAX_CHARS] if text is not None and text.strip() else None


@verifier(
    "exact_match",
    reference={"answers": ["the Eiffel Tower", "La tour Eiffel"]},
    accepts="<think>in Paris</think><answer>Eiffel Tower.</answer>",
    rejects=(
        "<answer>Tower</answer>",
        "<answer>the Eiffel Tower or Big Ben</answer>",
        "Eiffel Tower",
    ),
    other=({"answers": "Big Ben"}, r"\boxed{big ben}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the answer equals one of `reference["answers"]` as SQuAD compares them.

    `reference["read"]`: "answer" (tags or box, the default) or "response": all after the thinking.
    """
    golds = _golds(problem.reference)
    answer = _read(problem, response)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    return Verdict(score=float(normal(answer) in map(normal, golds)), answer=answer)


@verifier(
    "f1",
    reference={"answers": ["forty red balloons"]},
    accepts="<think>count</think><answer>Forty red balloons!</answer>",
    rejects=("<answer>two dogs</answer>", "forty red balloons"),
    other=({"answers": ["one dog"]}, "<answer>one dog</answer>"),
    kind="partial",
)
def check_f1(problem: Problem, response: str) -> Verdict:
    """The best F1 of words against `reference["answers"]`; `reference["read"]` as exact_match."""
    golds = _golds(problem.reference)
    answer = _read(problem, response)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    return Verdict(score=max(f1(answer, gold) for gold in golds), answer=answer)
