"""Characters that a reader does not see: Unicode's default ignorables, and blanks that are letters
or symbols by category.
"""

import re
import unicodedata

# The property Default_Ignorable_Code_Point of Unicode 16.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_IGNORABLE}]")
_BLANK_SYMBOLS = "\u2800\U0001d159"  # the empty braille pattern, the null note head


def without_invisible(text: str) -> str:
    """The text without zero-width spaces, soft hyphens, joiners and the like."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def is_blank(text: str) -> bool:
    """Whether a reader sees nothing: no letter, number, punctuation mark or symbol."""
    return not any(
        unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_SYMBOLS
        for character in without_invisible(text)
    )
