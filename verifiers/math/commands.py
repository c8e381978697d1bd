"""Commands and brackets: fractions, roots, functions, sums, matrices, sets and intervals."""

from veriloop.verifiers.math.calculus import Calculus
from veriloop.verifiers.math.grammar import CURRENCIES
from veriloop.verifiers.math.names import (
    ARITIES,
    BINOMIALS,
    FIGURES,
    FRACTIONS,
    OF_SETS,
    OPAQUE,
    RELATIONS,
    RENAMED,
    UNKNOWN_FUNCTIONS,
)
from veriloop.verifiers.math.tokens import END
from veriloop.verifiers.math.tree import (
    EMPTY,
    Form,
    Node,
    UnreadableError,
    number,
    symbol,
    symbols,
)

MAX_CASES = 20
_BARS = {"lvert": "rvert", "lVert": "rVert", "vert": "vert", "lfloor": "rfloor", "lceil": "rceil"}
_ACCENTS = frozenset({"vec", "hat", "bar", "overrightarrow", "dot", "tilde", "widehat", "overline"})
_CLOSERS = {"(": (")", "]", "["), "[": ("]", ")", "["), "]": ("[", "]", ")"),
            "langle": ("rangle",)}  # fmt: skip
_PREFIXES = {sign: unit for sign, unit in CURRENCIES.items() if sign != "cents"}  # of a number
_MARKS = {"(": "(", "[": "[", "]": "(", "langle": "<"}
_END_MARKS = {")": ")", "]": "]", "[": ")", "rangle": ">"}


class Commands(Calculus):
    """Adds brackets (groups, absolute values, tuples, intervals, sets, matrices) and commands."""

    in_cases = False  # whether "if" and "otherwise" separate a value from its condition
    chose = False  # whether the last separator in `_items` was \\choose

    def condition(self) -> Form:
        """The condition of a set-builder; defined in `Statements`."""
        raise NotImplementedError

    def case_condition(self) -> Form:
        """The condition of a case; defined in `Statements`."""
        raise NotImplementedError

    def group(self) -> Node:
        token = self.take()
        if token.text == "{":
            return self._braced()
        if token.text == "|":
            return self._between("|", "abs")
        return self._listed(token.text)

    def _between(self, closer: str, function: str) -> Node:
        before, self.bars_open = self.bars_open, closer != "|"
        node = self.expression()
        self.bars_open = before
        self.expect(closer)
        return Node("call", (node,), function)

    def _braced(self) -> Node:
        """A LaTeX group; with commas in it, a set written without backslashes."""
        if self.accept("}"):
            raise UnreadableError("an empty group")
        items = self._items("choose")
        if len(items) == 2 and self.tokens[self.position].text == "}" and self.chose:
            self.chose = False
            self.take()
            return Node("call", tuple(items), "binom")
        self.expect("}")
        return items[0] if len(items) == 1 else Node("set", tuple(items))

    def _items(self, *between: str) -> list[Node]:
        items = [self.expression()]
        while self.sees(",", ";", *between):
            self.chose = self.take().text == "choose"
            items.append(self.expression())
        return items

    def _listed(self, opener: str) -> Node:
        before, self.bars_open = self.bars_open, True
        items = self._items()
        self.bars_open = before
        closer = self.expect(*_CLOSERS[opener]).text
        brackets = _MARKS[opener] + _END_MARKS[closer]
        if len(items) == 1 and opener != "langle":
            if (opener, closer) not in (("(", ")"), ("[", "]")):
                raise UnreadableError("brackets that do not match")
            return items[0]
        return Node("seq", tuple(items), brackets)

    def set_braces(self) -> Node:
        if self.accept("rbrace"):
            return EMPTY
        before, self.bars_open = self.bars_open, False
        first = self.expression()
        if self.accept("in"):
            self.expression()
        if self.accept("|", "mid", "vert", ":", "colon"):
            self.bars_open = True
            node = Node("builder", (first,), form=self.condition())
        else:
            items = [first]
            while self.accept(",", ";"):
                items.append(self.expression())
            node = Node("set", tuple(items))
        self.bars_open = before
        self.expect("rbrace")
        return node

    def matrix(self, environment: str) -> Node:
        rows: list[Node] = []
        cells: list[Node] = []
        while True:
            cells.append(self.expression())
            if self.accept("&"):
                continue
            rows.append(Node("row", tuple(cells)))
            cells = []
            broken = self.accept("\\")
            if self.accept(f"end:{environment}"):
                return Node("matrix", tuple(rows))
            if not broken:
                raise UnreadableError("a matrix is not closed")

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            return self.derivative() or Node("div", (self.digit(), self.digit()))
        if name in BINOMIALS:
            return self._binomial()
        if name == "lbrace":
            return self.set_braces()
        if name == "langle":
            return self._listed("langle")
        if name in _BARS:
            kind = {"lfloor": "floor", "lceil": "ceil"}.get(name, "abs")
            return self._between(_BARS[name], kind)
        if name.startswith("begin:"):
            return self._environment(name.removeprefix("begin:"))
        return self._function(RENAMED.get(name, name))

    def _environment(self, name: str) -> Node:
        if name == "cases":
            return self._cases()
        if not name.endswith("matrix") and name != "array":
            raise UnreadableError(f"unknown environment {name}")
        node = self.matrix(name)
        return Node("determinant", (node,)) if name == "vmatrix" else node

    def _cases(self) -> Node:
        """A function defined by cases; a case without a condition holds otherwise."""
        pieces: list[Node] = []
        outer, self.in_cases = self.in_cases, True
        while not self.accept("end:cases"):
            value = self.expression()
            self._skip(",", "&")
            pieces.append(Node("piece", (value,), form=self._case_condition()))
            self._skip(".", ",", ";")
            self.accept("\\")
            if len(pieces) > MAX_CASES:
                raise UnreadableError(f"more than {MAX_CASES} cases")
        self.in_cases = outer
        if not pieces or not all(piece.form for piece in pieces[:-1] or pieces):
            raise UnreadableError("a case without a condition before the last")
        return Node("cases", tuple(pieces))

    def _case_condition(self) -> Form | None:
        """The condition after a value; None for "otherwise" and without one."""
        if self.next.kind == "word" and self.next.text in ("otherwise", "else", "elsewhere"):
            self.take()
            return None
        return None if self.sees("\\", "end:cases") else self.case_condition()

    def _skip(self, *signs: str) -> None:
        while self.accept(*signs):
            pass

    def _binomial(self) -> Node:
        if self.accept("("):
            return self._called("binom")
        return Node("call", (self.digit(), self.digit()), "binom")

    def _function(self, name: str) -> Node:
        if name in ("sqrt", "surd", "cbrt", "cubesurd"):
            return self._root(name)
        if name in ("sum", "prod"):
            return self.series(name)
        if name in OPAQUE:
            return self.calculus(name) or self._opaque(name)
        if name in _ACCENTS:
            return _numeral(self.argument()) if name == "overline" else self.argument()
        if name in FIGURES:
            return self._figure(name)
        if name in _PREFIXES:
            return Node("mul", (self.power(), Node("unit", name=_PREFIXES[name])))
        return self._applied(name)

    def _figure(self, name: str) -> Node:
        """The name of an angle, a triangle or an arc: \\angle ABC is \\angle CBA."""
        letters = ""
        while self.next.kind == "word" and self.next.text.isupper() and not self.next.prose:
            letters += self.take().text
        if not letters:
            raise UnreadableError(f"{name} without letters")
        turned = min(letters, letters[::-1]) if name != "triangle" else "".join(sorted(letters))
        return symbol(f"{name} {turned}")

    def _root(self, name: str) -> Node:
        degree = number(3 if name in ("cbrt", "cubesurd") else 2)
        if self.accept("["):
            degree = self.expression()
            self.expect("]")
        return Node("root", (self.argument(), degree))

    def _applied(self, name: str) -> Node:
        """A named function with its index and power: \\log_2 x, \\sin^2 x, \\cos^{-1} x."""
        index = None
        if self.accept("_"):
            index = self.argument() if self.sees("{") else self.digit()
        exponent = self._signed_argument() if self.accept("^", "**") else None
        if exponent is not None and exponent == Node("neg", (number(1),)):
            name, exponent = f"arc{name}", None
        if name in OF_SETS and self.accept("lbrace"):
            return self._called(name, "rbrace")
        node = self._called(name) if self.accept("(") else self._bare(name)
        if index is not None:
            if name != "log":
                raise UnreadableError(f"an index on {name}")
            node = Node("call", (*node.args, index), name)
        return node if exponent is None else Node("pow", (node, exponent))

    def _called(self, name: str, closer: str = ")") -> Node:
        items = self._items()
        self.expect(closer)
        return Node("call", tuple(items), name)

    def _bare(self, name: str) -> Node:
        """A function without brackets; its argument ends at the next sign or function."""
        if self.next.kind == "end":
            raise UnreadableError(f"{name} has no argument")
        negative = self.accept("-")
        node = self.power()
        while self._continues():
            node = Node("mul", (node, self.power()))
        return Node("call", (Node("neg", (node,)) if negative else node,), name)

    def _continues(self) -> bool:
        token = self.next
        if token.kind == "word":
            return len(token.text) == 1 and not token.prose and not token.spaced
        if token.kind == "cmd":
            return token.text in ("pi", "theta", "alpha", "beta", "phi", "sqrt", "frac")
        return False

    def _opaque(self, name: str) -> Node:
        """A sum, integral or limit that is not evaluated: all up to the next relation, as text."""
        texts = [name]
        depth = 0
        while self.next is not END:
            token = self.next
            if not depth and (token.text in RELATIONS or token.text in (",", ";")):
                break
            depth += (token.text in "({[") - (token.text in ")}]")
            if depth < 0:
                break
            texts.append(self.take().text)
        return Node("opaque", name=" ".join(texts))

    def applied(self, node: Node) -> Node:
        """A letter that usually denotes a function, applied to an argument in brackets."""
        name = node.name.rstrip("'").partition("_")[0]
        called = name in UNKNOWN_FUNCTIONS
        if name == "B" and self.tokens[self.position - 1].prose:
            name = "beta"
        if name not in ARITIES or not self.sees("("):
            return self._called(node.name) if called and self.accept("(") else node
        start = self.position
        self.take()
        items = self._items()
        repeated = any(node.name in symbols(item) for item in items)
        if len(items) == ARITIES[name] and not repeated and self.accept(")"):
            return Node("call", tuple(items), "binom" if name == "C" else name)
        self.position = start
        return node


def _numeral(node: Node) -> Node:
    """The number with the digits a, b, c of \\overline{abc} as one symbol; else `node`."""
    letters: list[str] = []
    rest = node
    while rest.op == "mul" and rest.args[1].op == "sym":
        letters.insert(0, rest.args[1].name)
        rest = rest.args[0]
    digits = [rest.name, *letters] if rest.op == "sym" else []
    lower = len(digits) > 1 and all(len(name) == 1 and name.islower() for name in digits)
    return symbol(f"overline {''.join(digits)}") if lower else node
