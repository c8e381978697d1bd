"""Whole answers: units and nouns after values, relations between sides, lists of relations."""

from fractions import Fraction

from veriloop.verifiers.math.commands import Commands
from veriloop.verifiers.math.foreign import is_noun
from veriloop.verifiers.math.grammar import ends_in_unit
from veriloop.verifiers.math.names import (
    ALSO,
    ANNOUNCING,
    APPLIED,
    ARROWS,
    DENIED,
    EITHER,
    IGNORED,
    LEADING,
    RELATIONS,
)
from veriloop.verifiers.math.notation import canonical
from veriloop.verifiers.math.tokens import Comma, Token, tokens
from veriloop.verifiers.math.tree import Chain, Form, Node, UnreadableError, contains, number
from veriloop.verifiers.math.units import (
    BARE_LETTERS,
    CURRENCY_CODES,
    SCIENTIFIC,
    SPACED_LETTERS,
    SPACED_PAIRS,
    UNITS,
)
from veriloop.verifiers.math.wording import LAST_MULTIPLIERS, MULTIPLIERS, number_words

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_PER_SECOND = Node("div", (Node("unit", name="m"), Node("unit", name="s")))  # ms^{-1}
MAX_PARTS = 200
_SIGNS = {"negative": "-", "minus": "-", "positive": "+", "plus": "+"}
_CASE_WORDS = frozenset({"if", "for", "when", "where", "otherwise", "else", "elsewhere"})
_LINES = frozenset({"aligned", "align", "align*", "gathered", "split", "alignedat"})


class Statements(Commands):
    """The whole grammar.

    `unit_letters` controls whether a single letter after a number may be a unit. 0: it is a symbol;
    1: it is a unit after a space if a unit has that name; 2: also without a space.
    """

    unit_letters = 0

    def joins(self, token: Token) -> bool:
        if self.in_cases and token.text in _CASE_WORDS:
            return False
        if token.text in ALSO | EITHER or token.text in ("equals", "mod", "U", "to"):
            return False
        if self._denies(token):
            raise UnreadableError(f"{token.text!r} cannot be part of an answer")
        return True

    def _denies(self, token: Token) -> bool:
        """Whether the word denies, or describes; Be in A + Be^x is a product."""
        at = self.position + (self.next is token)
        raised = self.tokens[at].text == "^" and not token.prose and not token.text.islower()
        return token.text.lower() in DENIED and len(token.text) > 1 and not raised

    def noun(self, left: Node) -> Node | None:
        token = self.next
        word = token.text.lower()
        if word in IGNORED:
            self.take()
            return left
        if (unit := self._greek_unit(left)) is not None or token.kind == "cmd":
            return unit
        if not word.isascii():
            return self._foreign(left)
        if word in APPLIED or (word == "times" and self._number_follows()):
            raise UnreadableError(f"{token.text!r} names an operation")
        if scale := self._multiplier():
            self.take()
            return Node("mul", (left, number(scale)))
        if word in ("percent", "pct", "percents"):
            self.take()
            return Node("percent", (left,))
        if word == "per":
            self.take()
            if self.next.text == "cent":
                self.take()
                return Node("percent", (left,))
            return Node("div", (left, self._unit()))
        if word in _POWERS or self._is_unit(token) or self._is_spaced_pair(left):
            return Node("mul", (left, self._unit()))
        return None

    def _number_follows(self) -> bool:
        after = self.peek()
        return after.kind == "num" or number_words(after.text) is not None

    def _greek_unit(self, left: Node) -> Node | None:
        """A unit with an Omega or a mu after a number, where letters may be units."""
        if not self.unit_letters or contains(left, "sym"):
            return None
        token, after = self.next, self.peek()
        name = "ohm"
        if not self.sees("Omega"):
            if not self.sees("mu") and not (after.kind == "cmd" and after.text == "Omega"):
                return None
            prefix = "u" if self.sees("mu") else token.text
            name = prefix + ("ohm" if after.text == "Omega" else after.text)
            prose = token.prose or after.prose
            apart = prose or self.unit_letters > 1 or (token.spaced and prefix != "u")
            if name not in SCIENTIFIC or not apart or self._multiplied(self.peek(2)):
                return None
            self.take()
        self.tokens[self.position] = Token("word", name, token.spaced, prose=True)
        return Node("mul", (left, self._unit()))

    def _multiplied(self, token: Token) -> bool:
        """Whether a letter, a bracket or a command continues a product such as \\mu m g."""
        letter = token.kind == "word" and len(token.text) == 1 and not token.prose
        return letter or token.kind in ("num", "cmd") or token.text in ("(", "{")

    def _is_spaced_pair(self, left: Node) -> bool:
        """Whether two letters after a number and a space are a unit, where letters may be units."""
        text = self.next.text
        pair = text in SPACED_PAIRS or (self.unit_letters > 1 and text in SCIENTIFIC)
        return bool(self.unit_letters and pair and self.next.spaced and not contains(left, "sym"))

    def _foreign(self, left: Node) -> Node:
        """A noun of another language after a number."""
        if contains(left, "sym") or not is_noun(self.next.text, spaced=self.next.spaced):
            raise UnreadableError(f"{self.next.text!r} cannot be part of an answer")
        return Node("mul", (left, self._unit()))

    def _multiplier(self) -> Fraction | None:
        """The factor that the next word stands for: a million, a half."""
        after = self.peek(2 if self.peek().text == "-" else 1)
        word, more = self.next.text.lower(), after.kind == "word"
        return MULTIPLIERS.get(word) or (None if more else LAST_MULTIPLIERS.get(word))

    def per(self, left: Node) -> Node | None:
        token = self.next
        scientific = token.text in SCIENTIFIC and (token.prose or len(token.text) > 2)
        known = token.kind == "word" and (token.text in UNITS or scientific)
        return self._unit() if known and ends_in_unit(left) else None

    def _is_unit(self, token: Token) -> bool:
        if len(token.text) == 1:
            known = token.text in UNITS
            bare = self.unit_letters > 1 - token.spaced and token.text in BARE_LETTERS
            prose = token.prose and (token.spaced or token.text not in SPACED_LETTERS)
            return known and (prose or bare)
        if token.text in UNITS or token.prose:
            return True
        return len(token.text) > 3 or (token.spaced and len(token.text) == 3)

    def _unit(self) -> Node:
        token = self.take()
        if token.kind != "word":
            raise UnreadableError("a unit has no name")
        exponent = 1
        if token.text.lower() in _POWERS:
            exponent = _POWERS[token.text.lower()]
            token = self.take()
            if token.kind != "word":
                raise UnreadableError("a unit has no name")
        self.joins(token)
        name = token.text
        if name in ("degree", "degrees") and self.next.text.lower() in ("celsius", "fahrenheit"):
            name = self.take().text.lower()
        elif self.next.text in ("squared", "cubed"):
            exponent = _POWERS[self.take().text]
        node = Node("unit", name=name)
        if self.accept("^", "**"):
            power = Node("pow", (node, self._signed_argument()))
            return _PER_SECOND if name == "ms" and power.args[1].op == "neg" else power
        return node if exponent == 1 else Node("pow", (node, number(exponent)))

    def word(self, token: Token) -> Node:
        if self._denies(token):
            raise UnreadableError(f"{token.text!r} cannot be part of an answer")
        if not token.text.isascii():
            raise UnreadableError(f"{token.text!r} is no symbol")
        letter = self.unit_letters > 1 and token.text in BARE_LETTERS
        # The numerator or denominator of a fraction of units.
        in_fraction = self.position >= 2 and self.tokens[self.position - 2].text in (
            "/",
            "{",
            "cdot",
            "*",
        )
        known = token.text in UNITS or token.text in SCIENTIFIC
        unit = known and token.text not in SPACED_LETTERS
        if letter or (token.prose and unit and in_fraction):
            return Node("unit", name=token.text)
        return super().word(token)

    def whole(self) -> Form:
        """The form of the whole text, without words that announce it."""
        while self.next.kind == "word" and self.next.text.lower() in ANNOUNCING:
            self.take()
        self.accept("=")
        if self.position:
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

    def case_condition(self) -> Form:
        while self.next.kind == "word" and self.next.text in _CASE_WORDS:
            self.take()
        parts = [self.chain()]
        joins: list[str] = []
        while self.next.text in ALSO | EITHER or (self.sees(",") and self._goes_on()):
            joins.append(self._join())
            parts.append(self.chain())
        return Form(tuple(parts), tuple(joins))

    def _goes_on(self) -> bool:
        """Whether a further condition follows the comma, not the end of the case."""
        return self.peek().text not in ("\\", "end:cases")

    def _join(self) -> str:
        token = self.take()
        if token.text in ALSO:
            return "and"
        if token.text in EITHER:
            return "or"
        if token.text not in (",", ";", "\\"):
            raise UnreadableError(f"{token.text!r} is not a separator")
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
            raise UnreadableError("a negated relation is not an answer")
        if token.text in RELATIONS and (token.kind != "word" or token.text == "equals"):
            self.take()
            return RELATIONS[token.text]
        if token.text in ARROWS:
            raise UnreadableError("an arrow is not part of an answer")
        return None

    def side(self) -> Node:
        while self.next.kind == "word" and self.next.text.lower() in LEADING:
            self.take()
        sign = _SIGNS.get(self.next.text.lower()) if self.next.kind == "word" else None
        if sign:
            self.tokens[self.position] = Token("op", sign)
        self.accept("approx", "simeq", "sim")  # a leading approximation sign has no effect
        currency = self._currency()
        node = self.expression()
        if currency:
            node = Node("mul", (node, Node("unit", name=currency)))
        is_to = self.next.kind == "word" and self.next.text == "to"  # a ratio such as 2 to 3
        if is_to or self.accept(":"):
            self.position += is_to
            items = [node, self.expression()]
            while self.accept(":"):
                items.append(self.expression())
            return Node("ratio", tuple(items))
        return self._modulus(node)

    def _currency(self) -> str:
        """The currency that stands before a number, as in USD 5; "" without one."""
        if self.next.text not in CURRENCY_CODES or self.peek().kind != "num":
            return ""
        return self.take().text.replace("Rs", "rupee")

    def _modulus(self, node: Node) -> Node:
        token = self.next
        bracket = token.text == "(" and self.peek().text in ("mod", "bmod")
        if not (bracket or token.text in ("pmod", "bmod", "mod")):
            return node
        self.position += 2 if bracket else 1
        modulus = self.argument()
        if bracket:
            self.expect(")")
        return Node("mod", (node, modulus), "bmod" if token.text == "bmod" else "")


def read(text: str, *, comma: Comma = "thousands", unit_letters: int = 0) -> Form:
    """Parse an answer without Unicode glyphs. Raises UnreadableError if the grammar fails."""
    token_list = _unwrapped(_with_unions(_lines(tokens(canonical(text), comma))))
    reader = Statements(token_list)
    reader.unit_letters = unit_letters
    form = reader.whole()
    if reader.next.kind != "end":
        raise UnreadableError(f"{reader.next.text!r} is unexpected")
    return form


def _lines(token_list: list[Token]) -> list[Token]:
    """A system of equations, one a line, as a list of equations.

    A brace before an array without a closing brace is `cases`.
    """
    texts = [token.text for token in token_list]
    if not any(text.startswith("begin:") for text in texts):
        return token_list
    if texts[:2] == ["lbrace", "begin:array"] and texts[-1] == "end:array":
        token_list = [Token("cmd", "begin:cases"), *token_list[2:-1], Token("cmd", "end:cases")]
        texts = [token.text for token in token_list]
    name = texts[0].removeprefix("begin:")
    if not (name == "cases" or name in _LINES) or texts[-1] != f"end:{name}":
        return token_list
    inside = token_list[1:-1]
    relations = [_has_relation(line) for line in _split(inside)]
    if name == "cases" and not all(relations):
        return token_list
    lines = [token for token in inside if token.text != "&"]
    return lines[:-1] if lines and lines[-1].text == "\\" else lines


def _split(token_list: list[Token]) -> list[list[Token]]:
    """The lines of an environment."""
    lines: list[list[Token]] = [[]]
    for token in token_list:
        if token.text == "\\":
            lines.append([])
        else:
            lines[-1].append(token)
    return [line for line in lines if line]


def _has_relation(line: list[Token]) -> bool:
    """Whether a line is an equation, not a value and its condition."""
    texts = [token.text for token in line]
    cell = texts[: texts.index("&")] if "&" in texts else texts
    words = any(text in _CASE_WORDS for text in texts)
    relation = any(text in RELATIONS for text in cell) or texts[-1:] == ["&"]
    aligned = "&" in texts and texts[texts.index("&") + 1 :][:1] == ["="]
    return (relation or aligned) and not words


def _with_unions(token_list: list[Token]) -> list[Token]:
    """Replace a capital U between two brackets by a union."""
    for index in range(1, len(token_list) - 1):
        before, token, after = token_list[index - 1 : index + 2]
        closes, opens = before.text in (")", "]", "rbrace"), after.text in ("(", "[", "lbrace")
        if token.text == "U" and closes and opens:
            token_list[index] = Token("cmd", "cup")
    return token_list


def _unwrapped(token_list: list[Token]) -> list[Token]:
    """Remove brackets around a list of equations, (x=1, y=2), and a closing period."""
    if token_list and token_list[-1].text == ".":
        token_list = token_list[:-1]
    pairs = {"(": ")", "lbrace": "rbrace"}
    inside = token_list[1:-1]
    wrapped = (
        token_list and pairs.get(token_list[0].text) == token_list[-1].text and len(inside) > 2
    )
    if wrapped and any(token.text == "=" for token in inside):
        depth = 0
        for token in inside:
            depth += (token.text in ("(", "lbrace", "[")) - (token.text in (")", "rbrace", "]"))
            if depth < 0:
                return token_list
        builder = any(token.text in ("|", "mid", ":") for token in inside)
        return token_list if builder else inside
    return token_list
