"""Mathematical equality of the final answer and the gold one, by the rules of docs/verifiers.md."""

import re

from data.problem import Problem
from verifiers.answer import after_think, boxed_integer, final_answer, hidden, unboxed
from verifiers.math.decide import MAX_CHARS, decide
from verifiers.math.decimal_comma import decimal_comma
from verifiers.registry import verifier
from verifiers.statement import committed, stated_answer
from verifiers.verdict import Verdict

_INTEGER = re.compile(r"-?\d{1,400}", re.ASCII)
_SEPARATED = re.compile(r"\d(?:,|\{,\}|\.)\s?\d")


def given_answer(response: str, *, prefilled_think: bool = False) -> str | None:
    """The answer in tags, in the last box or in the last statement that commits to one."""
    found = final_answer(response, prefilled_think=prefilled_think)
    text = after_think(response, prefilled_think=prefilled_think)
    if found is None:
        marked = text is None or "\\boxed" in text or "answer>" in text or hidden(text)
        return None if text is None or marked else stated_answer(text)
    return committed(found) if text is not None and "<answer>" in text else found


@verifier(
    "math_answer",
    version="2",
    reference={"answer": r"2\sqrt{3}"},
    accepts=r"<think>a diagonal</think> It is $\boxed{\sqrt{12}}$.",
    rejects=(
        r"\boxed{3\sqrt{2}}",
        r"\boxed{3.46}",
        r"\boxed{2\sqrt{3}} or \boxed{3\sqrt{2}}",
        r"<think>\boxed{2\sqrt{3}}</think> I do not know.",
        r"The answer isn't \boxed{2\sqrt{3}}.",
        r"\boxed{9^{9^{9}}}",
    ),
    other=({"answer": r"3\sqrt{2}"}, r"<think>t</think> \boxed{\sqrt{18}}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer equals `reference["answer"]`, a bare LaTeX or text answer."""
    prefilled = problem.facts.get("prefilled_think", False)
    quick = None if prefilled else _two_integers(problem.reference["answer"], response)
    if quick is not None:
        return quick
    answer = given_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    shown = answer[:MAX_CHARS]
    if len(answer) > MAX_CHARS:
        return Verdict(score=0.0, answer=shown, detail=f"longer than {MAX_CHARS} characters")
    gold = unboxed(str(problem.reference["answer"]).strip())
    comma = _SEPARATED.search(answer) is not None and decimal_comma(_prose(response))
    right, detail = decide(gold, unboxed(answer), comma)
    return Verdict(score=float(right), answer=shown, detail=detail)


def _two_integers(gold: object, response: str) -> Verdict | None:
    """The verdict where both are plainly integers, as most are; None where they are not."""
    if type(gold) is not str or not _INTEGER.fullmatch(gold):
        return None
    visible = response.rpartition("</think>")[2]
    answer = boxed_integer(visible)
    if answer is None or len(answer) > MAX_CHARS:
        return None
    if "," in answer and not ("The " in visible or " the " in visible):
        return None  # perhaps a decimal comma
    right = answer == gold or int(answer.replace(",", "")) == int(gold)
    return Verdict(score=float(right), answer=answer, detail="integers")


def _prose(response: str) -> str:
    """Where the language shows: what follows the thinking, or all of it when that is no text."""
    visible = response.rpartition("</think>")[2]
    return visible if sum(map(str.isalpha, visible)) > 40 else response
