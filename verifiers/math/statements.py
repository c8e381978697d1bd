"""Whole answers: units and nouns after values, relations between sides, lists of relations."""

from verifiers.math.commands import Commands
from verifiers.math.names import (
    ALSO,
    ANNOUNCING,
    ARROWS,
    DENIED,
    EITHER,
    IGNORED,
    LEADING,
    RELATIONS,
)
from verifiers.math.numerals import ends_in_unit
from verifiers.math.tokens import Comma, Token, tokens
from verifiers.math.tree import Chain, Form, Node, UnreadableError, number
from verifiers.math.units import BARE_LETTERS, UNITS
from verifiers.math.wording import SCALES

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_STOPS = ALSO | EITHER | DENIED | {"equals", "mod"}
_PER_SECOND = Node("div", (Node("unit", name="m"), Node("unit", name="s")))  # ms^{-1} in print
MAX_PARTS = 200


class Statements(Commands):
    """The whole grammar. `unit_letters`: whether a bare letter after a number may be a unit.

    0: it is a symbol; 1: after a space it is a unit where one has that name; 2: always.
    """

    unit_letters = 0

    def joins(self, token: Token) -> bool:
        if token.text in ALSO | EITHER or token.text in ("equals", "mod", "U", "to"):
            return False
        if token.text.lower() in DENIED and len(token.text) > 1:
            raise UnreadableError(f"{token.text!r} is no part of an answer")
        return True

    def noun(self, left: Node) -> Node | None:
        token = self.next
        word = token.text.lower()
        if word in IGNORED:
            self.take()
            return left
        if word in SCALES or word == "dozen":
            self.take()
            return Node("mul", (left, number(SCALES.get(word, 12))))
        if word in ("percent", "pct", "percents"):
            self.take()
            return Node("percent", (left,))
        if word == "per":
            self.take()
            if self.next.text == "cent":
                self.take()
                return Node("percent", (left,))
            return Node("div", (left, self._unit()))
        if word in _POWERS or self._is_unit(token):
            return Node("mul", (left, self._unit()))
        return None

    def per(self, left: Node) -> Node | None:
        known = self.next.kind == "word" and self.next.text in UNITS
        return self._unit() if known and ends_in_unit(left) else None

    def _is_unit(self, token: Token) -> bool:
        if len(token.text) == 1:
            known = token.text in UNITS
            bare = self.unit_letters > 1 - token.spaced and token.text in BARE_LETTERS
            return known and (token.prose or bare)
        if token.text in UNITS or token.prose:
            return True
        return len(token.text) > 3 or (token.spaced and len(token.text) == 3)

    def _unit(self) -> Node:
        token = self.take()
        if token.kind != "word":
            raise UnreadableError("a unit without its name")
        exponent = 1
        if token.text.lower() in _POWERS:
            exponent = _POWERS[token.text.lower()]
            token = self.take()
            if token.kind != "word":
                raise UnreadableError("a unit without its name")
        self.joins(token)
        name = token.text
        if name in ("degree", "degrees") and self.next.text.lower() in ("celsius", "fahrenheit"):
            name = self.take().text.lower()
        elif self.next.text in ("squared", "cubed"):
            exponent = _POWERS[self.take().text]
        found = Node("unit", name=name)
        if self.accept("^", "**"):
            power = Node("pow", (found, self._signed_argument()))
            return _PER_SECOND if name == "ms" and power.args[1].op == "neg" else power
        return found if exponent == 1 else Node("pow", (found, number(exponent)))

    def word(self, token: Token) -> Node:
        if token.text.lower() in DENIED and len(token.text) > 1:
            raise UnreadableError(f"{token.text!r} is no part of an answer")
        letter = self.unit_letters > 1 and token.text in BARE_LETTERS
        if letter or (token.prose and token.text in UNITS and self._after_slash()):
            return Node("unit", name=token.text)
        return super().word(token)

    def _after_slash(self) -> bool:
        """Whether this is the numerator or the denominator of a fraction of units."""
        return self.at >= 2 and self.found[self.at - 2].text in ("/", "{", "cdot", "*")

    def whole(self) -> Form:
        """All of the text: a form, after a few words that announce it."""
        while self.next.kind == "word" and self.next.text.lower() in ANNOUNCING:
            self.take()
        self.accept("=")
        if self.at:
            self.accept(":", "=")
        return self.form()

    def form(self) -> Form:
        parts = [self.chain()]
        joins: list[str] = []
        while not self.sees("rbrace") and self.next.kind != "end":
            joins.append(self._join())
            if self.next.kind == "end" and joins[-1] == ",":
                joins.pop()
                break
            parts.append(self.chain())
            if len(parts) > MAX_PARTS:
                raise UnreadableError(f"more than {MAX_PARTS} parts")
        return Form(tuple(parts), tuple(joins))

    condition = form

    def _join(self) -> str:
        token = self.take()
        if token.text in ALSO:
            return "and"
        if token.text in EITHER:
            return "or"
        if token.text not in (",", ";", "\\"):
            raise UnreadableError(f"{token.text!r} joins nothing")
        if self.next.text in ALSO | EITHER:
            return self._join()
        return ","

    def chain(self) -> Chain:
        sides = [self.side()]
        ops: list[str] = []
        while (op := self._relation()) is not None:
            ops.append(op)
            sides.append(self.side())
        return Chain(tuple(sides), tuple(ops))

    def _relation(self) -> str | None:
        token = self.next
        if token.text == "not" and token.kind == "cmd":
            self.take()
            if self.accept("="):
                return "!="
            raise UnreadableError("a denial is no answer")
        if token.text in RELATIONS and (token.kind != "word" or token.text == "equals"):
            self.take()
            return RELATIONS[token.text]
        if token.text in ARROWS:
            raise UnreadableError("an arrow is no answer")
        return None

    def side(self) -> Node:
        while self.next.kind == "word" and self.next.text.lower() in LEADING:
            self.take()
        self._approximate()
        found = self.expression()
        if self.accept(":") or self._to():
            items = [found, self.expression()]
            while self.accept(":"):
                items.append(self.expression())
            return Node("ratio", tuple(items))
        return self._modulus(found)

    def _to(self) -> bool:
        """The word of a ratio, 2 to 3."""
        found = self.next.kind == "word" and self.next.text == "to"
        self.at += found
        return found

    def _approximate(self) -> None:
        """A leading sign that says "about" is left out; the number after it is what counts."""
        self.accept("approx", "simeq", "sim")

    def _modulus(self, found: Node) -> Node:
        token = self.next
        bracket = token.text == "(" and self.peek().text in ("mod", "bmod")
        if not (bracket or token.text in ("pmod", "bmod", "mod")):
            return found
        self.at += 2 if bracket else 1
        modulus = self.argument()
        if bracket:
            self.expect(")")
        return Node("mod", (found, modulus))


def read(text: str, *, comma: Comma = "thousands", unit_letters: int = 0) -> Form:
    """The form of a glyph-free answer. Raises UnreadableError when the grammar has no reading."""
    found = _unwrapped(_with_unions(tokens(text, comma)))
    reader = Statements(found)
    reader.unit_letters = unit_letters
    form = reader.whole()
    if reader.next.kind != "end":
        raise UnreadableError(f"{reader.next.text!r} is out of place")
    return form


def _with_unions(found: list[Token]) -> list[Token]:
    """A capital U between two brackets is a union."""
    for at in range(1, len(found) - 1):
        around = found[at - 1].text in (")", "]", "rbrace") and found[at + 1].text in (
            "(",
            "[",
            "lbrace",
        )
        if around and found[at].text == "U":
            found[at] = Token("cmd", "cup")
    return found


def _unwrapped(found: list[Token]) -> list[Token]:
    """Brackets around a list of equations, (x=1, y=2), come off; a closing period too."""
    if found and found[-1].text == ".":
        found = found[:-1]
    pairs = {"(": ")", "lbrace": "rbrace"}
    inside = found[1:-1]
    wrapped = found and pairs.get(found[0].text) == found[-1].text and len(inside) > 2
    if wrapped and any(token.text == "=" for token in inside):
        depth = 0
        for token in inside:
            depth += (token.text in ("(", "lbrace", "[")) - (token.text in (")", "rbrace", "]"))
            if depth < 0:
                return found
        builder = any(token.text in ("|", "mid", ":") for token in inside)
        return found if builder else inside
    return found
