"""Lexer of answers: numbers with their separators, words, commands and signs."""

import re
from dataclasses import dataclass
from typing import Literal

from veriloop.verifiers.math.tree import UnreadableError

Comma = Literal["thousands", "decimal", "decimal, grouped points"]

MAX_TOKENS = 2_000

_SURE_GROUP = re.compile(r"(?<=\d)(?:,\\!|\\[,;:! ]|\\thinspace|~|')\s?(?=\d{3}(?!\d))")
_BRACED_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_GROUPED_BRACES = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:\{,\}\d{3})+(?!\d|\{,\})")
_SKIP = {
    "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl",
    "biggr", "Biggl", "Biggr", "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits",
    "quad", "qquad", "thinspace", "enspace", "middle", "hfill", "bf", "rm", "it", "large", "Large",
    "huge", "Huge", "small", "hspace", "mathstrut", "strut", "nonumber",
}  # fmt: skip
_PROSE = {
    "text", "textbf", "textit", "textrm", "textnormal", "texttt", "textsf", "mbox", "hbox", "emph",
    "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "operatorname", "boldsymbol", "bm", "mathcal",
    "underline", "textup", "bold", "pmb", "boxed", "fbox", "ensuremath", "unit", "si", "mathop",
}  # fmt: skip
_QUIET = {"boxed", "fbox", "ensuremath", "boldsymbol", "bm", "underline", "pmb"}  # no prose inside

_CIS = re.compile(r"\s*\{\s*cis\s*\}")
_MARKUP = frozenset(",;:!()[] ")

_E = r"(?:[eE][+-]?\d+(?![A-Za-z\d]))?"
_GROUP = "[,\x1f]"
_NUMBERS = {
    "thousands": rf"\d{{1,3}}(?:\.\d{{3}}){{2,}}(?:,\d+)?(?![\d.])"
    rf"|(?:\d{{1,3}}(?:{_GROUP}\d{{3}})+(?![\d,])"
    rf"|\d{{1,3}}(?: \d{{3}})+(?![\d/,.])|\d+)(?:\.\d+)?{_E}|\.\d+{_E}",
    "decimal": r"(?:\d{1,3}(?:[.\x1f ]\d{3})+(?=,\d)|\d{1,3}(?:[.]\d{3}){2,}(?!\d)"
    rf"|\d{{1,3}}(?:[\x1f ]\d{{3}})+(?!\d)|\d{{1,3}}(?:,\d{{3}}){{2,}}(?!\d)|\d+)(?:[.,]\d+)?{_E}",
    "decimal, grouped points": rf"(?:\d{{1,3}}(?:[.\x1f ]\d{{3}})+(?!\d)|\d+)(?:,\d+)?{_E}",
    "separator": rf"(?:\d{{1,3}}(?:\x1f\d{{3}})+(?!\d)|\d+)(?:\.\d+)?{_E}|\.\d+{_E}",
}
_WORD = r"[^\W\d_](?:[^\W\d_]|[\u0900-\u0dff\u0e00-\u0e7f])*"  # with the vowel signs of India
_REST = (
    r"(?P<env>\\(?:begin|end)\s*\{\w+\*?\}(?:\{[clr|]*\})?)"
    r"|(?P<blackboard>\\(?:mathbb|Bbb)\s*(?:\{\s*[A-Z]\s*\}|[A-Z]))"
    rf"|(?P<cmd>\\[A-Za-z]+\*?|\\\\|\\.)|(?P<word>{_WORD})"
    r"|(?P<op><=|>=|!=|==|\*\*|:=|->|[-+*/^_=<>(){}\[\]|,;:.!%'&\"$])"
)
_LEXERS = {
    mode: re.compile(rf"(?P<space>[\s~]+)|(?P<num>{number})|{_REST}", re.DOTALL)
    for mode, number in _NUMBERS.items()
}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is num, word, cmd, op or end; the text of a number has no group separators."""

    kind: str
    text: str
    spaced: bool = False  # preceded by white space
    prose: bool = False  # inside \\text or a similar command


END = Token("end", "")


def tokens(text: str, comma: Comma = "thousands") -> list[Token]:
    """All tokens of a text without Unicode glyphs; `comma`: the meaning of a comma between digits.

    Inside brackets a comma separates items. Raises UnreadableError for an unknown character,
    unbalanced braces, and more than MAX_TOKENS tokens.
    """
    if comma == "thousands":
        text = _GROUPED_BRACES.sub(lambda run: run.group().replace("{,}", "\x1f"), text)
        text = _BRACED_COMMA.sub(".", text)
    else:
        text = _BRACED_COMMA.sub(",", text)
    lexer = _Lexer(_SURE_GROUP.sub("\x1f", text), comma)
    lexer.run()
    return lexer.tokens


class _Lexer:
    """A single pass over the text; `stack` has the kind of each open brace or bracket."""

    def __init__(self, text: str, comma: Comma) -> None:
        self.text = text
        self.comma: Comma = comma
        self.tokens: list[Token] = []
        self.stack: list[str] = []
        self.spaced = False

    def run(self) -> None:
        at = 0
        while at < len(self.text):
            inside = bool(self.stack) and self.stack[-1] in "(["
            mode = "separator" if inside and self.comma == "thousands" else self.comma
            match = _LEXERS[mode].match(self.text, at)
            if match is None or len(self.tokens) > MAX_TOKENS:
                raise UnreadableError(f"unexpected text {self.text[at : at + 10]!r}")
            at = self._take(match)
        if any(kind in "{ps" for kind in self.stack):
            raise UnreadableError("a brace is not closed")

    def _take(self, match: re.Match[str]) -> int:
        kind, text = str(match.lastgroup), match.group()
        if kind == "space":
            self.spaced = True
        elif kind == "num":
            self._emit("num", self._digits(text))
        elif kind == "blackboard":
            self._emit("cmd", "mathbb:" + re.sub(r"\W", "", text)[-1])
        elif kind == "env":
            self._emit("cmd", re.sub(r"[\\\s*}]|\{[clr|]*\}$", "", text).replace("{", ":"))
        elif kind == "cmd":
            return self._command(text[1:], match.end())
        elif kind == "op":
            self._sign(text)
        else:
            self._emit(kind, text)
        return match.end()

    def _digits(self, raw: str) -> str:
        raw = raw.replace("\x1f", "").replace(" ", "")
        if raw.count(".") > 1:  # can only separate groups
            return raw.replace(".", "").replace(",", ".")
        if self.comma == "thousands":
            return raw.replace(",", "")
        if self.comma == "decimal, grouped points" or ("." in raw and "," in raw):
            raw = raw.replace(".", "")
        return raw.replace(",", "" if raw.count(",") > 1 else ".")

    def _command(self, name: str, end: int) -> int:
        function = _CIS.match(self.text, end) if name in _PROSE else None
        if function:
            self._emit("cmd", "cis")
            return function.end()
        if name in _PROSE or name in ("left", "right"):
            opened = re.compile(r"\s*\{" if name in _PROSE else r"\s*\.").match(self.text, end)
            if opened:
                if name in _PROSE:
                    self.stack.append("s" if name in _QUIET else "p")
                return opened.end()
        name = {"{": "lbrace", "}": "rbrace", "|": "vert"}.get(name, name)
        if name in ("lbrace", "langle"):
            self.stack.append("(")
        elif name in ("rbrace", "rangle") and self.stack and self.stack[-1] == "(":
            self.stack.pop()
        if name in _PROSE or name in _SKIP or name in _MARKUP:
            self.spaced = self.spaced or name != "!"
        else:
            self._emit("cmd", name)
        return end

    def _sign(self, text: str) -> None:
        if text == "{":
            self.stack.append("{")
        elif text in "([":
            self.stack.append("(")
        elif text == "}":
            if not self.stack or self.stack[-1] not in "{ps":
                raise UnreadableError("a closing brace has no opening brace")
            if self.stack.pop() != "{":
                return
        elif text in ")]" and self.stack and self.stack[-1] == "(":
            self.stack.pop()
        if text == "$":
            return
        self._emit("op", text)

    def _emit(self, kind: str, text: str) -> None:
        self.tokens.append(Token(kind, text, self.spaced, "p" in self.stack))
        self.spaced = False
