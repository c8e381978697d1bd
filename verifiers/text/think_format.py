"""The format of R1-Zero: one think block, then one answer block; and a lenient variant."""

from veriloop.data.problem import Problem
from veriloop.verifiers.invisible import is_blank
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def matches(response: str, *, prefilled_think: bool = False) -> bool:
    """Whether the response is exactly `<think>...</think> <answer>...</answer>`.

    Each tag occurs once, only whitespace is around and between the blocks, and the answer has a
    visible character. The think block may be empty: R1-Zero starts from a base model that does not
    think yet, and the format reward must not depend on length. `prefilled_think`: the prompt ended
    with `<think>`, so the response must start inside the block and not open another.
    """
    text = "<think>" + response if prefilled_think else response.lstrip()
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    thought, _, rest = text.partition("</think>")
    between, _, tail = rest.partition("<answer>")
    answer, _, after = tail.partition("</answer>")
    blank = not between.strip() and not after.strip()
    closed = tail.rstrip().endswith("</answer>")
    return thought.startswith("<think>") and blank and closed and not is_blank(answer)


@verifier(
    "think_format",
    version="2",
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
    """1 if the format is exact; `facts["prefilled_think"]`: the prompt ended with `<think>`."""
    right = matches(response, prefilled_think=problem.facts.get("prefilled_think", False))
    detail = "" if right else "not one <think> block and then one <answer> block"
    return Verdict(score=float(right), detail=detail)


def loosely_matches(response: str, *, prefilled_think: bool = False) -> bool:
    """Whether the response has one closed think block followed by text, in any layout.

    It needs one `</think>`, at most one `<think>`, before it, and visible text other than tags
    after it. Answer tags are optional, but must be a single pair.
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
        return not is_blank(rest) and "</answer>" not in rest
    paired = bool(ended) and "</answer>" not in before + after and "<answer>" not in tail
    return paired and not is_blank(answer)


@verifier(
    "think_format_lenient",
    version="2",
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
    """1 if one closed think block is followed by an answer in any layout."""
    right = loosely_matches(response, prefilled_think=problem.facts.get("prefilled_think", False))
    detail = "" if right else "not one closed <think> block and then an answer"
    return Verdict(score=float(right), detail=detail)
