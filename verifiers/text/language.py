"""The share of words in the target language: R1's reward for language consistency.

`Num(Words_target) / Num(Words)` over the chain of thought (arXiv 2501.12948, section 2.3.2). The
paper does not define how words are counted; here formulas and code are not counted
(verifiers/text/prose.py), and verifiers/text/word_language.py determines each word's language.
"""

from collections.abc import Mapping
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.text.prose import prose
from veriloop.verifiers.text.word_language import count_words, is_supported
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 200_000
PARTS = ("thinking", "answer", "all")


def share(text: str, language: str) -> tuple[float, int]:
    """(share of the words that are in `language`, number of words), without formulas and code.

    Returns (0, 0) without words. `language` is an ISO 639-1 code.
    """
    target, others = count_words(prose(text[:MAX_CHARS]), language)
    total = target + others
    return (target / total if total else 0.0), total


def part_of(response: str, part: str, *, prefilled_think: bool = False) -> str | None:
    """The thinking, the text after it, or both; the whole response if it has no think tags.

    None if the think block is not closed, or if there are several.
    """
    if not prefilled_think and "<think>" not in response and "</think>" not in response:
        return response
    opened = 1 if prefilled_think else 0
    if response.count("<think>") + opened > 1 or response.count("</think>") != 1:
        return None
    thinking, _, answer = response.partition("</think>")
    before, _, inside = thinking.rpartition("<think>")
    if "<think>" in answer:
        return None
    return {"thinking": inside, "answer": answer, "all": f"{before}\n{inside}\n{answer}"}[part]


def _settings(reference: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[str, str]:
    language = language_code(str(reference.get("language", facts.get("language", ""))))
    part = reference.get("part", facts.get("language_part", "thinking"))
    if part not in PARTS:
        raise ValueError(f"part must be one of {PARTS}, got {part!r}")
    return language, part


def language_code(tag: str) -> str:
    """The ISO 639-1 code of a tag such as en-US. Raises ValueError for an unsupported language."""
    code = tag.lower().replace("_", "-").partition("-")[0]
    if not is_supported(code):
        raise ValueError(f"language {tag!r} is not an ISO 639-1 code of a supported language")
    return code


@verifier(
    "language",
    version="4",
    reference={"language": "zh"},
    accepts="<think>设 x 是这个方程的解，那么 $2x = 8$，所以 x = 4。</think><answer>4</answer>",
    rejects=(
        "<think>Let x be the solution, so it must be four.</think><answer>四</answer>",
        "<think>これは方程式の解です。</think><answer>4</answer>",
        "<think>$2x = 8$, 4.</think><answer>四</answer>",
        "<think>设 x 是这个方程的解",
    ),
    other=({"language": "de"}, "<think>Zuerst teilen wir beide Seiten durch zwei.</think>4"),
    components=("words", "share"),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of words in `reference["language"]`, or else in `facts["language"]`.

    `reference["part"]`, or else `facts["language_part"]`: "thinking" (the default), "answer" or
    "all". A response without think tags is judged as a whole.
    """
    language, part = _settings(problem.reference, problem.facts)
    text = part_of(response, part, prefilled_think=problem.facts.get("prefilled_think", False))
    if text is None:
        return no_answer("no closed think block")
    fraction, total = share(text, language)
    if not total:
        return no_answer("no words")
    parts = {"words": float(total), "share": fraction}
    return Verdict(score=fraction, detail=f"{fraction:.3f} of {total} words", components=parts)
