"""Remove the dressing of an answer: colours, layout environments, the word for a minus sign."""

import re

_COLOUR = re.compile(
    r"\\(?:textcolor|color|colorbox|fcolorbox\s*\{[^{}]*\})\s*(?:\[[^][]*\])?\s*\{[^{}]*\}"
    r"|\\(?:underline|ensuremath|bbox|emph|framebox)(?:\[[^][]*\])?(?![a-zA-Z])"
)
_LAYOUT = (
    r"(?:aligned|align\*?|alignedat|gathered|gather\*?|split|equation\*?|eqnarray\*?|"
    r"multline\*?|flalign\*?)"
)
_BEGIN = re.compile(rf"\\begin\s*\{{{_LAYOUT}\}}(?:\[[a-z]\]|\{{[^{{}}]*\}})?")
_END = re.compile(rf"\\end\s*\{{{_LAYOUT}\}}")
_ROW = re.compile(r"[,;]?\s*\\\\(?:\[[^][]*\])?")
_CONTINUES = re.compile(r"\s*&?\s*(?:[=<>+-]|\\(?:le|ge|leq|geq|approx|equiv|implies)(?![a-zA-Z]))")
_BY_HAND = re.compile(r"\\(?:text|mathrm)\s*\{\s*(?:negative|minus)\s*\}\s*(?=[\d$\\(])")
_NEGATIVE = re.compile(
    r"^\s*(?:negative|minus|moins|menos|meno|负|負|マイナス|салиб|"
    r"سالب|минус)\s*(?=[\d$\\(])",
    re.IGNORECASE,
)


def undressed(answer: str) -> str:
    """The answer without colours and layout; rows of `aligned` become a list or a chain."""
    if "\\" in answer:
        answer = _BY_HAND.sub("-", _COLOUR.sub("", answer))
        if _BEGIN.search(answer):
            answer = _flat(_END.sub("", _BEGIN.sub("", answer)))
    return _NEGATIVE.sub("-", answer)


def _flat(rows: str) -> str:
    """Rows as one line: a row that starts with a relation continues the row before it."""
    line = ""
    for row in _ROW.split(rows):
        if row.strip():
            joint = "" if not line else " " if _CONTINUES.match(row) else ", "
            line += joint + row.replace("&", " ").strip()
    return line
