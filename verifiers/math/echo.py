"""Whether an answer only repeats an expression of the problem, in whatever order of its parts:
2^{10}+1, or 1+2^{10}, for "compute 2^{10}+1"."""

import re
from math import gcd

from veriloop.verifiers.math.decide import normal

_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]+|[^\s{}]")
_PRODUCT = re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])")
_FRACTION = re.compile(r"-?(?:\\frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_OPERATION = re.compile(
    r"(?<=.)[-+]|[*/^!=|]|\\(?!pi|theta|alpha|beta|infty|text|mathrm|circ|degree|%|\$|\{|\})[A-Za-z]+"
)
# tokens of an expression whose parts may change places
_MOVABLE = re.compile(r"[-+*/^().\w]+|\\(?:[dt]?frac|sqrt|binom|log|ln|sin|cos|tan|pi)")
_JOINS_LEFT = frozenset(["+", "-", "*", "/", "^", "_", "(", "[", "{", "<", ">", "!"])
_JOINS_RIGHT = frozenset(["+", "-", "*", "/", "^", "_", "!", ")", "]", "}"])
_COMMAND = re.compile(r"\\[A-Za-z]+|\d.*")
_APART = frozenset({r"\quad", r"\qquad", r"\text", r"\le", r"\ge", r"\to", r"\implies"})


def echoes(answer: str, gold: str, prompt: str) -> bool:
    """Whether the answer is an unevaluated expression of the prompt, and the gold answer is not.

    An expression with the same tokens in another order is the same one, as the answer is right.
    """
    text, expected = normal(answer), normal(gold)
    if not prompt or text == expected or not _unevaluated(text):
        return False
    tokens = _tokens(normal(prompt))
    return _occurs(text, tokens) and not _occurs(expected, tokens)


def _tokens(text: str) -> list[str]:
    """Digits, words, commands and signs, without braces."""
    return _TOKEN.findall(_PRODUCT.sub("*", text))


def _unevaluated(text: str) -> bool:
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        over, under = (int(part) for part in fraction.groups() if part)
        return gcd(over, under) > 1
    return _OPERATION.search(text) is not None


def _occurs(text: str, tokens: list[str]) -> bool:
    """Whether the text is a whole expression among the tokens; of what is unevaluated, the tokens
    may be in another order."""
    wanted = _tokens(text)
    size, known = len(wanted), set(wanted)
    moves = _unevaluated(text) and all(map(_MOVABLE.fullmatch, wanted))
    ordered = sorted(wanted)
    for at in range(len(tokens) - size + 1):
        ends = {tokens[at], tokens[at + size - 1]} if moves else {tokens[at]}
        if not ends <= known:
            continue
        found = tokens[at : at + size]
        if found == wanted or (moves and sorted(found) == ordered):
            before = tokens[at - 1] if at else ""
            after = tokens[at + size] if at + size < len(tokens) else ""
            if not _extends(before, _JOINS_LEFT) and not _extends(after, _JOINS_RIGHT):
                return True
    return False


def _extends(token: str, joins: frozenset[str]) -> bool:
    """Whether a token next to an expression belongs to it."""
    if token in joins:
        return True
    return token not in _APART and _COMMAND.fullmatch(token) is not None
