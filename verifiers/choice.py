"""Multiple choice: the answer is one letter, the text of an option, or both, if they agree."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from data.problem import Problem
from verifiers.answer import final_answer, unboxed
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 2_000
LETTERS = "ABCDEFGHIJ"  # of options without labels, and of questions without options

_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBERS.split())}
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|sf)|mbox)\s*\{([^{}]*)\}")
_LEAD = re.compile(
    r"^(?:the\s+)?(?:correct\s+|final\s+|right\s+|best\s+)?"
    r"(?:(?:answer|option|choice)\s*(?:is\b|:|=)?\s*)+",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"\(?\s*([^\W\d_])(\s*[).:–—-]*)(?:\s+|$|(?<=[).:]))(.*)", re.DOTALL)
_ANOTHER = re.compile(r"(?<!\w)\(?[A-Ja-j](?:[).:](?=\s|$)|(?=\s*(?:,|/|&|$)))")
_HEDGE = re.compile(r"\b(?:or|nor|not|neither|either|both|maybe)\b|n't\b|[/&|]", re.IGNORECASE)


def plain(text: str) -> str:
    """An option's text as it is compared: case, articles, spacing and a closing period ignored,
    number words written as digits."""
    text = unicodedata.normalize("NFKC", _STYLE.sub(r"\1", text)).casefold().replace("$", "")
    words = text.strip().strip(".").split()
    kept = [_NUMBER_WORDS.get(word, word) for word in words if word not in ("a", "an", "the")]
    return " ".join(kept or words)


def chosen(answer: str, options: Mapping[str, str]) -> str | None:
    """The one label that the answer names, by letter, by text or by both; None when it is not one.

    `options`: text by label; a text of "" is unknown, so anything but another label may follow
    its letter.
    """
    bare = _STYLE.sub(r"\1", unboxed(answer)).replace("$", "").replace("*", "").strip()
    bare = unicodedata.normalize("NFKC", bare)
    for said in (bare, _LEAD.sub("", bare)):
        by_text = [label for label, text in options.items() if text and plain(text) == plain(said)]
        label = _labelled(said, options)
        if label is not None:
            return label
        if len(by_text) == 1:
            return by_text[0]
    return None


def _labelled(said: str, options: Mapping[str, str]) -> str | None:
    """The label that leads the text, when nothing follows it but the text of its option."""
    match = _LABELLED.fullmatch(said.strip())
    if match is None or match.group(1).upper() not in options:
        return None
    label, mark, carried = match.group(1).upper(), match.group(2).strip(), match.group(3).strip()
    if not carried:
        return label
    if options[label]:
        same = plain(carried.strip("()")) == plain(options[label])
    else:
        same = bool(mark) and not _ANOTHER.search(carried) and not _HEDGE.search(carried)
    return label if same else None


def read_options(reference: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """(right label, text by label). Raises ValueError when the right one cannot be told."""
    given = reference.get("options")
    if given is None:
        options = dict.fromkeys(LETTERS, "")
    elif isinstance(given, Mapping):
        options = {str(label).strip().upper(): str(text) for label, text in given.items()}
    else:
        if len(given) > len(LETTERS):
            raise ValueError(f"at most {len(LETTERS)} options without labels, got {len(given)}")
        options = dict(zip(LETTERS, map(str, given), strict=False))
    answer = str(reference["answer"]).strip()
    right = answer.strip("().").upper()
    if right not in options:
        same = [label for label, text in options.items() if text and plain(text) == plain(answer)]
        if len(same) != 1:
            raise ValueError(f"answer {answer!r} is none of the options {options}")
        right = same[0]
    return right, options


@verifier(
    "choice",
    reference={"answer": "C", "options": ["one Apple", "a pear", "the plum", "plums"]},
    accepts="<think>sweet</think><answer>(c) plum</answer>",
    rejects=(
        "<answer>D</answer>",
        "<answer>plums</answer>",
        "<answer>C) plums</answer>",
        "<answer>C or D</answer>",
        "<answer>not C</answer>",
        "<answer>A, B, C, D</answer>",
        "<answer>CD</answer>",
        "C",
    ),
    other=({"answer": "B", "options": {"A": "Paris", "B": "Rome"}}, r"\boxed{\text{B}}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer names the right option and no other.

    `reference["answer"]` is a label or an option's text; `reference["options"]`, where given, a
    list (labelled A, B, ...) or a mapping of labels to texts.
    """
    right, options = read_options(problem.reference)
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    if len(answer) > MAX_CHARS:
        detail = f"longer than {MAX_CHARS} characters"
        return Verdict(score=0.0, answer=answer[:MAX_CHARS], detail=detail)
    label = chosen(answer, options)
    if label is None:
        return Verdict(score=0.0, answer=answer, detail="does not name exactly one option")
    detail = "" if label == right else f"named {label}, not {right}"
    return Verdict(score=float(label == right), answer=answer, detail=detail)
