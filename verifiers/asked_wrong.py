"""Whether a question asks for what is wrong: an answer that is called so is then not denied."""

import re
from collections.abc import Sequence

WRONG = r"incorrect|wrong|false|untrue|mistaken|erroneous|invalid"
_ASKS_WRONG = tuple(  # a question for what is not so, in one sentence and in this order
    re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for words in (
        "which|what|find|identify|choose|select|pick|name|mark",
        "following|these|statements?|options?|choices?|answers?|claims?|sentences?|alternatives?",
        f"{WRONG}|not|never|except|excluded",
    )
)
_COUNTS_WRONG = tuple(  # a question for how many are wrong
    re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for words in (
        "how many|how much|number of|count|percent(?:age)?|fraction|proportion|share|probability",
        f"{WRONG}|miss(?:ed|es)?|mistakes?|errors?|fail(?:ed|s)?",
    )
)
_NAMES_WRONG = re.compile(
    rf"\b(?:{WRONG})\s+(?:one|option|statement|answer|choice|claim|sentence|alternative)\b|"
    r"\bexcept\s*[:?.]|不正确|错误的|不是",
    re.IGNORECASE,
)


def asks_wrong(prompt: str) -> bool:
    """Whether the question asks for what is wrong, false or excluded."""
    sentences = re.split(r"[.?!]", prompt)
    asked = any(_in_order(sentence, _ASKS_WRONG) for sentence in sentences)
    return _NAMES_WRONG.search(prompt) is not None or asked


def counts_wrong(prompt: str) -> bool:
    """Whether the question asks how many are wrong."""
    sentences = re.split(r"[.?!]", prompt)
    return any(_in_order(sentence, _COUNTS_WRONG) for sentence in sentences)


def _in_order(sentence: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    end = 0
    for words in patterns:
        match = words.search(sentence, end)
        if match is None:
            return False
        end = match.end()
    return True
