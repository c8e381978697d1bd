"""Answers in labelled parts: (a) 3, (b) 5 or (i) 3, (ii) 5, and the label of one option."""

import re
from collections.abc import Sequence

_ORDERS = (
    tuple("abcdefgh"),
    ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"),
    tuple("12345678"),
)
_NAME = r"(?:[A-Ha-h]|[Ii]{1,3}|[Ii][Vv]|[Vv][Ii]{0,3}|[1-8])"
_STYLED = r"(?:\\(?:text(?:bf|rm|it|sf|normal)?|math(?:rm|bf|it|sf)|mbox)\s*\{\s*)?"
_LABEL = re.compile(
    rf"(?:^|(?<=[\s,;.}}$\\]))(?:\$\s*)?{_STYLED}(?:[Pp]art\s+)?"
    rf"(?:\(\s*({_NAME})\s*\)|({_NAME})\s*\)|(?<![A-Za-z])([a-h])\.(?=\s))"
    r"(?![-+*/^_=!]|\s+[-+*/^=]\s)\s*[:.]?\s*(\})?\s*[:.]?(?:\$)?"
)
_SEPARATORS = re.compile(
    r"(?:[\s,;&$]|\\(?:q?quad|[,;: \\])|\\text\s*\{\s*(?:and)?[\s,;]*\}|\band\b)+"
)
_LAST_SEPARATORS = re.compile(rf"(?:{_SEPARATORS.pattern})$")
_QUAD = re.compile(r"\\q?quad(?![A-Za-z])")
_BETWEEN = re.compile(r"\s*(?:[,;\n]|\\q?quad|\\\\|\band\b)\s*")


def labelled(text: str) -> dict[str, str] | None:
    """The parts of a text by label in lower case; None without labels from (a), (i) or (1) on.

    One label alone has to be (a) or (i): (A) names an option.
    """
    text = _QUAD.sub(" , ", text)
    marks = [mark for mark in _LABEL.finditer(text) if _outside(text[: mark.start()])]
    labels = [_label(mark) for mark in marks]
    order = next((order for order in _ORDERS if _names(order, labels)), None)
    if order is None or _trimmed(text[: marks[0].start()]):
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    contents = [
        _trimmed(_balanced(text[m.end() : end])) for m, end in zip(marks, ends, strict=True)
    ]
    if len(marks) == 1 and (_written(marks[0]) not in ("a", "i") or not contents[0]):
        return None  # a single capital is the label of an option
    return dict(zip(labels, contents, strict=True))


def _names(order: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether the labels are the first ones of the order, each once."""
    return bool(labels) and sorted(labels) == sorted(order[: len(labels)])


def unlabelled(text: str, count: int) -> list[str] | None:
    """The parts of a text that gives them in order without labels; None for another number."""
    pieces = [piece for piece in _split(text) if piece]
    return pieces if len(pieces) == count and not any(map(_LABEL.match, pieces)) else None


def option(text: str) -> str:
    """The text after the label of an option: 18 of `\\textbf{(B)}\\ 18`; "" without one."""
    mark = _LABEL.match(text.strip())
    return _trimmed(_balanced(text.strip()[mark.end() :])) if mark else ""


def _label(mark: re.Match[str]) -> str:
    return _written(mark).lower()


def _written(mark: re.Match[str]) -> str:
    return str(mark.group(1) or mark.group(2) or mark.group(3))


def _split(text: str) -> list[str]:
    """The text between separators outside all brackets."""
    pieces: list[str] = []
    start = depth = at = 0
    while at < len(text):
        match = None if depth else _BETWEEN.match(text, at)
        if match:
            pieces.append(_trimmed(text[start:at]))
            start = at = match.end()
            continue
        depth += (text[at] in "({[") - (text[at] in ")}]")
        at += 1
    return [*pieces, _trimmed(text[start:])]


def _balanced(text: str) -> str:
    """Without the brace that closes the style of a label: `\\textbf{(a) 3}`."""
    bare = text.rstrip()
    return bare[:-1] if bare.endswith("}") and bare.count("}") > bare.count("{") else text


def _trimmed(text: str) -> str:
    start = _SEPARATORS.match(text)
    end = _LAST_SEPARATORS.search(text, start.end() if start else 0)
    bare = text[start.end() if start else 0 : end.start() if end else len(text)]
    return bare.strip().removesuffix(".")


def _outside(before: str) -> bool:
    """Whether all brackets before a label are closed."""
    return before.count("(") + before.count("[") <= before.count(")") + before.count("]")
