"""The words of a text in any script.

A word is a run of letters of an alphabet, or a single ideograph or kana, since no spaces separate
words there.
"""

import re

CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
WORD = re.compile(rf"[{CJK}]|[^\W\d_{CJK}]+(?:['’][^\W\d_{CJK}]+)*")


def words(text: str) -> list[str]:
    """The words of a text, in order and unchanged."""
    return WORD.findall(text)
