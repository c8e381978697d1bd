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
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the format is exactly right; `facts["prefilled_think"]` says how the prompt ended."""
    prefilled = problem.facts.get("prefilled_think", False)
    right = matches(response, prefilled_think=prefilled)
    detail = "" if right else "not one <think> block and then one <answer> block"
    return Verdict(score=float(right), detail=detail)


def loosely_matches(response: str, *, prefilled_think: bool = False) -> bool:
    """Whether the response thinks once and then says something, in whatever layout.

    One `</think>`, at most one `<think>` and only before it, and text after it that is more than
    tags; answer tags may be left out, but stand in one pair where they are used.
    """
    text = "<think>" + response if prefilled_think else response
    thought, closed, rest = text.partition("</think>")
    if not closed or "</think>" in rest or "<think>" in rest or thought.count("<think>") > 1:
        return False
    if "<answer>" in thought or "</answer>" in thought:
        return False
    before, opened, tail = rest.partition("<answer>")
    answer, ended, after = tail.partition("</answer>")
    if not opened:
        return bool(rest.strip()) and "</answer>" not in rest
    paired = bool(ended) and "</answer>" not in before + after and "<answer>" not in tail
    return paired and bool(answer.strip())


@verifier(
    "think_format_lenient",
    reference={},
    accepts="Let me see. <think>2 and 2 make 4</think>\nIt is \\boxed{4}, as you can see.",
    rejects=(
        "It is 4.",
        "<think>2 and 2 make 4</think>",
        "<think>2 and 2 make 4 <answer>4</answer>",
        "<think>2</think><think>3</think>4",
        "<think>2 and 2</think><answer></answer>",
        "<think>2 and 2</think><answer>4</answer><answer>5</answer>",
    ),
    kind="text",
)
def check_lenient(problem: Problem, response: str) -> Verdict:
    """1 when one closed think block is followed by an answer in any layout."""
    prefilled = problem.facts.get("prefilled_think", False)
    right = loosely_matches(response, prefilled_think=prefilled)
    detail = "" if right else "not one closed <think> block and then an answer"
    return Verdict(score=float(right), detail=detail)
