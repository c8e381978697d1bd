"""Rewrite notations that the grammar lacks into LaTeX with the same meaning."""

import re

from veriloop.verifiers.math.names import DENIED

_DOTS = re.compile(r"\\(?:l|c|h)?dots[bcmio]?(?![A-Za-z])|\.\.\.+")
_NOISE = re.compile(
    r"\\(?:[hv]space\*?|color|hskip)\s*\{[^{}]*\}|\\textcolor\s*\{[^{}]*\}"
    r"|\\(?:hline|noindent|relax)(?![A-Za-z])"
)
_MICRO = re.compile(r"\\(?:text|up)mu(?![A-Za-z])")
_MEASURE = re.compile(r"(?<![A-Za-z])m\s*(?=\\(?:measured)?angle)")
_RUPEES = re.compile(r"(?<![A-Za-z])Rs\s*\.\s*(?=[\d}])")
_POINT = re.compile(r"^\s*[ABDEI-Z]'?\s*(?:\\left\s*)?\((?=[^()]*,)(?=[^()]*\)$)")
_OVER = re.compile(r"\{([^{}]*)\\over(?![a-z])([^{}]*)\}")
_HALF_LINE = re.compile(
    r"\\mathbb\s*\{?\s*R\s*\}?\s*(?:\^\s*\{?\s*([+*-])\s*\}?"
    r"|_\s*\{?\s*((?:>|<|\\(?:ge|le)q?)\s*0|[+-])\s*\}?)"
)
_ARC = re.compile(
    r"(\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(\d+)\s*(?:'(?!')|\^\s*\{?\s*\\prime\s*\}?)"
    r"(?:\s*(\d+)\s*(?:''|\"|\^\s*\{?\s*\\prime\\prime\s*\}?))?"
)
_EVENT = re.compile(
    r"(?<![A-Za-z])(?:\\Pr|\\mathbb\s*\{?\s*P\s*\}?|P)\s*(?:\\left\s*)?"
    r"\((?=[^()=]*[\\<>|])[^()=]*(?:\([^()]*\)[^()=]*)*(?:\\right\s*)?\)\s*(?==|\\approx)"
)
_LABEL = re.compile(
    r"^\s*(?:\\(?:text|mathrm|textbf|textrm|operatorname)\s*\{\s*([A-Za-z][A-Za-z ]+?)\s*\}"
    r"|([A-Za-z]{4}[A-Za-z ]*?))\s*=(?!=)\s*(?=.)"
)
_BASE = re.compile(
    r"(?<=[\dA-F])\s*(?:\\text\s*\{\s*)?(?:_\s*\{\s*(?:\\text\s*\{\s*)?)?\(?\s*(?:in\s+)?"
    r"base[\s~-]*\}?\s*(\w+)\s*\)?[\s}]*$"
)
_CONSTANT = re.compile(
    r"[\s,;($]*(?:\\q?quad)?\s*(?:\\text\s*\{)?\s*(?:\(|where|with|for|and)?\s*\}?\s*\$?"
    r"(?<![A-Za-z+-])(?:[Cc](?:_\{?\d\}?)?(?:[\s,]|and|\\text\{ ?and ?\})*)+\$?\s*"
    r"(?:\\in\s*(?:\\mathbb\s*\{?\s*R\s*\}?|\\R)"
    r"|(?:\\text\s*\{)?\s*(?:is|are)\s+(?:an?\s+|any\s+)?(?:\w+\s+){0,2}constants?\s*"
    r"(?:of integration)?\s*\}?)\s*\)?[\s.$]*$"
)
_BREAK = re.compile(r"\\\\\*?\s*\[\s*-?[\d.]+\s*(?:[a-z]{2}|\\[a-z]+)\s*\]")
_TEXT = r"\\(?:text|mathrm|textrm|rm)\s*"
_ORDINAL = re.compile(
    rf"(?<=\d)\s*(?:\^\s*)?(?:\{{\s*)?(?:{_TEXT}\{{\s*)?(?:st|nd|rd|th)(?![A-Za-z])\s*\}}*"
)
_SUBJECT = rf"(?:{_TEXT}\{{?\s*)?"
_GROUP = r"\{?\s*(\w+)\s*\}?"
_BEFORE = re.compile(
    rf"(?<![\w)\]}}])(?:\{{\s*\}}\s*)?[_^]\s*{_GROUP}\s*{_SUBJECT}([CP])\s*\}}?\s*_\s*{_GROUP}"
)
_AFTER = re.compile(
    rf"(?<![A-Za-z\\])(?:{_TEXT}\{{\s*([CAP])\s*\}}|([CAP]))\s*"
    r"_\s*(?:\{\s*(\w+)\s*\}|(\w))\s*\^\s*(?:\{\s*(\d+)\s*\}|(\d))"
)
_CALLED = re.compile(r"(?<![A-Za-z\\])P\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MARKED = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d{1,60})\}|(\d))(?!\d)")
_TWO_DOTS = re.compile(r"(\d*)\.(\d*)\\dot\s*\{?(\d)\}?(\d{0,60})\\dot\s*\{?(\d)\}?")
_BRACKETED = re.compile(r"(?<![\w.])(\d+)\.(\d*)\((\d{1,60})\)(?![\w(^!])")
_GOES_ON = re.compile(rf"(?<![\w.])(\d*)\.(\d{{2,60}})\s*(?:{_DOTS.pattern})")
MIN_DIGITS = 6  # of a decimal that goes on without a period


def canonical(text: str) -> str:
    """The text with combinations, repeating decimals and ordinals as plain LaTeX."""
    text = _BREAK.sub(r"\\\\ ", _NOISE.sub(" ", text))
    text = _RUPEES.sub("Rs ", _MEASURE.sub("", text))
    text = _MICRO.sub(r"\\mu", text)
    text = _OVER.sub(r"\\frac{\1}{\2}", text)
    if "R" in text:
        text = _HALF_LINE.sub(_half_line, text)
    if "circ" in text:
        text = _ARC.sub(_arc, text)
    if "base" in text:
        text = _BASE.sub(r"_{\1}", text)
    if "=" in text:
        text = _EVENT.sub("P", _LABEL.sub(_unlabelled, text))
    if "onstant" in text or "R" in text:
        text = _CONSTANT.sub("", text)
    if "C" in text or "P" in text or "A" in text:
        text = _CALLED.sub(_arranged, _AFTER.sub(_count, _BEFORE.sub(_prefix, text)))
    text = _POINT.sub("(", text)
    if "." in text:
        text = _decimals(text)
    return _DOTS.sub(r"\\ldots ", _ORDINAL.sub(_cardinal, text))


def _cardinal(match: re.Match[str]) -> str:
    opened, closed = match.group().count("{"), match.group().count("}")
    return "}" * (closed - opened) if closed >= opened else match.group()


def _arc(match: re.Match[str]) -> str:
    """Degrees, minutes and seconds as degrees."""
    degrees, minutes, seconds = match.groups()
    parts = rf"{degrees}+\frac{{{minutes}}}{{60}}+\frac{{{seconds or 0}}}{{3600}}"
    return rf"\left({parts}\right)^\circ"


def _half_line(match: re.Match[str]) -> str:
    """The positive, negative or non-zero real numbers as an interval."""
    sign = (match.group(1) or match.group(2)).replace(" ", "")
    if sign == "*":
        return r"\mathbb{R}\setminus\{0\}"
    closed = "ge" in sign or "le" in sign
    if sign[0] in "+>" or "ge" in sign:
        return r"[0,\infty)" if closed else r"(0,\infty)"
    return r"(-\infty,0]" if closed else r"(-\infty,0)"


def _unlabelled(match: re.Match[str]) -> str:
    """Nothing for the name of a value, as in Area = 12; a denial stays."""
    name = str(match.group(1) or match.group(2)).lower().split()
    return match.group() if DENIED & set(name) else ""


def _prefix(match: re.Match[str]) -> str:
    upper, kind, lower = match.groups()
    return _chosen(kind, upper, lower)


def _count(match: re.Match[str]) -> str:
    """C_n^k and A_n^k; other indices are left as they are."""
    kind = match.group(1) or match.group(2)
    upper, lower = match.group(3) or match.group(4), match.group(5) or match.group(6)
    sized = upper.isdecimal() and int(upper) >= max(int(lower), 2)
    return _chosen(kind, upper, lower) if sized else match.group()


def _arranged(match: re.Match[str]) -> str:
    """P(n, k) as a number of arrangements; a point such as P(3, 4) is left as it is."""
    upper, lower = match.groups()
    return _chosen("P", upper, lower) if int(upper) >= int(lower) else match.group()


def _chosen(kind: str, upper: str, lower: str) -> str:
    if kind == "C":
        return rf"\binom{{{upper}}}{{{lower}}}"
    return rf"\frac{{{upper}!}}{{({upper}-{lower})!}}"


def _decimals(text: str) -> str:
    text = _TWO_DOTS.sub(lambda m: _rational(m[1], m[2], m[3] + m[4] + m[5]), text)
    text = _MARKED.sub(lambda m: _rational(m[1], m[2], m[3] or m[4]), text)
    text = _BRACKETED.sub(lambda m: _rational(m[1], m[2], m[3]), text)
    return _GOES_ON.sub(_endless, text)


def _endless(match: re.Match[str]) -> str:
    """0.1666... as a fraction if its digits repeat, else as a decimal; short ones unchanged."""
    whole, digits = match.groups()
    for size in range(1, 13):
        block = digits[-size:]
        run = _run(digits, block)
        if run >= max(2 * size, 3) or run == len(digits) >= 2 * size:
            return _rational(whole, digits[: len(digits) - run], block)
    short = len((whole + digits).lstrip("0")) < MIN_DIGITS
    return match.group() if short else f"{whole}.{digits}"


def _run(digits: str, block: str) -> int:
    """How many digits at the end repeat the block."""
    count = 0
    while digits[: len(digits) - count].endswith(block):
        count += len(block)
    return count


def _rational(whole: str, before: str, again: str) -> str:
    over = int(whole + before + again or "0") - int(whole + before or "0")
    return rf"\frac{{{over}}}{{{(10 ** len(again) - 1) * 10 ** len(before)}}}"
