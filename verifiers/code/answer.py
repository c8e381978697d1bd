"""Extract the program from a response: from its answer tags, else from its fenced blocks."""

import re
from collections.abc import Sequence

from veriloop.verifiers.code.fences import Block, fenced_blocks
from veriloop.verifiers.code.selection import is_hedged, select_program

_TAG = re.compile(r"(?<!`)</?(?:answer|think)>(?!`)")
_GLUED_OPENING = re.compile(r"(<answer>|</think>)[ \t]*(?=`{3}|~{3})")
_GLUED_CLOSING = re.compile(r"^([ \t]*(?:`{3,}|~{3,}))[ \t]*(?=</?(?:answer|think)>)", re.MULTILINE)
_LATE_FENCE = re.compile(r"(?<=[^\s`~])(?=`{3}[\w+#]+[ \t]*$)", re.MULTILINE)
_LANGUAGE_TAG = re.compile(r"\[(PYTHON)\][ \t]*\n|\[/PYTHON\]")
_THINK_END = "</think>"
_MAX_THOUGHTS = 3  # after which the last end of a think block counts


def extract_program(
    response: str, *, language: str = "python", function: str = "", prefilled_think: bool = False
) -> str | None:
    """The source the response commits to; None if there is none.

    Only the text after the thinking counts. If it has one pair of answer tags, their content is the
    program, bare or in a fence; several programs, and several or unbalanced tags, yield None.
    Otherwise the program is one of the closed fenced blocks: see `select_program`, which `function`
    helps. Tags inside a closed block belong to its program. An unclosed think block yields None, as
    does a response whose only block is unclosed. Without a block, a fence after other text of its
    line counts, and so do the tags [PYTHON] and [/PYTHON].
    """
    text = _after_think(response, prefilled_think=prefilled_think)
    if text is None:
        return None
    blocks, unclosed = fenced_blocks(text)
    if not blocks:
        fenced = _LANGUAGE_TAG.sub(_as_fence, _LATE_FENCE.sub("\n", text))
        if (closed := fenced_blocks(fenced))[0]:
            text, (blocks, unclosed) = fenced, closed
    tags = [tag for tag in _tags(text, blocks) if "answer" in tag.group()]
    if tags:
        if [tag.group() for tag in tags] != ["<answer>", "</answer>"]:
            return None
        text = text[tags[0].end() : tags[1].start()]
        blocks, unclosed = fenced_blocks(text)
        if not blocks and unclosed is None:
            return _trimmed(text)
        if is_hedged(blocks, language):
            return None
    program = select_program(blocks, language, function)
    return None if program is None else _trimmed(program)


def _as_fence(tag: re.Match[str]) -> str:
    return f"\n```{tag[1].lower()}\n" if tag[1] else "\n```\n"


def _after_think(response: str, *, prefilled_think: bool) -> str | None:
    """The text after the thinking, with tags and fences on their own lines; None if a think
    block is never closed."""
    text, thinking = response, prefilled_think or response.lstrip().startswith("<think>")
    text = _GLUED_OPENING.sub(r"\1\n", _GLUED_CLOSING.sub(r"\1\n", text))
    for _ in range(_MAX_THOUGHTS):
        if thinking:
            _, closed, text = text.partition(_THINK_END)
            if not closed:
                return None
        tag = next((t for t in _tags(text, fenced_blocks(text)[0]) if "think" in t.group()), None)
        if tag is None:
            return text
        text, thinking = text[tag.end() :], tag.group() != _THINK_END
    text = text.rpartition(_THINK_END)[2]
    return None if "<think>" in text else text


def _tags(text: str, blocks: Sequence[Block]) -> list[re.Match[str]]:
    """The tags outside of closed blocks.

    The end of a think block counts inside a block too if it is a separate line and no think block
    starts in the code before it: the fence is one that the thinking left open.
    """
    tags: list[re.Match[str]] = []
    following = iter(blocks)
    block = next(following, None)
    for tag in _TAG.finditer(text):
        while block is not None and block.end <= tag.start():
            block = next(following, None)
        if block is None or tag.start() < block.start or _ends_thinking(text, tag, block):
            tags.append(tag)
    return tags


def _ends_thinking(text: str, tag: re.Match[str], block: Block) -> bool:
    if tag.group() != _THINK_END or text.find("<think>", block.start, tag.start()) >= 0:
        return False
    before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    after = text[tag.end() : (text + "\n").index("\n", tag.end())]
    return not before.strip() and not after.strip()


def _trimmed(source: str) -> str | None:
    """The source without surrounding blank lines; None if nothing is left."""
    if not (bare := source.strip()):
        return None
    first_line = source.rfind("\n", 0, source.index(bare[0])) + 1
    return f"{source[first_line:].rstrip()}\n"
