"""The fenced blocks of a Markdown text, as a reader sees them: also in lists and quotations.

A fence may be indented, follow a list marker or stand in a quotation. A fence inside a Python
string of several lines belongs to the program around it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_QUOTE = re.compile(r"(?:[ \t]*>[ \t]?)+")
_MARKERS = re.compile(r"[ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*")
_BLANKS = re.compile(r"[ \t]*")
_FENCE = re.compile(r"`{3,}|~{3,}")
_LANGUAGE = re.compile(r"[\w+#]+")
_TOKEN = re.compile(  # of Python: what starts a string of several lines, or hides such a start
    r"\"\"\"|'''|\\.|\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?|#.*"
)
_ENDS = {
    quotes: re.compile(rf"(?:\\.|(?!{quotes}).)*?{quotes}") for quotes in ('"""', "'''")
}  # of strings of several lines
_INDENTED_CODE = 4  # columns; a fence this far to the right is text
_STRING_LINES = 500  # most lines between two fences of one string


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A closed block; `start` and `end` are the offsets of its first and past its last line."""

    language: str  # the first word of the info string in lower case; "" where there is none
    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    fence: str
    language: str
    width: int  # of the indentation and the list markers before the fence
    quoted: bool


def fenced_blocks(text: str) -> tuple[list[Block], int | None]:
    """All closed blocks in order, and the offset of the line that opens an unclosed one."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    blocks: list[Block] = []
    at = item = 0  # item: columns before the text of the list item around the line
    while at < len(lines):
        opening = _opening(lines[at], item)
        if opening is None:
            item = _item_width(lines, at, item)
        else:
            end = _closing_line(lines, at + 1, opening)
            if end is None:
                return blocks, offsets[at]
            source = _content(lines[at + 1 : end], opening)
            start, past = offsets[at], min(offsets[end + 1], len(text))
            language = opening.language
            if not language and (inner := _opening(source.partition("\n")[0], 0)):
                # A block around a block: the inner fence names the language.
                language, source = inner.language, source.partition("\n")[2]
            blocks.append(Block(language=language, source=source, start=start, end=past))
            at = end
        at += 1
    return blocks, None


def _opening(line: str, item: int) -> _Opening | None:
    bare = _unquoted(line, quoted=True)
    width = _end(_MARKERS, bare)
    fence = _FENCE.match(bare, width)
    if fence is None or _end(_BLANKS, bare) >= item + _INDENTED_CODE:
        return None
    info = bare[fence.end() :].strip()
    if fence.group()[0] == "`" and "`" in info:
        return None
    language = _LANGUAGE.match(info.lstrip("{."))
    return _Opening(
        fence=fence.group(),
        language=language.group().lower() if language else "",
        width=width,
        quoted=bare != line,
    )


def _item_width(lines: Sequence[str], at: int, item: int) -> int:
    """The columns before the text of the list item that the next line may belong to."""
    line = _unquoted(lines[at], quoted=True)
    indentation, markers = _end(_BLANKS, line), _end(_MARKERS, line)
    if markers > indentation:
        return markers
    ends = at > 0 and not lines[at - 1].strip() and line.strip() and indentation < item
    return 0 if ends else item


def _closing_line(lines: Sequence[str], at: int, opening: _Opening) -> int | None:
    """The first closing fence outside of strings; if all are inside, the first."""
    first: int | None = None
    string = ""  # the quotes of the string that the line begins in
    for number in range(at, len(lines)):
        line = _unquoted(lines[number], quoted=opening.quoted)
        if _closes(line, opening):
            if not string:
                return number
            first = number if first is None else first
        elif first is not None and (number - first > _STRING_LINES or _reopens(line, opening)):
            return first
        string = _string_after(line, string)
    return first


def _closes(line: str, opening: _Opening) -> bool:
    bare = line.strip()
    if len(bare) < len(opening.fence) or bare.strip(opening.fence[0]):
        return False
    return _end(_BLANKS, line) < opening.width + _INDENTED_CODE


def _reopens(line: str, opening: _Opening) -> bool:
    """Whether a line opens a further block next to this one."""
    other = _opening(line, opening.width)
    return other is not None and other.language != "" and other.width == opening.width


def _string_after(line: str, string: str) -> str:
    """The quotes of the string that the next line begins in; "" outside of strings."""
    at = 0
    while string or '"""' in line or "'''" in line:
        token = (_ENDS[string].match if string else _TOKEN.search)(line, at)
        if token is None:
            return string
        at = token.end()
        string = "" if string else token.group() if token.group() in _ENDS else ""
    return string


def _content(lines: Iterable[str], opening: _Opening) -> str:
    """The lines without quotation marks, and without the indentation of the fence."""
    bare = [_unquoted(line, quoted=opening.quoted) for line in lines]
    first = next((line for line in bare if line.strip()), "")
    width = min(opening.width, _end(_BLANKS, first))
    return "".join(line[:width].lstrip(" \t") + line[width:] + "\n" for line in bare)


def _unquoted(line: str, *, quoted: bool) -> str:
    return line[_end(_QUOTE, line) :] if quoted else line


def _end(pattern: re.Pattern[str], line: str) -> int:
    match = pattern.match(line)
    return match.end() if match else 0
