"""Numbers with their nouns, for display."""


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`, `1,024 rows`: a number of things, by the noun of one of them."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
