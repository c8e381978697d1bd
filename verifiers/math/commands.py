"""Commands and brackets: fractions, roots, functions, sums, matrices, sets and intervals."""

from verifiers.math.grammar import Expressions
from verifiers.math.names import (
    BINOMIALS,
    FRACTIONS,
    OPAQUE,
    RELATIONS,
    RENAMED,
    UNKNOWN_FUNCTIONS,
)
from verifiers.math.tokens import END
from verifiers.math.tree import EMPTY, Form, Node, UnreadableError, number

_BARS = {"lvert": "rvert", "lVert": "rVert", "vert": "vert", "lfloor": "rfloor", "lceil": "rceil"}
_ACCENTS = frozenset({"vec", "hat", "bar", "overrightarrow", "dot", "tilde", "widehat"})
_CLOSERS = {"(": (")", "]", "["), "[": ("]", ")", "["), "]": ("[", "]", ")"),
            "langle": ("rangle",)}  # fmt: skip
_MARKS = {"(": "(", "[": "[", "]": "(", "langle": "<"}
_END_MARKS = {")": ")", "]": "]", "[": ")", "rangle": ">"}


class Bracketed(Expressions):
    """Adds everything that opens and closes."""

    def condition(self) -> Form:
        """The condition of a set-builder; defined by the class that knows relations."""
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
        found = self.expression()
        self.bars_open = before
        self.expect(closer)
        return Node("call", (found,), function)

    def _braced(self) -> Node:
        """A LaTeX group; with commas in it, a set written without backslashes."""
        if self.accept("}"):
            raise UnreadableError("an empty group")
        items = self._items("choose")
        if len(items) == 2 and self.found[self.at].text == "}" and self.chose:
            self.chose = False
            self.take()
            return Node("call", tuple(items), "binom")
        self.expect("}")
        return items[0] if len(items) == 1 else Node("set", tuple(items))

    chose = False

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
            found = Node("builder", (first,), form=self.condition())
        else:
            items = [first]
            while self.accept(",", ";"):
                items.append(self.expression())
            found = Node("set", tuple(items))
        self.bars_open = before
        self.expect("rbrace")
        return found

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
                raise UnreadableError("a matrix without its end")


class Commands(Bracketed):
    """Adds what a backslash, or the name of a function, starts."""

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            return Node("div", (self.digit(), self.digit()))
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
        if not name.endswith("matrix") and name != "array":
            raise UnreadableError(f"nothing reads the environment {name}")
        found = self.matrix(name)
        return Node("determinant", (found,)) if name == "vmatrix" else found

    def _binomial(self) -> Node:
        if self.accept("("):
            return self._called("binom")
        return Node("call", (self.digit(), self.digit()), "binom")

    def _function(self, name: str) -> Node:
        if name in ("sqrt", "surd", "cbrt", "cubesurd"):
            return self._root(name)
        if name in ("sum", "prod"):
            return self._series(name)
        if name in OPAQUE:
            return self._opaque(name)
        if name in _ACCENTS:
            return self.argument()
        if name == "overline":
            return self.argument()
        if name in ("angle", "triangle"):
            raise UnreadableError(f"nothing reads {name}")
        if name == "$":
            return Node("mul", (self.power(), Node("unit", name="dollar")))
        if name in ("euro", "pounds"):
            unit = "euro" if name == "euro" else "GBP"
            return Node("mul", (self.power(), Node("unit", name=unit)))
        return self._applied(name)

    def _root(self, name: str) -> Node:
        degree = number(3 if name in ("cbrt", "cubesurd") else 2)
        if self.accept("["):
            degree = self.expression()
            self.expect("]")
        return Node("root", (self.argument(), degree))

    def _applied(self, name: str) -> Node:
        """A named function with its index and power: \\log_2 x, \\sin^2 x, \\cos^{-1} x."""
        index = self._base() if self.accept("_") else None
        exponent = self._signed_argument() if self.accept("^", "**") else None
        if exponent is not None and exponent == Node("neg", (number(1),)):
            name, exponent = f"arc{name}", None
        found = self._called(name) if self.accept("(") else self._bare(name)
        if index is not None:
            if name != "log":
                raise UnreadableError(f"an index on {name}")
            found = Node("call", (*found.args, index), name)
        return found if exponent is None else Node("pow", (found, exponent))

    def _base(self) -> Node:
        return self.digit() if not self.sees("{") else self.argument()

    def _called(self, name: str) -> Node:
        items = self._items()
        self.expect(")")
        return Node("call", tuple(items), name)

    def _bare(self, name: str) -> Node:
        """An argument without brackets goes on to the next sign or the next function."""
        if self.next.kind == "end":
            raise UnreadableError(f"{name} of nothing")
        negative = self.accept("-")
        found = self.power()
        while self._continues():
            found = Node("mul", (found, self.power()))
        return Node("call", (Node("neg", (found,)) if negative else found,), name)

    def _continues(self) -> bool:
        token = self.next
        if token.kind == "word":
            return len(token.text) == 1 and not token.prose and not token.spaced
        if token.kind == "cmd":
            return token.text in ("pi", "theta", "alpha", "beta", "phi", "sqrt", "frac")
        return False

    def _series(self, name: str) -> Node:
        self.expect("_")
        self.expect("{")
        variable = self.take().text
        self.expect("=")
        first = self.expression()
        self.expect("}")
        self.expect("^")
        last = self._signed_argument()
        return Node(name, (first, last, self._product()), variable)

    def _opaque(self, name: str) -> Node:
        """What is not worked out here: everything up to the next relation, as text."""
        said = [name]
        depth = 0
        while self.next is not END:
            token = self.next
            if not depth and (token.text in RELATIONS or token.text in (",", ";")):
                break
            depth += (token.text in "({[") - (token.text in ")}]")
            said.append(self.take().text)
        return Node("opaque", name=" ".join(said))

    def applied(self, node: Node) -> Node:
        """A letter that is usually a function, applied to what stands in brackets."""
        name = node.name.rstrip("'").partition("_")[0]
        if name == "C" and self.sees("("):
            start = self.at
            self.take()
            items = self._items()
            if len(items) == 2 and self.accept(")"):
                return Node("call", tuple(items), "binom")
            self.at = start
        if name in UNKNOWN_FUNCTIONS and self.accept("("):
            return self._called(node.name)
        return node
