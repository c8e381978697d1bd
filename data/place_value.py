"""Sums and differences of whole numbers worked out by place value.

Such scratchpads for language models are of arXiv 2112.00114 (Nye et al.) and arXiv 2307.03381 (Lee
et al.).
"""

import re

_EQUALITY = re.compile(
    r"(?<![\w.,)])(?<![-+*/=] )"  # not inside a number or a longer expression
    r"(?P<left>-?\d{1,6}) (?P<sign>[+-]) (?P<right>\(-\d{1,6}\)|\d{1,6}) = (?P<value>-?\d{1,7})"
    r"(?![\w/]|[.,]\d| [-+*/=])"
)


def by_place(steps: str) -> str:
    """`steps` with each true equality such as "47 + 38 = 85" or "12 - (-47) = 59" spelled out.

    "47 + 38 = 85" becomes "47 + 38 = 40 + 30 + 7 + 8 = 70 + 15 = 85" and "12 - 47 = -35" becomes
    "12 - 47 = -(47 - 12) = -(47 - 10 - 2) = -(37 - 2) = -35". Everything else is left as it is.
    """
    return _EQUALITY.sub(_spelled_out, steps)


def _spelled_out(match: re.Match[str]) -> str:
    left, right = int(match["left"]), int(match["right"].strip("()"))
    other = right if match["sign"] == "+" else -right
    if left + other != int(match["value"]):
        return match.group()
    problem = f"{match['left']} {match['sign']} {match['right']}"
    return " = ".join(dict.fromkeys([problem, *_steps(left, other), match["value"]]))


def _steps(left: int, right: int) -> list[str]:
    """What left + right equals, from the signs that are drawn out of it to its last operation."""
    small, large = sorted((abs(left), abs(right)))
    if small == 0:
        return []
    if left * right > 0:
        first, second = abs(left), abs(right)
        steps, negative = [f"{first} + {second}", *_sum(first, second)], left < 0
    else:
        steps, negative = [f"{large} - {small}", *_difference(large, small)], left + right < 0
    return [f"-({step})" for step in steps] if negative else steps


def _places(number: int) -> list[int]:
    """47 -> [40, 7]; zeros are left out."""
    digits = str(number)
    sizes = reversed(range(len(digits)))
    return [int(d) * 10**size for d, size in zip(digits, sizes, strict=True) if d != "0"]


def _sum(first: int, second: int) -> list[str]:
    """The steps from first + second to their value, which is left out; both are positive."""
    parts = sorted(_places(first) + _places(second), key=lambda part: -len(str(part)))
    by_size = dict[int, int]()
    for part in parts:
        by_size[len(str(part))] = by_size.get(len(str(part)), 0) + part
    lines, sums = [parts], list(by_size.values())
    while len(sums) > 1:
        lines.append(sums)
        sums = [sums[0] + sums[1], *sums[2:]]
    return [" + ".join(map(str, line)) for line in lines]


def _difference(large: int, small: int) -> list[str]:
    """The steps from large - small to their value, which is left out; large >= small > 0."""
    parts = _places(small)
    return [
        " - ".join(map(str, [large - sum(parts[:done]), *parts[done:]]))
        for done in range(len(parts))
    ]
