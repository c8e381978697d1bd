"""Words of a text in any script, without markup: what counts when a text is measured.

A word is a run of letters of an alphabet, or one ideograph or kana, where no spaces part words.
"""

import re

_DELIMITER = re.compile(
    r"```|~~~|`|\$\$|\\\$|\$|\\[\[\]()]"
    r"|\\(?:begin|end)\{(?:equation|align|aligned|gather|cases|[pbvB]?matrix|array|split)\*?\}|\n"
)
_SAME_LINE = ("`", "$")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}>")
_ADDRESS = re.compile(r"\b(?:https?://|www\.)\S+")
_COMMAND = re.compile(r"\\(?:text|math(?:rm|bf|it)|mbox)[a-z]{0,2}(?![A-Za-z])|\\[A-Za-z]+\*?")

CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
WORD = re.compile(rf"[{CJK}]|[^\W\d_{CJK}]+(?:['’][^\W\d_{CJK}]+)*")


def prose(text: str) -> str:
    """The text without code, formulas, tags and addresses; each becomes a space.

    A delimiter that is never closed hides nothing. Takes time linear in the text.
    """
    text = _without_notation(text)
    if "\\" in text:
        text = _COMMAND.sub(" ", text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    return _ADDRESS.sub(" ", text) if "www." in text or "://" in text else text


def _closing(opening: str) -> str:
    if opening.startswith("\\begin"):
        return opening.replace("begin", "end")
    return {"\\[": "\\]", "\\(": "\\)"}.get(opening, opening)


def _without_notation(text: str) -> str:
    found = [(match.group(), match.start(), match.end()) for match in _DELIMITER.finditer(text)]
    if all(token == "\n" for token, _, _ in found):
        return text
    last = {token: start for token, start, _ in found}
    kept: list[str] = []
    at, opened, wanted = 0, 0, ""  # wanted: what closes the span that began at `opened`
    for token, start, end in found:
        if not wanted:
            closing = _closing(token)
            if token not in ("\n", "\\$") and last.get(closing, -1) > start:
                opened, wanted = start, closing
        elif token == wanted:
            kept += [text[at:opened], " "]
            at, wanted = end, ""
        elif token == "\n" and wanted in _SAME_LINE:
            wanted = ""
    return "".join([*kept, text[at:]])


def words(text: str) -> list[str]:
    """The words of a text, in order, as they are written."""
    return WORD.findall(text)
