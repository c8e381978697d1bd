"""The words of a text in any script.

A word is a run of letters of an alphabet, with the vowel signs and other marks that combine with
them, or a single ideograph or kana, since no spaces separate words there.
"""

import re
import unicodedata
from itertools import groupby

CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"


def _ranges(categories: tuple[str, ...], last: int = 0x1FFFF) -> str:
    """The characters of these categories outside CJK, as the inside of a character class."""
    codes = [
        n
        for n in range(last + 1)
        if unicodedata.category(chr(n)) in categories
        and not re.match(f"[{CJK}\ufe00-\ufe0f]", chr(n))
    ]
    numbered = groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0])  # a key for each run
    runs = ([n for _, n in run] for _, run in numbered)
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


MARKS = _ranges(("Mn", "Mc"))  # marks that combine with a letter; those of emoji are left out
MARKED = rf"(?![\0-\u02ff])[{MARKS}]+"  # a run of marks; the range is checked first, which is quick
_LETTERS = rf"[^\W\d_{CJK}]+(?:{MARKED}[^\W\d_{CJK}]*)*"
WORD = re.compile(rf"[{CJK}]|{_LETTERS}(?:['’]{_LETTERS})*")


def words(text: str) -> list[str]:
    """The words of a text, in order and unchanged."""
    return WORD.findall(text)
