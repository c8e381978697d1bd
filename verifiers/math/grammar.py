"""Expressions: a recursive descent parser from tokens to a tree. Nothing is evaluated here."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from veriloop.verifiers.math.names import (
    ASCII_COMMANDS,
    CALLED,
    FUNCTIONS,
    GREEK,
    LETTERS,
    OPENERS,
)
from veriloop.verifiers.math.tokens import END, Token
from veriloop.verifiers.math.tree import (
    EMPTY,
    INFINITY,
    Node,
    UnreadableError,
    number,
    symbol,
    transposed,
)

MAX_DEPTH = 60


class Cursor:
    """A position in a list of tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [*tokens, END]
        self.position = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.next
        self.position += token is not END
        return token

    def sees(self, *texts: str) -> bool:
        return self.next.text in texts and self.next.kind in ("op", "cmd")

    def accept(self, *texts: str) -> bool:
        if not self.sees(*texts):
            return False
        self.position += 1
        return True

    def expect(self, *texts: str) -> Token:
        if not self.sees(*texts):
            raise UnreadableError(f"expected {' or '.join(texts)}, found {self.next.text!r}")
        return self.take()


class Expressions(Cursor):
    """Sums, products, powers and their operands. `commands` adds brackets, lists and commands."""

    def group(self) -> Node:
        """Parse from an opening bracket; defined in `Commands`."""
        raise NotImplementedError

    def command(self, name: str) -> Node:
        """Parse from a command such as `\\frac`; defined in `Commands`."""
        raise NotImplementedError

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
        node = self._sum()
        while self.sees("cup", "cap", "setminus", "backslash"):
            sign = self.take().text
            op = {"cup": "union", "cap": "intersection"}.get(sign, "difference")
            node = Node(op, (node, self._sum()))
        self.depth -= 1
        return node

    def _sum(self) -> Node:
        node = self._signed()
        while True:
            if self.accept("+"):
                node = Node("add", (node, self._signed(inner=True)))
            elif self.accept("-"):
                node = Node("sub", (node, self._signed(inner=True)))
            elif self.sees("pm", "mp"):
                node = Node(self.take().text, (node, self._signed(inner=True)))
            else:
                return node

    def _signed(self, *, inner: bool = False) -> Node:
        if self.accept("-"):
            return Node("neg", (self._signed(inner=True),))
        if self.accept("+"):
            return self._signed(inner=True)
        if not inner and self.sees("pm", "mp"):
            return Node(self.take().text, (number(0), self._product()))
        return self._product()

    def _product(self) -> Node:
        node = self.power()
        while True:
            if self.accept("*", "cdot", "times", "ast"):
                node = Node("mul", (node, self._factor()))
            elif self.accept("/", "div"):
                node = Node("div", (node, self.per(node) or self._factor()))
            elif self._juxtaposed():
                node = self._beside(node)
            else:
                return node

    def _factor(self) -> Node:
        if self.accept("-"):
            return Node("neg", (self.power(),))
        return self._factor() if self.accept("+") else self.power()

    def _beside(self, left: Node) -> Node:
        """Parse what follows `left` without a sign: a factor, or a second quantity."""
        if self.next.kind == "num":
            if _ends_in_factorial(left):
                return Node("mul", (left, self.power()))
            if not ends_in_unit(left):
                raise UnreadableError("two numbers side by side")
            right = self._product()
            if not ends_in_unit(right):
                raise UnreadableError("a number after a unit")
            return Node("add", (left, right))
        named = self.next.kind == "word" or self.sees("Omega", "mu")
        if named and (node := self.noun(left)) is not None:
            return node
        return Node("mul", (left, self.power()))

    def _juxtaposed(self) -> bool:
        token = self.next
        if token.kind == "num":
            return True
        if token.kind == "word":
            return self.joins(token)
        if token.kind == "cmd":
            return token.text in OPENERS or token.text in GREEK or token.text in CALLED
        if token.text == "[":
            return self.peek().kind != "end" and self.peek().text not in ("cup", ",", "or", ")")
        if token.text == "(":
            return self.peek().text not in ("mod", "bmod")
        return token.text == "{" or (token.text == "|" and self.bars_open)

    bars_open = True  # whether a bar opens an absolute value; not inside one or in a set

    def joins(self, token: Token) -> bool:
        """Whether a word continues the product; defined in `Statements`."""
        raise NotImplementedError

    def per(self, left: Node) -> Node | None:
        """The unit that `left` is divided by; defined in `Statements`."""
        raise NotImplementedError

    def noun(self, left: Node) -> Node | None:
        """`left` with the unit that follows it; defined in `Statements`."""
        raise NotImplementedError

    def power(self) -> Node:
        base = self._postfixed(self.atom())
        if not self.accept("^", "**"):
            return base
        return self._postfixed(self._raise(base))

    def _raise(self, base: Node) -> Node:
        if self._degree():
            return Node("mul", (base, Node("unit", name=self._scale())))
        if self.sees("prime") or (self.sees("{") and self.peek().text == "prime"):
            self.argument()
            return replace(base, name=base.name + "'")
        exponent = self._signed_argument()
        while self.accept("^", "**"):
            exponent = Node("pow", (exponent, self._signed_argument()))
        if exponent == symbol("T") and base.op in ("matrix", "seq"):
            return transposed(base)
        return Node("pow", (base, exponent))

    def _degree(self) -> bool:
        braced = self.sees("{") and self.peek().text in ("circ", "degree")
        if braced and self.peek(2).text == "}":
            self.position += 3
            return True
        return self.accept("circ", "degree")

    def _scale(self) -> str:
        """The unit of a degree sign: an angle, or a temperature if C or F follows."""
        token = self.next
        if token.kind == "word" and token.text.lower() in ("c", "f", "celsius", "fahrenheit"):
            self.position += 1
            return "celsius" if token.text.lower().startswith("c") else "fahrenheit"
        return "degree"

    def _signed_argument(self) -> Node:
        if self.accept("-"):
            return Node("neg", (self._signed_argument(),))
        if self.accept("+"):
            return self._signed_argument()
        return self.argument()

    def argument(self) -> Node:
        """One braced group, or one atom, as after `^`."""
        if self.accept("{"):
            node = self.expression()
            self.expect("}")
            return node
        return self.atom()

    def digit(self) -> Node:
        """One braced group or one digit, as after `\\frac`: `\\frac12` is a half."""
        token = self.next
        if token.kind != "num" or len(token.text) == 1:
            return self.argument()
        self.tokens[self.position] = Token("num", token.text[1:])
        return number(int(token.text[0])) if token.text[0] != "." else self.argument()

    def applied(self, node: Node) -> Node:
        """A letter applied to an argument in brackets; defined in `Commands`."""
        raise NotImplementedError

    def _postfixed(self, base: Node) -> Node:
        while True:
            if base.op == "sym" and self.sees("("):
                applied = self.applied(base)
                if applied is base:
                    return base
                base = applied
            elif self.accept("!"):
                twice = self.accept("!")
                base = Node("call", (base,), "doublefactorial" if twice else "factorial")
            elif self.accept("%"):
                base = Node("percent", (base,))
            elif self.sees("'") and base.op in ("sym", "call"):
                self.take()
                base = replace(base, name=base.name + "'")
            elif self.accept("_"):
                base = subscripted(base, self.argument_text())
            elif self.sees(*CURRENCIES):
                base = Node("mul", (base, Node("unit", name=CURRENCIES[self.take().text])))
            else:
                return base

    def argument_text(self) -> str:
        """The tokens of a subscript as text."""
        if not self.accept("{"):
            return self.take().text
        texts: list[str] = []
        while not self.accept("}"):
            token = self.take()
            if token is END or token.text == "{":
                raise UnreadableError("an invalid subscript")
            texts.append(token.text)
        return "".join(texts)

    def atom(self) -> Node:
        token = self.next
        if token.kind == "num":
            return self._number()
        if token.kind == "word":
            self.take()
            return self.word(token)
        if token.kind == "cmd":
            self.take()
            return self._named(token.text)
        if token.text in ("(", "[", "]", "{", "|"):
            return self.group()
        raise UnreadableError(f"an expression cannot start with {token.text or 'nothing'!r}")

    def _named(self, name: str) -> Node:
        if name in GREEK or name.startswith("mathbb:"):
            return symbol(name)
        if name in LETTERS:
            return symbol(LETTERS[name])
        if name == "ldots":
            return Node("dots")
        if name == "infty":
            return INFINITY
        if name in ("emptyset", "varnothing"):
            return EMPTY
        return self.command(name)

    def word(self, token: Token) -> Node:
        """The node of a run of letters; subclasses add functions and units."""
        if len(token.text) == 1:
            return symbol(token.text)
        lowered = token.text.lower()
        if lowered in ASCII_COMMANDS:
            return self._named(ASCII_COMMANDS[lowered])
        if lowered in FUNCTIONS:
            return self.command(lowered)
        if lowered == "constant":
            return symbol("C")
        if len(token.text) <= 3 and not token.prose:
            self.tokens[self.position : self.position] = [
                Token("word", letter) for letter in token.text[1:]
            ]
            return symbol(token.text[0])
        raise UnreadableError(f"{token.text!r} is not mathematics")

    def _number(self) -> Node:
        token = self.take()
        node = literal(token.text)
        if node.places is None and (part := self._proper_part()):
            return Node("mixed", (node, part))
        return node

    def _proper_part(self) -> Node | None:
        """The fraction of a mixed number such as 5 5/8 or 2\\frac{1}{3}; None if none follows."""
        start, saved = self.position, list(self.tokens)
        if self.next.kind == "num" and self.next.spaced and self.peek().text == "/":
            over, under = self.next.text, self.peek(2).text
            self.position += 3
        elif self.next.text in ("frac", "dfrac", "tfrac", "cfrac"):
            self.take()
            parts = self.digit(), self.digit()
            over, under = (str(p.value) if p.op == "num" else "" for p in parts)
        else:
            return None
        if over.isdigit() and under.isdigit() and 0 < int(over) < int(under):
            return number(Fraction(int(over), int(under)))
        if saved[start].kind == "num":
            raise UnreadableError("two numbers side by side")
        self.position, self.tokens = start, saved
        return None


def literal(text: str) -> Node:
    """The node of a number token."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, point, part = mantissa.partition(".")
    value = Fraction(int(whole + part or "0"), 10 ** len(part))
    if not exponent:
        return number(value, len(part) if point and part else None)
    if abs(int(exponent)) > 400:
        raise UnreadableError("an exponent over 400")
    power = int(exponent)
    places = max(len(part) - power, 0) or None
    return number(value * Fraction(10) ** power, places)


def ends_in_unit(node: Node) -> bool:
    """Whether the last factor or summand is a unit."""
    if node.op in ("mul", "div", "add"):
        return ends_in_unit(node.args[-1])
    return node.op == "unit" or (node.op == "pow" and ends_in_unit(node.args[0]))


def _ends_in_factorial(node: Node) -> bool:
    if node.op == "mul":
        return _ends_in_factorial(node.args[-1])
    return node.op == "call" and node.name.endswith("factorial")


def subscripted(base: Node, mark: str) -> Node:
    """A symbol with an index, or a number in another base."""
    if base.op == "sym":
        return replace(base, name=f"{base.name}_{mark}")
    if base.op != "num" or base.places is not None:
        raise UnreadableError("an index on something other than a symbol")
    return Node("based", (base,), name=BASES.get(mark, mark))


CURRENCIES = {
    "$": "dollar", "euro": "euro", "pounds": "GBP", "cents": "cent", "yen": "yen", "rupees": "INR",
}  # fmt: skip
BASES = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip
