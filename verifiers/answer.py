"""Read the final answer out of a response: after the thinking, in the tags, else in the box."""

import re

_TAG = re.compile(r"</?answer>")
_BRACE = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s*([+-]?\d+(?:\.\d+)?)")
_GLUE = r"(?:[\s$,;/]|\\quad|\\qquad|\\[,;: ]|\\\\)*"
_JOINT = re.compile(
    rf"{_GLUE}(?:(?:\\text\s*\{{)?\s*"
    rf"(?:and|or|also|and/or|and also|or also|as well as)\s*\}}?)?{_GLUE}"
)
_JOINT_CHARS = 40  # boxes further apart are separate answers, however blank the gap
_NEAR = 100  # characters before and after a box that may take it back
_HIDDEN = re.compile(
    r"\\(?:[hv]?phantom|iffalse|if0)(?![a-zA-Z])|<!--|\\begin\s*\{comment\}"
    r"|\\(?:text)?color\s*\{\s*white\s*\}|display\s*:\s*none"
    r"|\\(?:cancel|sout|xcancel|bcancel|st)\s*\{[^{}]*\\boxed|~~[^~\n]*\\boxed"
    r"|(?<![\\\d])(?<!\d )%[^\n%]*\\boxed"
)
_CLAUSE = re.compile(
    r"[.!?;:\n,]|\b(?:but|so|thus|hence|therefore|then|and|because|since)\b", re.IGNORECASE
)
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|cannot|wrong|incorrect|false|impossible|rather than|instead of|"
    r"anything but|other than|except|excluding|unlike)\b|n't\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"[\s$).,*]*(?:\\[)\]]\s*)?(?:(?:which|that|but (?:this|that|it)|this|it)\s+)?"
    r"(?:(?:is|was|are|were|would be|must be|seems|looks)\s+"
    r"(?:\w+\s+)?(?:not|wrong|incorrect|false)\b|(?:is|was|ca|does|wo)n't\b|cannot be\b"
    r"|[\s$]*\?|(?:or|and/or)\s+(?:maybe |perhaps )?[\d$\\-])",
    re.IGNORECASE,
)
_INTEGER_BOX = re.compile(r"\\boxed\{(-?(?:\d{1,3}(?:,\d{3})+|\d+))\}[\s$.]*\Z", re.ASCII)
_SUSPECT = (  # in lower case, before a box: then the long way looks closer
    "not", "n't", "never", "neither", "nor", "wrong", "incorrect", "false", "impossible", "rather",
    "instead", "anything", "other", "except", "exclud", "unlike", " or ", "\nor ",
)  # fmt: skip
_OR_BEFORE = re.compile(r"[\d})$]\s*,?\s+or\s*\$?\s*$", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:alternatively|might|maybe|perhaps|(?:cannot|can't|unable to) (?:decide|choose|tell)|"
    r"not sure|unsure|either|possibly|could also|otherwise|one of (?:these|them|the two)|"
    r"whichever|depending|or else|not certain|uncertain|guess)\b",
    re.IGNORECASE,
)


def after_think(response: str, *, prefilled_think: bool = False) -> str | None:
    """What follows the last `</think>`; None while a think block is still open.

    `prefilled_think`: the prompt ended with `<think>`, so the response starts inside the block.
    """
    _, closed, rest = response.rpartition("</think>")
    if not closed and prefilled_think:
        return None
    return None if "<think>" in rest else rest


def final_answer(response: str, *, prefilled_think: bool = False) -> str | None:
    """The answer the response commits to, stripped; None when there is none.

    The text after the thinking counts, and nothing else. If it has answer tags, their content is
    the answer, and nested, unbalanced, empty or unequal blocks are none at all. Otherwise the
    last box is; boxes joined by nothing but "and", "or" or a comma are one answer, a list. A box
    that is denied, taken back or one of several guesses, and text holding anything a reader would
    not see, commit to nothing.
    """
    text = after_think(response, prefilled_think=prefilled_think)
    if text is None or hidden(text):
        return None
    if _TAG.search(text):
        return _tagged(text)
    return last_box(text)


def hidden(text: str) -> bool:
    """Whether it holds something a reader would not see: phantoms, comments, white ink."""
    return _HIDDEN.search(text) is not None


def boxed_integer(text: str) -> str | None:
    """The integer of a text that ends in its only box and is otherwise plain; else None.

    A shortcut: where it finds one, `final_answer` finds the same.
    """
    at = text.rfind("\\boxed")
    match = _INTEGER_BOX.match(text, at) if at >= 0 else None
    if match is None or text.count("\\") != 1 or "<" in text or "%" in text or "~" in text:
        return None
    before = text[max(0, at - _NEAR) : at].lower()
    if any(map(before.__contains__, _SUSPECT)):
        return None
    return None if "display" in text else match.group(1)


def unboxed(text: str) -> str:
    """The content of the box when `text` is one box and nothing more, dollars aside."""
    bare = text.strip().strip("$").strip()
    if not bare.startswith("\\boxed"):
        return text
    spans = _box_spans(bare)
    return spans[-1][2].strip() if spans and spans[-1][:2] == (0, len(bare)) else text


def _tagged(text: str) -> str | None:
    tags = [(match.group(), match.start(), match.end()) for match in _TAG.finditer(text)]
    opens, closes = tags[::2], tags[1::2]
    alternate = len(opens) == len(closes) and all(tag == "<answer>" for tag, _, _ in opens)
    if not alternate or any(tag == "<answer>" for tag, _, _ in closes):
        return None
    contents = {
        text[start:end].strip() for (_, _, start), (_, end, _) in zip(opens, closes, strict=True)
    }
    return contents.pop() or None if len(contents) == 1 else None


def last_box(text: str) -> str | None:
    """What the last box of a text commits to; None when there is no box, or no commitment."""
    spans = _box_spans(text)
    if spans is None:
        return None
    run: list[str] = []
    cut = len(text)
    for start, end, content in reversed(spans):
        if run and not (cut - end <= _JOINT_CHARS and _JOINT.fullmatch(text, end, cut)):
            break
        run.append(content.strip())
        cut = start
    found = list(dict.fromkeys(reversed(run)))
    if not all(found) or (spans and _unsaid(text, cut, spans[-1][1])):
        return None
    others = [end for _, end, content in spans if end <= cut and content.strip() not in found]
    if others and _HEDGE.search(text, max(others[-1], cut - 10 * _NEAR)):
        return None
    return ", ".join(found) or None


def _unsaid(text: str, start: int, end: int) -> bool:
    """Whether the words around text[start:end] deny it, take it back or offer another."""
    before = text[max(0, start - _NEAR) : start]
    clause = _CLAUSE.split(before)[-1]
    after = text[end : end + _NEAR]
    return bool(_DENIED.search(clause) or _OR_BEFORE.search(before) or _TAKEN_BACK.match(after))


def _box_spans(text: str) -> list[tuple[int, int, str]] | None:
    """(start, end, content) of every outermost box; None when the last one is never closed."""
    if "\\boxed" not in text:
        return []
    spans: list[tuple[int, int, str]] = []
    open_at: list[tuple[int, int] | None] = []  # (start, content start) of a box, None of a brace
    depth = 0  # boxes among them
    for match in _BRACE.finditer(text):
        token = match.group()
        if token.startswith("\\boxed"):
            open_at.append(match.span())
            depth += 1
        elif token == "{":
            open_at.append(None)
        elif token == "}" and open_at and (box := open_at.pop()):
            depth -= 1
            if not depth:
                spans.append((box[0], match.end(), text[box[1] : match.start()]))
    if depth:
        return None
    return spans or [(*m.span(), m.group(1)) for m in _BARE_BOX.finditer(text)]
