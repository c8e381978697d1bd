"""Read the final answer out of a response: after the thinking, in the tags, else in the box."""

import re

_TAG = re.compile(r"</?answer>")
_BRACE = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s*([+-]?\d+(?:\.\d+)?)")
_JOINT = re.compile(r"[\s$,]*(?:and|or)?[\s$,]*")
_JOINT_CHARS = 40  # boxes further apart are separate answers, however blank the gap
_HIDDEN = re.compile(r"\\(?:[hv]?phantom|iffalse)(?![a-zA-Z])|<!--")
_DENIED = re.compile(r"(?:\bnot|n't|\bnever)[\s$]*$", re.IGNORECASE)


def after_think(response: str, *, prefilled_think: bool = False) -> str | None:
    """What follows the last `</think>`; None while a think block is still open.

    `prefilled_think`: the prompt ended with `<think>`, so the response starts inside the block.
    """
    _, closed, rest = response.rpartition("</think>")
    if not closed and prefilled_think:
        return None
    return None if "<think>" in rest else rest


def final_answer(response: str, *, prefilled_think: bool = False) -> str | None:
    """The answer the response commits to, stripped; None when there is none.

    The text after the thinking counts, and nothing else. If it has answer tags, their content is
    the answer, and nested, unbalanced, empty or unequal blocks are none at all. Otherwise the
    last box is; boxes joined by nothing but "and", "or" or a comma are one answer, a list. A box
    that is denied, and text holding anything a reader would not see, commit to nothing.
    """
    text = after_think(response, prefilled_think=prefilled_think)
    if text is None or _HIDDEN.search(text):
        return None
    if _TAG.search(text):
        return _tagged(text)
    return _last_box(text)


def unboxed(text: str) -> str:
    """The content of the box when `text` is one box and nothing more, dollars aside."""
    bare = text.strip().strip("$").strip()
    if not bare.startswith("\\boxed"):
        return text
    spans = _box_spans(bare)
    return spans[-1][2].strip() if spans and spans[-1][:2] == (0, len(bare)) else text


def _tagged(text: str) -> str | None:
    tags = [(match.group(), match.start(), match.end()) for match in _TAG.finditer(text)]
    opens, closes = tags[::2], tags[1::2]
    alternate = len(opens) == len(closes) and all(tag == "<answer>" for tag, _, _ in opens)
    if not alternate or any(tag == "<answer>" for tag, _, _ in closes):
        return None
    contents = {
        text[start:end].strip() for (_, _, start), (_, end, _) in zip(opens, closes, strict=True)
    }
    return contents.pop() or None if len(contents) == 1 else None


def _last_box(text: str) -> str | None:
    spans = _box_spans(text)
    if spans is None:
        return None
    run: list[str] = []
    cut = len(text)
    for start, end, content in reversed(spans):
        if run and not (cut - end <= _JOINT_CHARS and _JOINT.fullmatch(text, end, cut)):
            break
        run.append(content.strip())
        cut = start
    if _DENIED.search(text, max(0, cut - _JOINT_CHARS), cut):
        return None
    found = list(dict.fromkeys(reversed(run)))
    return ", ".join(found) or None if all(found) else None


def _box_spans(text: str) -> list[tuple[int, int, str]] | None:
    """(start, end, content) of every outermost box; None when the last one is never closed."""
    if "\\boxed" not in text:
        return []
    spans: list[tuple[int, int, str]] = []
    open_at: list[tuple[int, int] | None] = []  # (start, content start) of a box, None of a brace
    depth = 0  # boxes among them
    for match in _BRACE.finditer(text):
        token = match.group()
        if token.startswith("\\boxed"):
            open_at.append(match.span())
            depth += 1
        elif token == "{":
            open_at.append(None)
        elif token == "}" and open_at and (box := open_at.pop()):
            depth -= 1
            if not depth:
                spans.append((box[0], match.end(), text[box[1] : match.start()]))
    if depth:
        return None
    return spans or [(*m.span(), m.group(1)) for m in _BARE_BOX.finditer(text)]
