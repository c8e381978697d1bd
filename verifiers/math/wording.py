"""Answers in words: spelled-out numbers, choices, phrases such as "no solution", plain text."""

import re
import unicodedata
from fractions import Fraction

SMALL_NUMBERS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
         "eighty": 80, "ninety": 90}  # fmt: skip
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
           "trillion": 10**12, "quadrillion": 10**15, "quintillion": 10**18, "lakh": 10**5,
           "crore": 10**7}  # fmt: skip
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6,
    "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12, "hundredth": 100,
    "thousandth": 1000,
}  # fmt: skip
_WHOLES = {**_SCALES, "dozen": 12}
# Words that multiply the number before them, and those that do so only as the last word: a half,
# but five third graders.
MULTIPLIERS = {
    **{name: Fraction(size) for name, size in _WHOLES.items()},
    **{f"{name}s": Fraction(size) for name, size in _WHOLES.items()},
    **{name if name == "halves" else f"{name}s": Fraction(1, size)
       for name, size in _PARTS.items() if name != "half"},
}  # fmt: skip
LAST_MULTIPLIERS = {name: Fraction(1, size) for name, size in _PARTS.items() if name != "halves"}
_PHRASES = {  # meaning -> phrases
    "empty": "no solution; no solutions; no real solution; no real solutions; empty set; "
    "none; no solution exists; no solutions exist; there is no solution; there are no solutions; "
    "has no solution; has no solutions; no such number; no real roots; null set; "
    "no real solutions exist; there are no real solutions",
    "infinity": "infinity; infinite; infinitely many; infinitely many solutions; unbounded; "
    "positive infinity; an infinite number; infinite solutions; plus infinity",
    "reals": "all reals; all real numbers; all real; real numbers; any real number; every real "
    "number; set of real numbers; set of all real numbers; all real values; all x; reals",
    "minus infinity": "negative infinity; minus infinity",
    "does not exist": "dne; does not exist; doesn't exist; limit does not exist; "
    "it does not exist; non-existent; nonexistent; divergent limit",
    "undefined": "undefined; not defined; indeterminate; is undefined",
}
_MEANING = {phrase: key for key, text in _PHRASES.items() for phrase in text.split("; ")}
_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it|sf)|mbox|emph|operatorname)\b"
)
_AROUND = " \t\n.!*_\"'`()\u3002"  # signs around a word
_ARTICLE = re.compile(r"^(?:an?|the)\s+(?=.)")
_SUBJECT = re.compile(r"^(?:(?:the|this|that|it|its|they)\b[\w\s]{0,40}?\b|)(?:is|are)\s+(?=.)")
_CHOICE = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)\s*(?:is|:)?\s*)?"
    r"(?:option|choice|answer)?\s*[\[(]?\s*([A-Za-z])\s*(?:[\])]\s*[:.]?|[.:](?!\d)|\s[-\u2013]\s|\s{2,}(?=[\d\\])|$)\s*",
    re.IGNORECASE,
)
_NEXT = r"(?=\s*(?:[,;:.]|$|(?:and|or|is|are|not)\b))"  # what follows a label
_MORE_CHOICES = re.compile(
    r"(?<![A-Za-z])[\[(]?([A-J])[\])]|(?:\bor\b|\band\b|,|/)\s*[\[(]?([A-J])\b"
    rf"|(?:^|[.;:]\s|\s[|&])\s*([A-HJ])\b{_NEXT}"  # not the number I
    r"|(?<=[\d})$%]\s)\s*([A-HJ])(?=[.:]\s)|\s([A-J])(?=\)\s)"
)
_OTHERWISE = re.compile(r"\b(?:otherwise|else|respectively|none)\b", re.IGNORECASE)
_LISTED = re.compile(
    r"(?:[,;]|\b(?:and|or|but|while|whereas|then)\b)\s*(?:(?:and|or|but)\s+)?([a-z]+)\b"
    r"(?!\s+(?:of|more|less|fewer)\b)"
)
_ASSIGNED = re.compile(r"([a-z]+)\s+(?:for|in|if|when|on)\b")
_NOTHING = frozenset({"no", "nothing", "more", "less", "fewer"})
_LAST_WORD = re.compile(
    rf"\b({'|'.join({**MULTIPLIERS, **LAST_MULTIPLIERS})})\b"
    r"(?=[^A-Za-z]*$|\s+(?:of\s+)?[a-z]+[^A-Za-z]*$)"
)
_DENIAL = re.compile(
    r"\b(?:not|no|never|neither|nor|wrong|incorrect|false|cannot|isn't|un(?:able|certain|known)|"
    r"unless|except|refuse|instead|rather)\b|n't\b",
    re.IGNORECASE,
)


def bare_words(text: str) -> str | None:
    """A verbal answer in lower case without article, style and punctuation; None for formulas."""
    if any(character.isdigit() for character in text):
        return None
    bare = _STYLE.sub(" ", text).replace("{", " ").replace("}", " ").replace("$", " ")
    bare = bare.replace("\\ ", " ").replace("~", " ").replace("\\,", " ").strip(_AROUND)
    if not bare or not all(_spells(character) for character in bare):
        return None
    bare = " ".join(bare.replace("-", " ").split()).lower()
    return _ARTICLE.sub("", _SUBJECT.sub("", bare)) or None


def _spells(character: str) -> bool:
    """Whether a character may be part of a word; vowel signs of India are marks."""
    return (
        character.isalpha()
        or character in " -'"
        or character.isspace()
        or unicodedata.category(character) in ("Mn", "Mc")
    )


def meaning(words: str) -> str:
    """The meaning of a phrase; phrases with the same meaning give the same text."""
    phrase = words.replace("-", " ")
    return _MEANING.get(phrase) or _MEANING.get(words) or phrase


def number_words(words: str) -> Fraction | None:
    """The value of a number in English words: forty-two, two thirds, one hundred and five."""
    whole_words, joined, part_words = words.lower().rpartition(" and ")
    if joined and part_words.split()[-1:] and part_words.split()[-1].rstrip("s") in _PARTS:
        whole, part = number_words(whole_words), number_words(part_words)
        return None if whole is None or part is None else whole + part
    parts = [part for part in re.split(r"[\s-]+", words.lower()) if part != "and"]
    sign = -1 if parts and parts[0] in ("minus", "negative") else 1
    parts = parts[1:] if sign < 0 else parts
    if not parts:
        return None
    last = parts[-1].removesuffix("s") if parts[-1] != "halves" else "half"
    if last in _PARTS and (len(parts) == 1 or parts[-1] not in SMALL_NUMBERS):
        over = _cardinal(["one" if p in ("a", "an") else p for p in parts[:-1]] or ["one"])
        return None if over is None else sign * Fraction(over, _PARTS[last])
    whole = _cardinal(parts)
    return None if whole is None else Fraction(sign * whole)


def _cardinal(parts: list[str]) -> int | None:
    total = current = 0
    for index, part in enumerate(parts):
        if part in SMALL_NUMBERS:
            current += SMALL_NUMBERS.index(part)
        elif part in _TENS:
            current += _TENS[part]
        elif part == "a" and index == 0 and len(parts) > 1:
            current += 1
        elif part == "hundred":
            current = max(current, 1) * 100
        elif part in _SCALES:
            total, current = total + max(current, 1) * _SCALES[part], 0
        elif part == "dozen":
            current = max(current, 1) * 12
        else:
            return None
    return total + current


def names_another(prose: str) -> bool:
    """Whether the prose after a value may name another one: six in the other case, or none."""
    if _OTHERWISE.search(prose):
        return True
    words = [*_LISTED.findall(prose.lower()), *_ASSIGNED.findall(prose.lower())]
    near = [word for word in words if word not in LAST_MULTIPLIERS or word == "half"]
    return any(word in _NOTHING or number_words(word) is not None for word in near)


def in_asked_unit(answer: str, prompt: str) -> str:
    """The answer without its multiplier, if the question asks how many of it: how many dozen."""
    match = _LAST_WORD.search(answer)
    if match is None:
        return answer
    stem = "hal(?:f|ve)" if match[1] in ("half", "halves") else match[1].removesuffix("s")
    asked = (
        rf"\b(?:how many|number of)\s+(?:[\w']+\s+){{0,5}}?{stem}s?\b|\bin\s+(?:\w+\s+)?{stem}s\b"
    )
    if not re.search(asked, prompt, re.IGNORECASE):
        return answer
    return answer[: match.start()] + answer[match.end() :].removeprefix(" of")


def choice(text: str) -> tuple[str, str] | None:
    """(letter, text of the option) of an answer that names one option; else None.

    Letters are A to J in either case. An answer with several of them names no option.
    """
    bare = _STYLE.sub(" ", text).replace("{", " ").replace("}", " ").replace("$", " ")
    bare = bare.replace("\\ ", " ").replace("\\,", " ").replace("\\quad", " ").strip(" \t\n.*_\\")
    match = _CHOICE.match(bare)
    if match is None or match.group(1).upper() not in "ABCDEFGHIJ":
        return None
    letter, rest = match.group(1).upper(), bare[match.end() :].strip(" .*")
    others = (next(filter(None, more.groups())) for more in _MORE_CHOICES.finditer(rest))
    if any(other != letter for other in others) or _DENIAL.search(rest):
        return None
    return letter, rest
