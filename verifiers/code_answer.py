"""Take the program out of a response: after the thinking, in the answer tags, else in a fence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.languages.table import LANGUAGES
from verifiers.answer import after_think

_TAG = re.compile(r"</?answer>")
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*")


@dataclass(frozen=True, slots=True)
class _Block:
    language: str  # in lower case; "" where the fence names none
    source: str


def program(
    response: str, *, language: str = "python", prefilled_think: bool = False
) -> str | None:
    """The source the response commits to; None when there is none.

    Only what follows the thinking counts. With answer tags their one block is the program, bare
    or in a fence; several or unbalanced tags are none. Otherwise it is the last fenced block that
    names `language`, else the last block. A think block or a fence that is opened and never
    closed has no program.
    """
    text = after_think(response, prefilled_think=prefilled_think)
    if text is None:
        return None
    tags = list(_TAG.finditer(text))
    if not tags:
        return _last_block(text, language)
    if [tag.group() for tag in tags] != ["<answer>", "</answer>"]:
        return None
    inside = text[tags[0].end() : tags[1].start()]
    if any(_FENCE.fullmatch(line.rstrip()) for line in inside.split("\n")):
        return _last_block(inside, language)
    return _solid(inside)


def _last_block(text: str, language: str) -> str | None:
    blocks = list(_blocks(text))
    if not blocks or None in blocks:
        return None
    names = next((one.aliases for one in LANGUAGES.values() if language in one.aliases), {language})
    closed = [block for block in blocks if block is not None]
    named = [block for block in closed if block.language in names]
    return _solid((named or closed)[-1].source)


def _blocks(text: str) -> Iterator[_Block | None]:
    """Every fenced block in order; None for one that is never closed, and nothing after it."""
    lines = iter(text.split("\n"))
    for line in lines:
        opened = _FENCE.fullmatch(line.rstrip())
        if opened is None:
            continue
        indent, fence, language = opened.groups()
        held: list[str] = []
        for inner in lines:
            if _closes(inner, fence):
                yield _Block(language.lower().strip("{}."), "\n".join(held) + "\n")
                break
            held.append(inner.removeprefix(indent))
        else:
            yield None


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _solid(source: str) -> str | None:
    """The source without blank lines around it; None when nothing is left."""
    if not (bare := source.strip()):
        return None
    first_line = source.rfind("\n", 0, source.index(bare[0])) + 1
    return f"{source[first_line:].rstrip()}\n"
