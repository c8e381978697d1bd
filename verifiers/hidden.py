"""Parts of a text that a reader does not see: phantoms, comments, white text, struck-out text."""

import re

REMOVED = "\ufffd"  # replaces a hidden part; an answer that contains it is void

_GROUPED = r"\\(?:[hv]?phantom|[bx]?cancel|sout|st)(?![a-zA-Z])\s*\{"
_WHITE = r"\\(?:text)?color\s*\{\s*white\s*\}\s*\{?"
_HIDES = re.compile(
    rf"{_GROUPED}|{_WHITE}|<!--|\\iffalse|\\if0|\\begin\s*\{{(?:comment|verbatim|lstlisting)\}}|display\s*:\s*none|~~"
    r"|<(?:del|s|strike)>|%"
)
_SPAN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|\\(?:iffalse|if0)(?![a-zA-Z]).*?(?:\\fi(?![a-zA-Z])|\Z)"
    r"|\\begin\s*\{(comment|verbatim|lstlisting)\}.*?(?:\\end\s*\{\1\}|\Z)"
    r"|display\s*:\s*none.*?(?:</|\Z)"
    r"|<(del|s|strike)>.*?(?:</\2>|\Z)"
    r"|~~[^~\n]+~~",
    re.DOTALL,
)
# `x% of 30` is prose: a comment starts a line, or follows a space that no short word precedes.
_COMMENT = re.compile(r"(?<![\\\w)\]$])(?<!\d )(?<!\W\w )%(?!\s*of\b)[^\n]*")
_TOKEN = re.compile(rf"(?P<group>{_GROUPED})|(?P<white>{_WHITE})|\\.|[{{}}]", re.DOTALL)
_ANSWER = re.compile(r"\\(?:f|frame)?box(?:ed)?(?![a-zA-Z])|</?answer>")


def visible(text: str) -> str | None:
    """The text with its hidden parts replaced by REMOVED; None if one of them holds an answer."""
    if not _HIDES.search(text):
        return text
    spans = [match.span() for match in _SPAN.finditer(text)] + _groups(text)
    spans += [m.span() for m in _COMMENT.finditer(text) if _ANSWER.search(m.group())]
    parts: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start < end:  # within the part before it, or overlapping with it
            if _ANSWER.search(text, end, max(end, stop)):
                return None
        else:
            parts += [text[end:start], REMOVED]
            if _ANSWER.search(text, start, stop):
                return None
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _groups(text: str) -> list[tuple[int, int]]:
    """Spans of `\\phantom{...}`, `\\cancel{...}` and white text; an open one ends with the text."""
    spans: list[tuple[int, int]] = []
    starts: list[int | None] = []  # of each open brace: where a hidden part starts, if one does
    switched: list[int] = []  # starts of white text within a group, or up to the end of the text
    for match in _TOKEN.finditer(text):
        token = match.group()
        hides = match.lastgroup in ("group", "white")
        if hides and token.endswith("{"):
            starts.append(match.start())
        elif hides:  # a switch to white, up to the end of the group
            if starts and starts[-1] is None:
                starts[-1] = match.start()
            switched.append(match.start())
        elif token == "{":
            starts.append(None)
        elif token == "}" and starts:
            start = starts.pop()
            if start is not None:
                keeps_brace = bool(switched) and start == switched[-1]
                spans.append((start, match.start() if keeps_brace else match.end()))
                switched = switched[:-1] if keeps_brace else switched
    unclosed = [start for start in (*switched, *starts) if start is not None]
    return spans + ([(min(unclosed), len(text))] if unclosed else [])
