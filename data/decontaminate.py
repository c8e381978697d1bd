"""Detects training texts that contain evaluation questions or reference solutions.

As in the paper, a text overlaps if it shares a 10-gram of words with an evaluation text. An
evaluation text with fewer words matches a text of exactly these words. A formula of two or more
operations matches anywhere, also in a chain of thought, unless it is part of a longer formula, to
which brackets may join it.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

SIZE = 10  # words of an n-gram
TEMPLATE = 3  # an n-gram of so many questions comes from their template
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|\d+|[^\W\d_{_CJK}]+")
_SIGNS = str.maketrans("−－＋×·⋅∙＊÷／（[{）]}", "--+*****//((()))")
_LATEX = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<!\\)\\+(?:times|cdot|ast)(?![A-Za-z])", "*"),
        (r"(?<!\\)\\+div(?![A-Za-z])", "/"),
        (r"(?<!\\)\\+(?:left|right)(?![A-Za-z])", ""),
        (r"\$|(?<!\\)\\+[()\[\],;:!]", " "),
    )
)
_SIGN = re.compile(r"(?:(?<!\s)\s+)?([-+*/^])\s*")
_INSIDE = re.compile(r"(?<=\()\s+|(?<!\s)\s+(?=\))")  # white space inside brackets
_PRODUCT = re.compile(r"(?<=[\d)])(?=\([-+(]*\d)")  # without a sign, as in 2(3+4)
_LONE = re.compile(r"\((\d+(?:\.\d+)?)\)(?!\d)")  # a number in brackets
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = re.compile(  # 2024-01-15, 15/1/2024
    rf"(?<![\d.*+^/-])(?:(?:19|20)\d\d([-/])(?:0?[1-9]|1[0-2])\1{_DAY}"
    rf"|{_DAY}([-/]){_DAY}\2(?:19|20)\d\d)(?![\d*+^/-])"
)
_FORMULA = re.compile(  # brackets may lack a partner
    r"(?:(?<!\()(?<!\([-+])(?:\([-+]?)+|(?<!\d))\d+(?:\.\d+)?\)*"
    r"(?:[-+*/^](?:\([-+]?)*\d+(?:\.\d+)?\)*){2,}"
)


def words(text: str) -> list[str]:
    """Words and numbers in lower case; every ideograph or kana is a word.

    Accents, vowel signs and other marks that combine with letters are left out: they may be encoded
    in two ways, and they end no word.
    """
    return _WORD.findall(_without_marks(text).lower())


def _without_marks(text: str) -> str:
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFD", text)
    return "".join(part for part in parts if not unicodedata.category(part).startswith("M"))


def formulas(text: str) -> set[str]:
    """The maximal formulas of two or more operations on numbers, also in LaTeX; dates are none.

    They are spelled without spaces and without brackets around the whole or around a number.
    """
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    spelled = _SIGN.sub(r"\1", _DATE.sub(" ", text.translate(_SIGNS)))
    joined = _LONE.sub(r"\1", _PRODUCT.sub("*", _INSIDE.sub("", spelled)))
    return set(map(_bare, _FORMULA.findall(joined)))


def _bare(formula: str) -> str:
    """The formula without signs and brackets that do not belong to a part of it."""
    opened: list[int] = []
    closed_by: dict[int, int] = {}
    for place, character in enumerate(formula):
        if character == "(":
            opened.append(place)
        elif character == ")" and opened:
            closed_by[opened.pop()] = place
    closing = set(closed_by.values())
    start, last = 0, len(formula) - 1
    while True:
        if formula[last] == ")" and last not in closing:
            last -= 1
        elif formula[start] in "-+" or (formula[start] == "(" and start not in closed_by):
            start += 1
        elif closed_by.get(start) == last:
            start, last = start + 1, last - 1
        else:
            return formula[start : last + 1]


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a value of JSON, at any depth; of a message its content alone."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        parts = [value["content"]] if "content" in value else value.values()
        for part in parts:
            yield from texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_of(part)


class Overlap:
    """The evaluation texts, as hashes of their n-grams, and their formulas."""

    def __init__(
        self, texts: Iterable[str], size: int = SIZE, *, questions: Iterable[str] = ()
    ) -> None:
        """`texts`: questions and reference solutions. `questions`: different ones, which may be
        written in one template: an n-gram of TEMPLATE of them or more is the template's, unless
        it is among the rarest of a question.

        Raises ValueError for a size below 1.
        """
        if size < 1:
            raise ValueError(f"an n-gram has at least 1 word, got {size}")
        self.size = size
        self.texts = 0
        self._known: set[bytes] = set()
        self._formulas: set[str] = set()
        for text in texts:
            self.texts += 1
            self._known |= set(self._hashes(words(text)))
            self._formulas |= formulas(text)
        different = {tuple(words(question)): question for question in questions}
        grams = [set(self._hashes(tokens)) for tokens in different]
        counts = Counter(gram for own in grams for gram in own)
        for question, own in zip(different.values(), grams, strict=True):
            self.texts += 1
            self._formulas |= formulas(question)
            rarest = min((counts[gram] for gram in own), default=0)
            self._known |= {gram for gram in own if counts[gram] < max(TEMPLATE, rarest + 1)}

    def overlaps(self, *texts: str) -> bool:
        """Whether any of the texts, each checked separately, overlaps an evaluation text."""
        return any(
            not self._formulas.isdisjoint(formulas(text))
            or any(gram in self._known for gram in self._hashes(words(text)))
            for text in texts
        )

    def shared(self, text: str, prompt: str = "") -> str:
        """The first formula or n-gram shared with an evaluation text; "" if there is none.

        `prompt` is `text` in the words of a template, which are not compared. A text shorter than
        an n-gram is shared too if every n-gram of its prompt is.
        """
        for formula in sorted(formulas(text) & self._formulas):
            return formula
        tokens = words(text)
        for start, gram in enumerate(self._hashes(tokens)):
            if gram in self._known:
                return " ".join(tokens[start : start + self.size])
        if (
            tokens
            and len(tokens) < self.size
            and self._known.issuperset(self._hashes(words(prompt or text)))
        ):
            return " ".join(tokens)
        return ""

    def _hashes(self, tokens: Sequence[str]) -> Iterator[bytes]:
        """A hash for every n-gram, or one for all tokens if there are fewer than n."""
        for start in range(max(1, len(tokens) - self.size + 1) if tokens else 0):
            gram = "\x1f".join(tokens[start : start + self.size])
            yield hashlib.blake2b(gram.encode(), digest_size=8).digest()
