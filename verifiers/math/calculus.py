"""Integrals, limits, derivatives, sums and products: trees that computer algebra evaluates.

`integral`: (integrand,) or (integrand, lower, upper); its variable is `name`. `limit`: (expression,
point); `value` is the side, 1 from above, -1 from below, 0 from both. `derivative`: (expression,
*variables). `sum` and `prod`: (first, last, term).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from veriloop.verifiers.math.grammar import Expressions
from veriloop.verifiers.math.names import ARROWS, GREEK
from veriloop.verifiers.math.tokens import Token
from veriloop.verifiers.math.tree import INFINITY, Node, UnreadableError, number, symbol

_DIFFERENTIAL = re.compile(r"([A-Za-z]*)d([A-Za-z])")
_INTEGRALS = frozenset({"int", "iint", "iiint", "oint"})
_POWER = r"(?:\^ (?:\{ )?([1-9]) (?:\} )?)?"
_OPERAND = rf"(?:partial |d ?)([A-Za-z]+) {_POWER}"
_OPERATOR = re.compile(rf"\{{ (?:d|partial) {_POWER}\}} \{{ ((?:{_OPERAND})+)\}} ")
_MAX_OPERATOR = 24  # tokens of `{\partial^2}{\partial x\partial y}`


class Calculus(Expressions):
    """Adds `\\int`, `\\lim`, `\\sum`, `\\prod` and `\\frac{d}{dx}`."""

    def atom(self) -> Node:
        if self.next.kind == "differential":
            return Node("differential", name=self.take().text)
        return super().atom()

    def _juxtaposed(self) -> bool:
        return self.next.kind == "differential" or super()._juxtaposed()

    def calculus(self, name: str) -> Node | None:
        """Parse from one of these commands; None, at the same position, if it is not of the form
        described above."""
        start, saved = self.position, list(self.tokens)
        try:
            if name == "int":
                return self._integral()
            return self._limit() if name == "lim" else None
        except UnreadableError:
            self.position, self.tokens = start, saved
            return None

    def _integral(self) -> Node:
        bounds = self._bounds()
        self.tokens[self.position :] = _split(self.tokens[self.position :])
        end = self._differential()
        if end is None:
            integrand, names = _cut(self._product())
        else:
            names = [self.tokens[end].text]
            self.tokens[end] = Token("op", ")")
            integrand = number(1) if end == self.position else self.expression()
            self.expect(")")
        if len(names) != 1:
            raise UnreadableError(f"an integral with {len(names)} differentials")
        return Node("integral", (integrand, *bounds), names[0])

    def _bounds(self) -> tuple[Node, ...]:
        bounds: dict[str, Node] = {}
        while self.sees("_", "^"):
            mark = self.take().text
            negative = self.accept("-")
            bound = self.digit()
            bounds[mark] = Node("neg", (bound,)) if negative else bound
        if len(bounds) == 1:
            raise UnreadableError("an integral with one bound")
        return (bounds["_"], bounds["^"]) if bounds else ()

    def _differential(self) -> int | None:
        """The index of the differential that ends this integral, outside brackets; else None."""
        depth = inner = 0
        for index in range(self.position, len(self.tokens) - 1):
            token = self.tokens[index]
            depth += (token.text in ("(", "{", "[")) - (token.text in (")", "}", "]"))
            if depth < 0:
                return None
            if depth == 0 and token.kind == "differential":
                if not inner:
                    return index
                inner -= 1
            inner += depth == 0 and token.text in _INTEGRALS
        return None

    def _limit(self) -> Node:
        self.expect("_")
        self.expect("{")
        name = self._variable()
        if self.take().text not in ARROWS:
            raise UnreadableError("a limit without an arrow")
        side = self._side()
        point = self.expression()
        self.expect("}")
        return Node("limit", (self._sum(), point), name, value=number(side).value)

    def _variable(self) -> str:
        token = self.take()
        if len(token.text) != 1 and token.text not in GREEK:
            raise UnreadableError(f"{token.text!r} is not a variable")
        return token.text

    def _side(self) -> int:
        """Remove the sign of a one-sided limit, as in `0^+` or `0^{-}`, from the tokens ahead."""
        texts = [token.text for token in self.tokens[self.position :]]
        closing = _closing(texts)
        for sign, side in (("+", 1), ("-", -1)):
            for mark in (["^", sign], ["^", "{", sign, "}"]):
                start = closing - len(mark)
                if start > 0 and texts[start:closing] == mark:
                    del self.tokens[self.position + start : self.position + closing]
                    return side
        return 0

    def series(self, name: str) -> Node:
        """Parse a sum or product: from `_{k=1}^{n}`, or from `_{k\\ge 1}` to infinity."""
        self.expect("_")
        self.expect("{")
        variable = self._variable()
        endless = self.expect("=", "ge", "geq", "geqslant", ">=").text != "="
        first = self.expression()
        self.expect("}")
        if endless:
            return Node(name, (first, INFINITY, self._product()), variable)
        self.expect("^")
        last = self._signed_argument()
        return Node(name, (first, last, self._product()), variable)

    def derivative(self) -> Node | None:
        """Parse after `\\frac`, from `{d^n}{dx^n}`, with the product it applies to; None if the
        fraction is another one."""
        ahead = self.tokens[self.position : self.position + _MAX_OPERATOR]
        match = _OPERATOR.match("".join(f"{token.text} " for token in ahead))
        if match is None:
            return None
        names: list[str] = []
        for name, power in re.findall(_OPERAND, match[2]):
            names += [name] * int(power or 1)
        if len(names) != int(match[1] or 1) or any(map(_too_long, names)):
            return None
        self.position += match.group().count(" ")
        return Node("derivative", (self._product(), *map(symbol, names)))


def _too_long(name: str) -> bool:
    return len(name) > 1 and name not in GREEK


def _closing(texts: Sequence[str]) -> int:
    """The index of the brace that closes the group around the first text; 0 without one."""
    depth = 0
    for index, text in enumerate(texts):
        depth += (text == "{") - (text == "}")
        if depth < 0:
            return index
    return 0


def _split(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with `dx`, `x dx` and `d \\theta` as differentials."""
    split: list[Token] = []
    for token in tokens:
        match = _DIFFERENTIAL.fullmatch(token.text) if token.kind == "word" else None
        after_d = bool(split) and (split[-1].kind, split[-1].text) == ("word", "d")
        if after_d and (token.text in GREEK or (token.kind == "word" and len(token.text) == 1)):
            split[-1] = Token("differential", token.text)
        elif match is not None:
            split += [replace(token, text=match[1])] if match[1] else []
            split.append(Token("differential", match[2]))
        else:
            split.append(token)
    return split


def _cut(node: Node) -> tuple[Node, list[str]]:
    """The integrand with its differentials replaced by 1, and their names."""
    if node.op == "differential":
        return number(1), [node.name]
    names: list[str] = []
    args: list[Node] = []
    for arg in node.args:
        inner, inner_names = _cut(arg)
        args.append(inner)
        names += inner_names
    return replace(node, args=tuple(args)), names
