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
_SIGNS = frozenset(["+", "-"])
_JOINS_LEFT = frozenset(["+", "-", "*", "/", "^", "_", "(", "[", "{", "<", ">", "!"])
_JOINS_RIGHT = frozenset(["+", "-", "*", "/", "^", "_", "!", ")", "]", "}"])
_COMMAND = re.compile(r"\\[A-Za-z]+|\d.*")
_APART = frozenset({r"\quad", r"\qquad", r"\text", r"\le", r"\ge", r"\to", r"\implies"})


def echoes(answer: str, gold: str, prompt: str) -> bool:
    """Whether the answer is an unevaluated expression of the prompt, and the gold answer is not.

    Terms of a sum and factors of a product may be in another order.
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
    """Whether the text is a whole expression among the tokens, its terms and factors in any
    order."""
    wanted = _tokens(text)
    size, known = len(wanted), set(wanted)
    alphabet, form = sorted(wanted), _canonical(wanted)
    for at in range(len(tokens) - size + 1):
        if tokens[at] not in known or tokens[at + size - 1] not in known:
            continue
        window = tokens[at : at + size]
        if sorted(window) == alphabet and _canonical(window) == form:
            before = tokens[at - 1] if at else ""
            after = tokens[at + size] if at + size < len(tokens) else ""
            if not _extends(before, _JOINS_LEFT) and not _extends(after, _JOINS_RIGHT):
                return True
    return False


def _canonical(tokens: list[str]) -> tuple[object, ...]:
    """An expression with its terms and factors sorted, those in parentheses too; the tokens
    themselves where these are not balanced."""
    stack: list[list[object]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                return tuple(tokens)
            inner = _sorted_terms(stack.pop())
            stack[-1].append(("(", inner))
        else:
            stack[-1].append(token)
    return _sorted_terms(stack[0]) if len(stack) == 1 else tuple(tokens)


def _sorted_terms(parts: list[object]) -> tuple[object, ...]:
    """The terms of a sum, each with its sign and its factors; a sign after an operator is none."""
    terms: list[tuple[object, list[object]]] = [("+", [])]
    for at, part in enumerate(parts):
        if part in _SIGNS and not (at and parts[at - 1] in ("*", "/", "^")):
            terms.append((part, []))
        else:
            terms[-1][1].append(part)
    signed = [(sign, _sorted_factors(term)) for sign, term in terms if term]
    return tuple(sorted(signed, key=repr))


def _sorted_factors(term: list[object]) -> tuple[object, ...]:
    """The factors of a product; of one with a division the order is kept."""
    if "*" not in term or "/" in term:
        return tuple(term)
    factors: list[list[object]] = [[]]
    for part in term:
        if part == "*":
            factors.append([])
        else:
            factors[-1].append(part)
    return ("*", *sorted(map(tuple, factors), key=repr))


def _extends(token: str, joins: frozenset[str]) -> bool:
    """Whether a token next to an expression belongs to it."""
    if token in joins:
        return True
    return token not in _APART and _COMMAND.fullmatch(token) is not None
