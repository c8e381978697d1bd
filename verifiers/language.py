"""The share of the words that are in the target language: R1's reward for language consistency.

`Num(Words_target) / Num(Words)` over the chain of thought (arXiv 2501.12948, section 2.3.2). The
paper leaves the counting open; here formulas and code are no words (verifiers/words.py), and
verifiers/tongues.py says which language each word is in.
"""

from collections.abc import Mapping
from typing import Any

from data.problem import Problem
from verifiers.registry import verifier
from verifiers.tongues import counted, known
from verifiers.verdict import Verdict
from verifiers.words import prose

MAX_CHARS = 200_000
PARTS = ("thinking", "answer", "all")


def share(text: str, language: str) -> tuple[float, int]:
    """(share of the words that are in `language`, words), formulas and code aside; (0, 0) without
    words. `language` is an ISO 639-1 code; raises ValueError for one that cannot be told.
    """
    target, others = counted(prose(text[:MAX_CHARS]), language)
    total = target + others
    return (target / total if total else 0.0), total


def part_of(response: str, part: str, *, prefilled_think: bool = False) -> str | None:
    """The thinking, what follows it, or both. A response without any think tag is all of them.

    None while a think block is still open, and for one that thinks twice.
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


def _asked(reference: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[str, str]:
    language = str(reference.get("language", facts.get("language", ""))).lower()
    language = language.replace("_", "-").partition("-")[0]
    part = reference.get("part", facts.get("language_part", "thinking"))
    if part not in PARTS:
        raise ValueError(f"part must be one of {PARTS}, got {part!r}")
    if not known(language):
        raise ValueError(f"language {language!r} is no ISO 639-1 code that can be told apart")
    return language, part


@verifier(
    "language",
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
    "all", for prompts that are answered without thinking, too.
    """
    language, part = _asked(problem.reference, problem.facts)
    prefilled = problem.facts.get("prefilled_think", False)
    text = part_of(response, part, prefilled_think=prefilled)
    if text is None:
        return Verdict(score=0.0, status="no_answer", detail="no closed think block")
    found, total = share(text, language)
    if not total:
        return Verdict(score=0.0, status="no_answer", detail="no words")
    parts = {"words": float(total), "share": found}
    return Verdict(score=found, detail=f"{found:.3f} of {total} words", components=parts)
