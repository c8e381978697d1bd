"""Extract the final answer of a response: from its answer tags, else from its last box."""

import re

from veriloop.data.problem import Problem
from veriloop.verifiers.boxes import boxed_run, boxes, run_answer
from veriloop.verifiers.hidden import REMOVED, visible
from veriloop.verifiers.withdrawal import (
    APPLIED_CHARS,
    BEFORE_CHARS,
    Same,
    applied,
    denied,
    same_number,
    withdrawn,
)

_TAG = re.compile(r"</?answer>")
_THOUGHT = re.compile(
    r"<(think(?:ing)?|thoughts?|reasoning|scratchpad)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_HEDGE = re.compile(
    r"\b(?:alternatively|might|maybe|perhaps|(?:cannot|can't|unable to) (?:decide|choose|tell)|"
    r"not sure|unsure|either|possibly|could also|otherwise|one of (?:these|them|the two)|"
    r"whichever|depending|or else|not certain|uncertain|guess|candidate|another (?:option|"
    r"answer|possibility|one|is|would)|other (?:option|answer|possibility))\b",
    re.IGNORECASE,
)
_INTEGER_BOX = re.compile(r"\\boxed\{(-?(?:\d{1,3}(?:,\d{3})+|\d+))\}[\s$.]*\Z", re.ASCII)
_CLEAR = re.compile(r"(?:\A|[a-z]{2}[\s:]+|[:=]\s*|\n)\$*\s?\Z")  # before `boxed_integer`
# The whole text before a box, of words that neither deny nor hedge.
_CLOSING = re.compile(
    r"(?:(?:[Tt]he|[Ss]o|[Tt]hus|[Hh]ence|[Tt]herefore|final|correct|answer|result|total|value|is|"
    r"are|equals)(?:[:,]?[ \n]+|\Z))*\$*\Z"
)
_SUSPECTS = (  # lower-case text before a box that rules out the shortcut `boxed_integer`
    "not|n't|never|nicht|niet|kein| no | non | pas | ne |minus|negative|!|nor|neither|anything|"
    "grader|no way|hardly|other|rather|instead|except|exclud|unlike|wrong|incorrect|"
    "false|mistake|erron|bad |doubt|refuse|declin|deny|reject|nobody|no one|untrue|unlikely|"
    "impossible|whether|far from|think|say|guess|believ|claim|expect|assum|people|student|but|yet|"
    "however|though|still|decoy|between|one of|anyway|pretend|regardless| or|\nor|i'll| i |i'm|"
    "write|put |submit|report|would answer|"
    "enter|pick|choose|go with|wrote|gave|state|output|box|give |were |is correct|is right|"
    "is the correct|is the right|is true|is the true|is the real"
)
_SUSPECT = tuple(_SUSPECTS.split("|"))
_HEDGE_CHARS = 1_000  # before an answer that follows another one, searched for a hedge


def after_think(response: str, *, prefilled_think: bool = False) -> str | None:
    """The text after the last `</think>`; None if a think block is never closed.

    Blocks with similar tags, such as `<thinking>`, are removed.

    `prefilled_think`: the prompt ended with `<think>`, so the response starts inside the block.
    """
    _, closed, rest = response.rpartition("</think>")
    if not closed and prefilled_think:
        return None
    return None if "<think>" in rest else _THOUGHT.sub("", rest)


def final_answer(
    response: str,
    *,
    prefilled_think: bool = False,
    same: Same = same_number,
    prompt: str = "",
) -> str | None:
    """The answer the response commits to, stripped; None when there is none.

    Only the text after the thinking counts. If it has answer tags, their content is the answer;
    nested, unbalanced, empty or unequal blocks yield None. Otherwise the last box is the answer;
    boxes joined by "and", "or", a comma or labels form one answer, a list, and what changes the
    value of a box, such as a sign before it, belongs to the answer. An answer that is denied, taken
    back, one of several guesses or hidden yields None. `same` compares the answer with what the
    text names later. `prompt`: the question, which may ask for a wrong statement.
    """
    text = after_think(response, prefilled_think=prefilled_think)
    text = None if text is None else visible(text)
    if text is None:
        return None
    return _tagged(text, same, prompt) if _TAG.search(text) else last_box(text, same, prompt)


def answer_to(problem: Problem, response: str) -> str | None:
    """`final_answer`, with `prefilled_think` read from the problem's facts."""
    prefilled = problem.facts.get("prefilled_think", False)
    return final_answer(response, prefilled_think=prefilled, prompt=problem.prompt)


def boxed_integer(text: str) -> str | None:
    """The integer in the only box of a plain text that ends with it; else None.

    A fast path: where it returns an integer, `final_answer` returns the same.
    """
    at = text.rfind("\\boxed")
    match = _INTEGER_BOX.match(text, at) if at >= 0 else None
    if match is None or text.count("\\") != 1 or "<" in text or "%" in text or "~" in text:
        return None
    before = text[max(0, at - BEFORE_CHARS) : at]
    if at < BEFORE_CHARS and _CLOSING.match(before):
        return match.group(1)
    if not before.isascii() or "display" in text or not _CLEAR.search(before[-20:]):
        return None
    if applied(before[-APPLIED_CHARS:]) or any(map(before.lower().__contains__, _SUSPECT)):
        return None
    return match.group(1)


def unboxed(text: str) -> str:
    """The content of the box if `text` is exactly one box, ignoring dollars; else `text`."""
    bare = text.strip().strip("$").strip()
    if not bare.startswith(("\\boxed", "\\fbox")):
        return text
    boxed = boxes(bare)
    return boxed[-1].content.strip() if boxed and boxed[-1][:2] == (0, len(bare)) else text


def _tagged(text: str, same: Same, prompt: str) -> str | None:
    tags = [(match.group(), match.start(), match.end()) for match in _TAG.finditer(text)]
    opens, closes = tags[::2], tags[1::2]
    alternate = len(opens) == len(closes) and all(tag == "<answer>" for tag, _, _ in opens)
    if not alternate or any(tag == "<answer>" for tag, _, _ in closes):
        return None
    contents = {
        text[start:end].strip() for (_, _, start), (_, end, _) in zip(opens, closes, strict=True)
    }
    answer = contents.pop() if len(contents) == 1 else ""
    return _sure(answer, text[: opens[0][1]], text[closes[-1][2] :], same, prompt)


def last_box(text: str, same: Same = same_number, prompt: str = "") -> str | None:
    """The answer in the last box, or in the list of boxes it ends; None if no box counts."""
    split = boxed_run(text)
    if split is None or not split[1]:
        return None
    others, run = split
    answer = run_answer(text, run)
    before, after = text[: run[0].start], text[run[-1].end :]
    contents = {box.content.strip() for box in run}
    ends = [box.end for box in others if box.content.strip() not in contents]
    if ends and _HEDGE.search(before, max(ends[-1], len(before) - _HEDGE_CHARS)):
        return None
    return _sure(answer, before, after, same, prompt)


def _sure(answer: str | None, before: str, after: str, same: Same, prompt: str) -> str | None:
    """The answer; None if a part of it is hidden, or if the words around it void it."""
    if not answer or REMOVED in answer:
        return None
    if denied(before, answer, same, prompt) or withdrawn(after, answer, same, before, prompt):
        return None
    return answer
