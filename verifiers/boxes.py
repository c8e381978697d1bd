"""The boxed answer of a text: the last box, or the list of boxes that it ends.

The parts of a formula before and after a box belong to the answer: `-\\boxed{5}` is -5 and
`\\frac{\\boxed{5}}{2}` is 5/2.
"""

import re
from typing import NamedTuple

from veriloop.verifiers.math.wording import LAST_MULTIPLIERS, MULTIPLIERS

_OPEN = r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])\s*"
_ARGUMENT = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|\d)\s*"
_BARE = (  # a box without braces
    rf"{_OPEN}(?P<bare>[+-]?\d+(?:\.\d+)?|\\[dtc]?frac\s*{_ARGUMENT}{_ARGUMENT}"
    rf"|\\sqrt\s*(?:\[\d+\]\s*)?{_ARGUMENT}|\\(?:text|mathrm|mathbf|textbf)\s*\{{[^{{}}]*\}}"
    r"|\\[a-zA-Z]+|[A-Za-z](?![A-Za-z]))"
)
_TOKEN = re.compile(rf"(?P<open>{_OPEN}\{{)|{_BARE}|\\.|[{{}}]", re.DOTALL)

_SPACE = r"(?:[\s~]|\\[,;:! ]|\\q?quad(?![a-zA-Z]))"
_GLUE = rf"(?:{_SPACE}|[$,;/*()&\[\]]|\\[()\[\]]|\\\\|\\[{{}}])*"
_AND = (
    r"(?:\\text\s*\{\s*)?(?:(?:and|[Oo]r|also|as well|as|et|ou|und|oder|y|o|e|и|или|vs)\b\.?|\||和|"
    r"与|或|及|、)"
)
_NAME = r"(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w{1,4}\}?)?'?"
_LABEL = re.compile(rf"({_NAME})\s*&?\s*[=:]{_GLUE}\Z")
_PART = re.compile(r"(?:\(?([a-z]|[ivx]{1,4})\)|(?<![\w.])(\d)[).])[\s:*$]*\Z")
_JOINT = re.compile(
    rf"{_GLUE}(?:(?:\.\s+)?{_AND}(?:{_SPACE}|/|\}})*){{0,2}}{_GLUE}"
    rf"(?:[-*+]\s+{_GLUE})?(?:(?:{_NAME})\s*&?\s*[=:]|\(?(?:[A-Za-z]|[ivx]{{1,4}}|"
    rf"\d)[).:])?\**{_GLUE}"
)
_SECOND = re.compile(  # The smaller root is \\boxed{1} and the larger root is \\boxed{2}
    rf"{_GLUE}and\s+(?:the|its|his|her|their)\s+(?:[A-Za-z-]+\s+){{1,4}}?(?:is|are|equals)\s+{_GLUE}"
)
_PART_LINE = re.compile(r"(?m:^)[\s*#]*(?:Part\s+)?\(?([a-h]|[ivx]{1,4})[).:]")
_JOINT_CHARS = 80  # boxes further apart are separate answers
_LEAD_CHARS = 120
MAX_JOINED = 100  # boxes in one list
_LEAD_NOISE = re.compile(
    r"[\W\d_]+|\b(?:[a-z]|first|second|third|fourth|fifth|one|two|three|other|another|and|also)\b"
)
_SENTENCE_END = re.compile(r"[.!?;](?=\s)|[。！？；\n]")
_CORRECTION = re.compile(
    r"(?i)\b(?:wait|no|actually|correct(?:ion|ed|ing)?|sorry|rather|mistake|wrong|instead|hmm|"
    r"oops|re-?(?:check|do|calculat|comput|consider|examin)\w*|adding|in total|total|"
    r"final(?:ly)?)\b"
)

_WORD = r"(?<![\\A-Za-z])[A-Za-z]{2,}"
_FOREIGN = r"[^\x00-\x7f\u2212\u2013\u00d7\u00f7\u00b7\u221a\u00b1\u00b2\u00b3\u00b0\u2080-\u2089]"
_RELATION = (
    r"(?:[=<>]|\\(?:approx|simeq|sim|le|leq|ge|geq|lt|gt|ne|neq|equiv|cong|in|to|implies|iff|"
    r"(?:long)?[rR]ightarrow|therefore|Leftrightarrow|mapsto|not)(?![a-zA-Z]))"
)
_BREAK = r"(?<!\\)[$;,:&|]|\n|\\[()\[\]]|\\\\|\\q?quad(?![a-zA-Z])|\\(?:begin|end)\s*\{[\w*]+\}"
_WORDS = r"\\(?:text|mbox|textit|mathrm|operatorname)\s*\{[^{}]*\}"
_LEFT_EDGE = re.compile(
    rf"{_BREAK}|[.!?]\s|(?:^|(?<=\n))\s*(?:\d+[.)]|[-*+#]+)\s|{_WORDS}|{_RELATION}|{_WORD}"
    rf"|{_FOREIGN}|\b[aAIyeo]\s+\Z|<[^<>]*>|(?<=[A-Za-z:.]\s)\d+(?:\.\d+)?\s+\Z"
)
_RIGHT_EDGE = re.compile(
    rf"{_BREAK}|[.?](?!\d)|!(?!\s?(?:[$+/^(\d!-]|\\[)\]a-z]))|{_WORDS}|{_RELATION}|{_WORD}"
    rf"|{_FOREIGN}|\s\(|\s[aAI]\s|'s\b|\\(?:tag|label|blacksquare|square|qed|Box|hfill|checkmark)"
)
_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|math(?:bf|rm|sf|it|ord)|boldsymbol|bm|underline|item|"
    r"(?:text)?color\s*\{[^{}]*\}|colorbox\s*\{[^{}]*\}|ensuremath|displaystyle|noindent|"
    r"centering|large|Large|LARGE|huge|Huge|normalsize|bf|left|right|[bB]igg?[lr]?|emph)"
    r"(?![a-zA-Z])|\\[,;:! ]|\*\*|[`\"'_~]"
)
_MATHS_OPENS = re.compile(r"(?:\$+|\\[(\[])\s*\Z")
_OUTER_MINUS = re.compile(r"(?:^|[\s:=(])([-\u2212])\Z")
_OUTER_PERCENT = re.compile(
    r"\s*(?:\$+|\\[)\]])?(?:\s?\\%|%(?!\s*[A-Za-z])|\s?\\text\s*\{\s*\\?%\s*\})"
)
_OUTER_SCALE = re.compile(
    r"[^\S\n]*(?:\$+|\\[)\]])?(?:\\,|~|[^\S\n])*(?:\\text\s*\{\s*)?"
    rf"((?:{'|'.join(MULTIPLIERS)})\b|(?:{'|'.join(LAST_MULTIPLIERS)})\b(?!\s*[A-Za-z-]))"
)
_OUTER_SIGN = re.compile(r"\b(?:minus|negative|moins|menos)\s+\$*\Z", re.IGNORECASE)
_DASH = re.compile(r"[A-Za-z\"'*:,](?<!\bis)(?<!\bare)(?<!\bbe)(?<!equals)\s+[-\u2013]\s+\Z")
_EMPHASIS = re.compile(r"(?:^|(?<=\s))[*_]+\Z|\A[*_]+(?=\s|\Z|[.,])")
_BAR_BEFORE = re.compile(r"(?:\\left\s*|\\[bB]igg?l?\s*)?(?<!\\)\|\s*\Z")
_BAR_AFTER = re.compile(r"\s*(?:\\right\s*|\\[bB]igg?r?\s*)?\|")
_DIGIT_AFTER = re.compile(r"[.,]?\d")
_SIDE_CHARS = 200
_CLOSERS = {")": "(", "]": "[", "}": "{"}


class Box(NamedTuple):
    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box] | None:
    """Every outermost box; None if a box is never closed."""
    if "box" not in text:
        return []
    outermost: list[Box] = []
    open_at: list[tuple[int, int] | None] = []  # (start, content start) of a box; None: a brace
    depth = 0  # number of open boxes
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match["open"]:
            open_at.append(match.span())
            depth += 1
        elif match["bare"]:
            if not depth:
                outermost.append(Box(*match.span(), match["bare"]))
        elif token == "{":
            open_at.append(None)
        elif token == "}" and open_at and (opened := open_at.pop()):
            depth -= 1
            if not depth:
                outermost.append(Box(opened[0], match.end(), text[opened[1] : match.start()]))
    return None if depth else outermost


def boxed_run(text: str) -> tuple[list[Box], list[Box]] | None:
    """(the boxes before, the last box and those joined to it); None if a box is never closed.

    Joined are boxes with only "and", "or", a comma or a label between them, and boxes announced
    alike, as in `Candidate 1: \\boxed{4}  Candidate 2: \\boxed{5}`.
    """
    in_order = boxes(text)
    if in_order is None:
        return None
    cut = len(in_order) - 1
    while 0 < cut > len(in_order) - MAX_JOINED and _joined(text, in_order[cut - 1], in_order[cut]):
        cut -= 1
    return in_order[: max(cut, 0)], in_order[max(cut, 0) :]


def _joined(text: str, left: Box, right: Box) -> bool:
    between = text[left.end : right.start]
    if len(between) <= _JOINT_CHARS and (_JOINT.fullmatch(between) or _SECOND.fullmatch(between)):
        return True
    parts = _part_line(text, left), _part_line(text, right)
    if all(parts) and parts[0] != parts[1]:
        return True
    if len(between) > _LEAD_CHARS or _CORRECTION.search(between):
        return False
    words = _lead(between)
    before = text[max(0, left.start - _LEAD_CHARS) : left.start].rstrip("$ \n([\\")
    ends = list(_SENTENCE_END.finditer(before))
    other = _lead(before[ends[-1].end() :] if ends else before)
    conditions = words[:1] == other[:1] and words[:1] in (["if"], ["when"])
    return bool(words) and words[:1] != ["step"] and (conditions or words == other)


def _part_line(text: str, box: Box) -> str:
    """The label of the part whose line the box is in: `b` of `(b) The sum is`; "" without one."""
    label = _PART_LINE.match(text, text.rfind("\n", 0, box.start) + 1, box.start)
    return label[1] if label else ""


def _lead(text: str) -> list[str]:
    """The words that announce a box, without numbers and letters."""
    return _LEAD_NOISE.sub(" ", _LEAD_NOISE.sub(" ", text.lower())).split()


def run_answer(text: str, run: list[Box]) -> str | None:
    """The answer that joined boxes form, with the parts around them; None if it is unclear."""
    contents = [box.content.strip() for box in run]
    if not all(contents):
        return None
    if len(run) > 1 and (named := _named(text, run, contents)):
        return named
    answer = ", ".join(dict.fromkeys(contents))
    if _DIGIT_AFTER.match(text, run[-1].end):
        return None
    start, end = run[0].start, run[-1].end
    if bars := _bars(text, start, end):
        left, right = _sides(text, *bars, alone=len(run) == 1)
        return f"{left}|{answer}|{right}" if left or right else answer
    left, right = _sides(text, start, end, alone=len(run) == 1)
    if not left and not right:
        return answer
    if re.search(r"[\d.]\Z", left) or re.match(r"\.?\d", right):
        return None
    plain = len(run) > 1 or re.fullmatch(r"\w+", answer)
    return left + (answer if plain else f"{{{answer}}}") + right


def _bars(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The bounds of text[start:end] with the bars of an absolute value around it.

    None without them, and in a line of a table, whose bars separate columns.
    """
    line = text[max(text.rfind("\n", 0, start) + 1, start - _SIDE_CHARS) : start]
    opened = _BAR_BEFORE.search(line)
    closed = _BAR_AFTER.match(text, end)
    if not opened or not closed or re.match(r"\s*\|", line) or not re.search(r"\$|\\[(\[]", line):
        return None
    return start - len(line) + opened.start(), closed.end()


def _named(text: str, run: list[Box], contents: list[str]) -> str | None:
    """`x=2, y=3` for boxes that follow `x =` and `y =`, and `(a) 3, (b) 5` for labelled parts."""
    names: list[str] = []
    parts: list[str] = []
    for box in run:
        before = text[max(0, box.start - 40) : box.start]
        name, part = _LABEL.search(before), _PART.search(before)
        if name and "=" in name.group():
            names.append(name.group(1))
        elif part:
            parts.append(part.group(1) or part.group(2))
        elif line := _part_line(text, box):
            parts.append(line)
    if len(set(names)) == len(run):
        return ", ".join(f"{name}={content}" for name, content in zip(names, contents, strict=True))
    if len(set(parts)) == len(run):
        return ", ".join(
            f"({part}) {content}" for part, content in zip(parts, contents, strict=True)
        )
    return None


def _sides(text: str, start: int, end: int, *, alone: bool) -> tuple[str, str]:
    """The parts of the formula before and after text[start:end], without style and prose."""
    left, right = re.sub(_OPEN, "", _left_side(text, start)), _right_side(text, end)
    opened: list[int] = []  # brackets of the left side that are not closed there
    cut = 0  # after the last bracket that is not opened there
    for at, character in enumerate(left):
        if character in "([{":
            opened.append(at)
        elif character in _CLOSERS and opened:
            opened.pop()
        elif character in _CLOSERS:
            cut = at + 1
    return _balanced(left[cut:], right, [at - cut for at in opened], alone=alone)


def _balanced(left: str, right: str, opened: list[int], *, alone: bool) -> tuple[str, str]:
    """Both sides without brackets that the other side does not close or open."""
    inner: list[str] = []
    kept = ""
    for character in right:
        if character in "([{":
            inner.append(character)
        elif character in _CLOSERS and inner:
            inner.pop()
        elif character in _CLOSERS:
            if not opened or left[opened[-1]] not in "([{":
                continue
            at = opened.pop()
            droppable = alone or character == "}"
            if droppable and not kept.strip() and _groups_only(left, at):
                left = left[:at]  # brackets around the box alone
                continue
        kept += character
    if inner:
        kept = kept[: kept.index(inner[0])]
    for at in reversed(opened):
        left = left[:at] + left[at + 1 :]
    return left.strip(), "" if re.fullmatch(r"[\s+*/-]*", kept) else kept.strip()


def _groups_only(left: str, at: int) -> bool:
    """Whether left[at] is the last bracket and nothing before it applies to it."""
    return at == len(left.rstrip()) - 1 and not re.search(r"[\w}\])^\\]\s*\Z", left[:at])


def _left_side(text: str, start: int) -> str:
    before = _EMPHASIS.sub("", _STYLE.sub("", text[max(0, start - _SIDE_CHARS) : start]))
    if _OUTER_SIGN.search(before):
        return "-"
    opener = _MATHS_OPENS.search(before)
    if opener:
        minus = _OUTER_MINUS.search(before[: opener.start()])
        return minus.group(1) if minus else ""
    if _DASH.search(before):
        return ""
    edges = list(_LEFT_EDGE.finditer(before))
    return before[edges[-1].end() :] if edges else before


def _right_side(text: str, end: int) -> str:
    after = text[end : end + _SIDE_CHARS]
    if _OUTER_PERCENT.match(after):
        return "/100"
    if scale := _OUTER_SCALE.match(after):
        return rf"\ {scale[1]}"
    edge = _RIGHT_EDGE.search(after)
    return _EMPHASIS.sub("", _STYLE.sub("", after[: edge.start()] if edge else after))
