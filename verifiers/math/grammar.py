"""Expressions: a recursive descent from tokens to a tree. Nothing is evaluated here."""

from dataclasses import replace
from fractions import Fraction

from verifiers.math.cursor import Cursor
from verifiers.math.names import ASCII_COMMANDS, CALLED, FUNCTIONS, GREEK, OPENERS
from verifiers.math.numerals import ends_in_unit, literal, subscripted
from verifiers.math.tokens import END, Token
from verifiers.math.tree import EMPTY, INFINITY, Node, UnreadableError, number, symbol

MAX_DEPTH = 60


class Expressions(Cursor):
    """Sums, products, powers and what they are made of. Brackets and lists are in `brackets`."""

    def group(self) -> Node:
        """What an opening bracket starts; defined by the class that knows brackets."""
        raise NotImplementedError

    def command(self, name: str) -> Node:
        """What a command such as `\\frac` starts; defined by the class that knows commands."""
        raise NotImplementedError

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH}")
        found = self._sum()
        while self.sees("cup", "cap", "setminus", "backslash"):
            sign = self.take().text
            op = {"cup": "union", "cap": "intersection"}.get(sign, "difference")
            found = Node(op, (found, self._sum()))
        self.depth -= 1
        return found

    def _sum(self) -> Node:
        found = self._signed()
        while True:
            if self.accept("+"):
                found = Node("add", (found, self._signed(inner=True)))
            elif self.accept("-"):
                found = Node("sub", (found, self._signed(inner=True)))
            elif self.sees("pm", "mp"):
                found = Node(self.take().text, (found, self._signed(inner=True)))
            else:
                return found

    def _signed(self, *, inner: bool = False) -> Node:
        if self.accept("-"):
            return Node("neg", (self._signed(inner=True),))
        if self.accept("+"):
            return self._signed(inner=True)
        if not inner and self.sees("pm", "mp"):
            return Node(self.take().text, (number(0), self._product()))
        return self._product()

    def _product(self) -> Node:
        found = self.power()
        while True:
            if self.accept("*", "cdot", "times", "ast"):
                found = Node("mul", (found, self._factor()))
            elif self.accept("/", "div"):
                found = Node("div", (found, self.per(found) or self._factor()))
            elif self._juxtaposed():
                found = self._beside(found)
            else:
                return found

    def _factor(self) -> Node:
        if self.accept("-"):
            return Node("neg", (self.power(),))
        return self._factor() if self.accept("+") else self.power()

    def _beside(self, left: Node) -> Node:
        """What stands beside `left` without a sign between: a factor, or a second quantity."""
        if self.next.kind == "num":
            if not ends_in_unit(left):
                raise UnreadableError("two numbers side by side")
            right = self._product()
            if not ends_in_unit(right):
                raise UnreadableError("a number after a unit")
            return Node("add", (left, right))
        if self.next.kind == "word" and (found := self.noun(left)) is not None:
            return found
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

    bars_open = True  # a bar opens an absolute value here; inside one, and in a set, it does not

    def joins(self, token: Token) -> bool:
        """Whether a word goes on with the product; defined by the class that knows words."""
        raise NotImplementedError

    def per(self, left: Node) -> Node | None:
        """The unit that `left` is divided by; defined by the class that knows words."""
        raise NotImplementedError

    def noun(self, left: Node) -> Node | None:
        """`left` with the unit that follows it; defined by the class that knows words."""
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
        return Node("pow", (base, exponent))

    def _degree(self) -> bool:
        braced = self.sees("{") and self.peek().text in ("circ", "degree")
        if braced and self.peek(2).text == "}":
            self.at += 3
            return True
        return self.accept("circ", "degree")

    def _scale(self) -> str:
        """Celsius and Fahrenheit are no angles."""
        token = self.next
        if token.kind == "word" and token.text.lower() in ("c", "f", "celsius", "fahrenheit"):
            self.at += 1
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
            found = self.expression()
            self.expect("}")
            return found
        return self.atom()

    def digit(self) -> Node:
        """One braced group or one digit, as after `\\frac`: `\\frac12` is a half."""
        token = self.next
        if token.kind != "num" or len(token.text) == 1:
            return self.argument()
        self.found[self.at] = Token("num", token.text[1:])
        return number(int(token.text[0])) if token.text[0] != "." else self.argument()

    def applied(self, node: Node) -> Node:
        """A letter applied to what stands in brackets; defined by the class that knows commands."""
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
            elif self.accept("$"):
                base = Node("mul", (base, Node("unit", name="dollar")))
            elif self.accept("euro", "pounds", "cents"):
                base = Node(
                    "mul", (base, Node("unit", name=CURRENCY[self.found[self.at - 1].text]))
                )
            else:
                return base

    def argument_text(self) -> str:
        """The tokens of a subscript as text."""
        if not self.accept("{"):
            return self.take().text
        said: list[str] = []
        while not self.accept("}"):
            token = self.take()
            if token is END or token.text == "{":
                raise UnreadableError("an odd subscript")
            said.append(token.text)
        return "".join(said)

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
        if name == "infty":
            return INFINITY
        if name in ("emptyset", "varnothing"):
            return EMPTY
        return self.command(name)

    def word(self, token: Token) -> Node:
        """What a run of letters means; the classes above know functions and units."""
        if len(token.text) == 1:
            return symbol(token.text)
        lowered = token.text.lower()
        if lowered in ASCII_COMMANDS:
            return self._named(ASCII_COMMANDS[lowered])
        if lowered in FUNCTIONS:
            return self.command(lowered)
        if len(token.text) <= 3 and not token.prose:
            self.found[self.at : self.at] = [Token("word", letter) for letter in token.text[1:]]
            return symbol(token.text[0])
        raise UnreadableError(f"{token.text!r} is no mathematics")

    def _number(self) -> Node:
        token = self.take()
        node = literal(token.text)
        if node.places is None and (part := self._proper_part()):
            return Node("mixed", (node, part))
        return node

    def _proper_part(self) -> Node | None:
        """The fraction of a mixed number: 5 5/8, 2\\frac{1}{3}; None when none follows."""
        start, saved = self.at, list(self.found)
        if self.next.kind == "num" and self.next.spaced and self.peek().text == "/":
            over, under = self.next.text, self.peek(2).text
            self.at += 3
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
        self.at, self.found = start, saved
        return None


CURRENCY = {"euro": "euro", "pounds": "GBP", "cents": "cent"}
