"""Arithmetic expressions worked out one operation at a time."""

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

LONGEST = 300  # characters of an expression
_OPERATIONS: Mapping[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}


def work_out(expression: str) -> tuple[list[str], Fraction]:
    """A line such as "12 + 35 = 47" for each operation, in order, and the value.

    Raises ValueError for anything but numbers, + - * / and parentheses, and for a division by 0.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"an expression of {len(expression)} characters; at most {LONGEST}")
    lines: list[str] = []
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body, lines)
    except (SyntaxError, ZeroDivisionError) as mistake:
        raise ValueError(f"{expression!r} has no value: {mistake}") from mistake
    return lines, value


def sentences(lines: list[str]) -> str:
    """The lines as "First 12 + 35 = 47. Then 47 - 4 = 43."; "" without any.

    Filters of chains of thought drop those without words.
    """
    return " ".join(f"{'Then' if n else 'First'} {line}." for n, line in enumerate(lines))


def number_text(value: Fraction) -> str:
    """The value as a decimal where it has one of at most 6 places, else as a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    places = next((n for n in range(1, 7) if 10**n % value.denominator == 0), 0)
    return f"{float(value):.{places}f}" if places else str(value)


def _value(node: ast.expr, lines: list[str]) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, lines)
            if isinstance(operand, ast.BinOp):
                lines.append(f"-({number_text(value)}) = {number_text(-value)}")
            return -value
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            sign, operate = _OPERATIONS[type(operation)]
            a, b = _value(left, lines), _value(right, lines)
            value = operate(a, b)
            second = f"({number_text(b)})" if b < 0 else number_text(b)
            lines.append(f"{number_text(a)} {sign} {second} = {number_text(value)}")
            return value
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is no number, sum, difference, product, ratio")
