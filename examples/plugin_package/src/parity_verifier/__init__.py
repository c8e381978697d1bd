"""A verifier in its own package."""

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import final_answer
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer


@verifier(
    "parity",
    reference={"parity": "odd"},
    accepts="<answer>odd</answer>",
    rejects=("<answer>even</answer>", "odd"),
    other=({"parity": "even"}, "<answer>even</answer>"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer names the parity."""
    answer = final_answer(response)
    if answer is None:
        return no_answer()
    return Verdict(score=float(answer == problem.reference["parity"]), answer=answer)
