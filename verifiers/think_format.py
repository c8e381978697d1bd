"""The response is one think block and then one answer block, and nothing else."""

from data.problem import Problem
from verifiers.registry import verifier
from verifiers.verdict import Verdict

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def matches(response: str, *, prefilled_think: bool = False) -> bool:
    """Whether what the model wrote is `<think>...</think> <answer>...</answer>`, to the letter.

    Each tag occurs once; only whitespace stands around and between the blocks; the answer is
    not empty. The think block may be: R1-Zero starts from a base model that does not think yet,
    and the format reward must not ask for length. `prefilled_think`: the prompt ended with
    `<think>`, so the response has to start inside the block and not open another.
    """
    text = "<think>" + response if prefilled_think else response.lstrip()
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    thought, _, rest = text.partition("</think>")
    between, _, tail = rest.partition("<answer>")
    answer, _, after = tail.partition("</answer>")
    blank = not between.strip() and not after.strip()
    closed = tail.rstrip().endswith("</answer>")
    return thought.startswith("<think>") and blank and closed and bool(answer.strip())


@verifier(
    "think_format",
    reference={},
    accepts="<think>2 and 2 make 4</think>\n<answer>4</answer>",
    rejects=(
        "<answer>4</answer>",
        "<think>2 and 2</think><answer></answer>",
        "<think>2 and 2</think><answer>4</answer> Done.",
        "So: <think>2 and 2</think><answer>4</answer>",
        "<think>2 <answer>4</answer></think><answer>4</answer>",
        "<answer>4</answer><think>2 and 2</think>",
    ),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the format is exactly right; `facts["prefilled_think"]` says how the prompt ended."""
    prefilled = problem.facts.get("prefilled_think", False)
    right = matches(response, prefilled_think=prefilled)
    detail = "" if right else "not one <think> block and then one <answer> block"
    return Verdict(score=float(right), detail=detail)
