"""Random changes of texts, of nested values and of the words of a command."""

import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 0.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "-", "\0", "é"),
    *([], {}, [1], {"a": 1}, "../..", "/dev/null", "1e3", "yes", "𝟙", " ", [[[[]]]], -(10**18)),
)
BAD_UTF8 = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80")


def changed_bytes(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """The bytes with one change, and what it is."""
    at = draw.randrange(len(content) + 1)
    kind = draw.choice(("cut", "flip", "insert", "repeat", "remove", "empty", "utf8", "null"))
    end = min(len(content), at + draw.randint(1, 40))
    changes = {
        "cut": content[:at],
        "flip": content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
        "insert": content[:at] + draw.randbytes(draw.randint(1, 8)) + content[at:],
        "repeat": content[:end] + content[at:end] * draw.choice((1, 3, 1000)) + content[end:],
        "remove": content[:at] + content[end:],
        "empty": b"",
        "utf8": content[:at] + draw.choice(BAD_UTF8) + content[at:],
        "null": content[:at] + b"\0" + content[at:],
    }
    return changes[kind], f"{kind} at byte {at}"


def changed_value(value: Any, draw: random.Random) -> tuple[Any, str]:
    """A copy of nested values with one leaf or key changed, and what it is."""
    places = list(_places(value, ()))
    path = draw.choice(places)
    kind = draw.choice(("odd", "odd", "odd", "delete", "rename", "add"))
    return _at(value, path, kind, draw), f"{kind} at {'.'.join(map(str, path))}"


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, item in inner:
        yield (*path, key)
        yield from _places(item, (*path, key))


def _at(value: Any, path: tuple[Any, ...], kind: str, draw: random.Random) -> Any:
    key, *rest = path
    copy = value.copy()
    if rest:
        copy[key] = _at(value[key], tuple(rest), kind, draw)
    elif kind == "odd" or isinstance(value, list):
        copy[key] = draw.choice(ODD)
    elif kind == "add":
        copy[f"{key}_{draw.randrange(10)}"] = draw.choice(ODD)
    else:
        taken = copy.pop(key)
        if kind == "rename":
            copy[_misspelt(str(key), draw)] = taken
    return copy


def _misspelt(word: str, draw: random.Random) -> str:
    at = draw.randrange(len(word) + 1)
    return word[:at] + draw.choice("abcxyz_-. ") + word[at + draw.randint(0, 1) :]


def changed_words(words: list[str], draw: random.Random) -> tuple[list[str], str]:
    """Words of a command with one to three changes, and what they are."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(words) + 1)
        word = str(draw.choice(ODD))
        kind = draw.choice(("insert", "remove", "replace", "misspell", "repeat", "flag"))
        if kind == "insert" or not words:
            words = [*words[:at], word, *words[at:]]
        elif kind == "flag":
            words = [*words[:at], f"--{draw.choice(('output', 'plugin', 'n', 'help', word))}"]
        else:
            at = min(at, len(words) - 1)
            fresh = {
                "remove": [],
                "replace": [word],
                "misspell": [_misspelt(words[at], draw)],
                "repeat": [words[at], words[at]],
            }
            words = [*words[:at], *fresh[kind], *words[at + 1 :]]
    words = [word.replace("\0", "") for word in words]  # the system passes none
    return words, " ".join(map(repr, words))
