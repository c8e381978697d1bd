"""One wrong operator at a time: every mutant of a Python source that its tests should notice.

Docstrings, messages, annotations and checks of input (`raise`, and the `if` that ends in one) are
not mutated, since they are not arithmetic.
"""

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISON = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = (("min", "max"), ("amin", "amax"), ("minimum", "maximum"), ("argmin", "argmax"))
OPPOSITE = dict(_PAIRS) | {b: a for a, b in _PAIRS}
# Methods and torch functions that stand for "leave it as it was" when they are taken out.
_ROUNDING = {"abs", "clamp", "double", "float", "masked_fill", "to"}
_FUNCTIONS = {"detach", "exp", "exp_", "expm1", "log", "mul_", "neg", "sqrt", "square"}
IDENTITY = _ROUNDING | _FUNCTIONS
MASK = re.compile(r"(mask|scored|tied|clipped|outside|correct)\w*_[A-Z0-9]+$")
KEYWORDS_LEFT = {
    "strict": "a refusal of bad input",
    "device": "every device is the CPU where these tests run",
    "fused": "the same step in fewer calls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change to one file."""

    path: str  # relative to the root
    line: int
    operator: str
    before: str  # the source replaced
    after: str
    source: str  # the whole mutated file


def mutants(path: str, source: str) -> list[Mutant]:
    """Every distinct mutant of a file, in the order of its lines."""
    code = source.encode()
    lines = code.splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
    by_source: dict[str, Mutant] = {}
    for node in _places(ast.parse(source)):
        for operator, part, after in _changes(node):
            assert part.end_lineno is not None and part.end_col_offset is not None
            first = starts[part.lineno - 1] + part.col_offset
            last = starts[part.end_lineno - 1] + part.end_col_offset
            mutated = (code[:first] + after.encode() + code[last:]).decode()
            if not _same(part, after) and mutated not in by_source:
                by_source[mutated] = Mutant(
                    path=path,
                    line=part.lineno,
                    operator=operator,
                    before=code[first:last].decode(),
                    after=after,
                    source=mutated,
                )
    return sorted(by_source.values(), key=lambda m: m.line)


def _same(part: ast.expr | ast.stmt, after: str) -> bool:
    """Whether the new source parses to the old part: spaces and parentheses alone differ."""
    if isinstance(part, ast.stmt):
        return [ast.dump(statement) for statement in ast.parse(after).body] == [ast.dump(part)]
    (subscript,) = ast.parse(f"_[{after}]").body  # where slices are allowed, too
    assert isinstance(subscript, ast.Expr) and isinstance(subscript.value, ast.Subscript)
    return ast.dump(subscript.value.slice) == ast.dump(part)


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may be mutated, parents first."""
    if not _left_alone(node):
        yield node
        for child in _inside(node):
            yield from _places(child)
    elif isinstance(node, ast.If):
        for other in node.orelse:
            yield from _places(other)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.If(body=[*_, ast.Raise()]):  # a refusal
            return True
        case ast.keyword():
            return node.arg in KEYWORDS_LEFT
    return False


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The children that run: no annotation and no decorator."""
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            children = value if isinstance(value, list) else [value]
            yield from (child for child in children if isinstance(child, ast.AST))


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """(operator, node to replace, new source) for each mutation of this very node."""
    if not isinstance(node, ast.expr | ast.stmt):
        return
    for operator, new in _expressions(node):
        text = ast.unparse(new)
        yield operator, node, text if isinstance(node, ast.stmt | ast.Slice) else f"({text})"
    match node:
        case ast.FunctionDef() if node.returns and re.search(
            "Tensor|float", ast.unparse(node.returns)
        ):
            for value in _returned(node):
                yield "negate the result", value, f"(-({ast.unparse(value)}))"
        case ast.If():
            yield "negate the condition", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.Expr(value=ast.Call()):
            yield "drop the call", node, "pass"


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and n is not function]
    theirs = {id(n) for f in inner for n in ast.walk(f)}
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None and id(node) not in theirs:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for value in values:
                text = ast.unparse(value)
                truth = isinstance(value, ast.Compare | ast.BoolOp) or " & " in text
                other = isinstance(value, ast.Constant | ast.Starred) or "clipped" in text
                if not (truth or other):
                    yield value


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _expressions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.Compare() | ast.BoolOp():
            yield from _operations(node)
        case ast.UnaryOp(operand=operand):
            yield "drop the sign", operand
        case ast.Constant():
            yield from _constants(node.value)
        case ast.IfExp():
            yield from (("choose always", x) for x in (node.body, node.orelse))
        case ast.Slice():
            yield from _shifted(node)
        case ast.Call():
            yield from _calls(node)
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            yield from _names(node)


def _operations(
    node: ast.BinOp | ast.AugAssign | ast.Compare | ast.BoolOp,
) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield "swap the operation", _with(node, op=ARITHMETIC[type(node.op)]())
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                sides = ((node.left, node.right), (node.right, node.left))
                yield from (("drop the mask", b) for a, b in sides if _is_mask(a))
        case ast.Compare(ops=[op]):
            for other in COMPARISON[type(op)]:
                yield "swap the comparison", _with(node, ops=[other()])
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "swap and/or", _with(node, op=other)


def _constants(value: object) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(value, bool):
        yield "flip the flag", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield "add one", ast.Constant(value + 1)
    elif isinstance(value, str) and value in OPPOSITE:
        yield "swap min/max", ast.Constant(OPPOSITE[value])


def _names(node: ast.Name | ast.Attribute) -> Iterator[tuple[str, ast.AST]]:
    field = "id" if isinstance(node, ast.Name) else "attr"
    name = getattr(node, field)
    if name in OPPOSITE:
        yield "swap min/max", _with(node, **{field: OPPOSITE[name]})
    if _is_mask(node):
        yield "let all through", ast.BinOp(node, ast.BitOr(), ast.Constant(True))


def _is_mask(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return bool(MASK.search(name))


def _shifted(node: ast.Slice) -> Iterator[tuple[str, ast.AST]]:
    match node.lower, node.upper:
        case ast.expr() as start, None:
            yield "shift the slice", ast.Slice(None, ast.UnaryOp(ast.USub(), start))
        case None, ast.UnaryOp(op=ast.USub(), operand=stop):
            yield "shift the slice", ast.Slice(stop, None)
        case None, ast.expr() as stop:
            yield "shift the slice", ast.Slice(stop, None)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    named = [k for k in node.keywords if k.arg and k.arg not in KEYWORDS_LEFT]
    for keyword in named:
        rest = [k for k in node.keywords if k is not keyword]
        yield f"drop {keyword.arg}=", _with(node, keywords=rest)
    if any(k.arg in OPPOSITE for k in named):
        swapped = [_with(k, arg=OPPOSITE.get(k.arg or "", k.arg)) for k in node.keywords]
        yield "swap min/max", _with(node, keywords=swapped)
    match node.func:
        case ast.Attribute(value=ast.Name(id="torch"), attr="where"):
            yield from (("choose always", x) for x in node.args[1:])
        case ast.Attribute(value=ast.Name(id="torch"), attr=attr) if attr in IDENTITY:
            yield f"drop {attr}", node.args[0]
        case ast.Attribute(value=value, attr=attr) if attr in IDENTITY:
            yield f"drop {attr}", value
