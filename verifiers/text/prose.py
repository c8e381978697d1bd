"""The prose of a text: what is left without code, formulas, tags and addresses.

Words in another notation are prose all the same: a text cannot hide its language in a code fence or
in `\\text{...}`. Identifiers, keywords, variables and functions are not.
"""

import re
import unicodedata

from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.text.word_language import COMMON, RUN

_DELIMITER = re.compile(
    r"```|~~~|`|\$\$|\\\$|\$|\\[\[\]()]"
    r"|\\(?:begin|end)\{(?:equation|align|aligned|gather|cases|[pbvB]?matrix|array|split)\*?\}|\n"
)
_SAME_LINE = ("`", "$")
_BETWEEN = re.compile(r"(?<![`$])([`$])[ \t]+\1(?![`$])")  # two spans side by side
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}>")
_ADDRESS = re.compile(r"\b(?:https?://|www\.)[!-~]*")
_COMMAND = re.compile(r"\\(?:text|math(?:rm|bf|it)|mbox)[a-z]{0,2}(?![A-Za-z])|\\[A-Za-z]+\*?")

_STYLED = re.compile(
    "[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a]"
)  # mathematical, full-width

_MATHS_LETTERS = "A-Za-zªºÀ-ɏḀ-ỿͰ-Ͽἀ-῿\u2100-\u214f"  # of variables, units and functions
_FOREIGN = re.compile(rf"(?:(?![{_MATHS_LETTERS}])[^\W\d_])+|[Ͱ-Ͽἀ-῿]{{4,}}")
_RUN = re.compile(
    rf"[A-Za-zªºÀ-ɏḀ-ỿ]+(?:['’-][A-Za-zªºÀ-ɏḀ-ỿ]+)*"
    rf"(?:[\s,.;:!?\"'()#*]+[A-Za-zªºÀ-ɏḀ-ỿ]+(?:['’-][A-Za-zªºÀ-ɏḀ-ỿ]+)*){{{RUN - 1},}}"
)
_GROUP = re.compile(r"\\[A-Za-z]+\*?\s*|\\.|[{}~]")
_KEYWORDS = """
    and as by case do each else for from get if in into is it let new no not of on or out set so
    than that then this to try until use when where while with all any check find wait come only
    first both give also per times equal
"""  # common words that are also words of programming languages
_COMMON = tuple(
    frozenset(word for word in listed.split() if len(word) > 1) - frozenset(_KEYWORDS.split())
    for listed in COMMON.values()
)


def prose(text: str) -> str:
    """The text with code, formulas, tags and addresses replaced by the words written in them.

    Words are those of `written_words`. An unclosed delimiter removes nothing. Takes linear time.
    """
    text = _STYLED.sub(_plain_letters, without_invisible(text))
    text = _without_notation(_BETWEEN.sub(" ", text))
    if "\\" in text:
        text = _COMMAND.sub(" ", text)
    if "<" in text:
        text = _TAG.sub(lambda tag: written_words(tag.group()), text)
    return _ADDRESS.sub(" ", text) if "www." in text or "://" in text else text


def _closing(opening: str) -> str:
    if opening.startswith("\\begin"):
        return opening.replace("begin", "end")
    return {"\\[": "\\]", "\\(": "\\)"}.get(opening, opening)


def _without_notation(text: str) -> str:
    matches = [(match.group(), match.start(), match.end()) for match in _DELIMITER.finditer(text)]
    if all(token == "\n" for token, _, _ in matches):
        return text
    last = {token: start for token, start, _ in matches}
    pieces: list[str] = []
    copied = 0  # the text before this index is in `pieces` or removed
    span_start, closer = 0, ""  # the open span, "" if there is none
    for token, start, end in matches:
        if not closer:
            closing = _closing(token)
            if token not in ("\n", "\\$") and last.get(closing, -1) > start:
                span_start, closer = start, closing
        elif token == closer:
            pieces += [text[copied:span_start], written_words(text[span_start:end])]
            copied, closer = end, ""
        elif token == "\n" and closer in _SAME_LINE:
            closer = ""
    return "".join([*pieces, text[copied:]])


def written_words(notation: str) -> str:
    """The words of natural language in code, a formula or a tag, each passage on its own line.

    These are all words in a script that neither variables nor functions have, and runs of at least
    RUN words between spaces and punctuation, two of which are common words of one language.
    """
    passages = [] if notation.isascii() else _FOREIGN.findall(notation)
    if " " in notation:
        bare = _GROUP.sub(" ", notation)
        passages += [run.group() for run in _RUN.finditer(bare) if _is_prose(run.group())]
    return "\n".join(["", *passages, ""]) if passages else " "


def _is_prose(run: str) -> bool:
    tokens = re.findall(r"[^\W\d_]+", run.lower())
    return any(sum(token in common for token in tokens) > 1 for common in _COMMON)


def _plain_letters(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match.group())
