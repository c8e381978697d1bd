"""Select the program among the blocks of an answer, which may also show how it is used.

The text is searched, not parsed: source of a model may take any parser down.
"""

import builtins
import keyword
import re
from collections.abc import Iterable, Sequence

from veriloop.sandbox.languages.table import LANGUAGES
from veriloop.verifiers.code.fences import Block

MAX_QUOTES = 50  # programs among which parts of another are looked for

_BUILTINS = frozenset(dir(builtins))
_KEYWORDS = frozenset((*keyword.kwlist, *keyword.softkwlist))
_STRING = re.compile(
    r"(?P<prefix>\b[rRbBuUfF]{1,2})?(?:"
    r"\"\"\"(?P<a>(?:[^\"\\]|\\.|\"(?!\"\"))*+)(?:\"\"\"|\Z)"
    r"|'''(?P<b>(?:[^'\\]|\\.|'(?!''))*+)(?:'''|\Z)"
    r"|\"(?P<c>(?:[^\"\\\n]|\\.)*+)\"?|'(?P<d>(?:[^'\\\n]|\\.)*+)'?)"
    r"|#[^\n]*",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_TOP_LEVEL = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_BINDING = re.compile(
    r"\b(?:def|class|for|as|import|lambda|global)\b([^:=\n]*)"
    r"|(?<![\w.])([A-Za-z_]\w*)[ \t]*(?::=|=(?!=))"
)
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)[ \t]*\(")
_WORK = re.compile(r"\w[ \t]*\(|\b(?:def|class|lambda)\b")  # what every useful program has
_DEFINES = re.compile(r"\b(?:def|class|lambda)\b|\bimport[ \t]*\*")
_PRINTS = re.compile(r"print\b|\.write(?:lines)?\b")
_BINDS = re.compile(r"(?<![=!<>])=(?!=)|\b(?:def|class|for|as|import|lambda)\b")
_SESSION = re.compile(r"^[ \t]*>>>", re.MULTILINE)
_DEFINITIONS = {  # of a name, by language
    "python": r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+{0}\b|^{0}[ \t]*(?::[^=\n]*)?=(?!=)",
    "javascript": r"\bfunction[ \t*]+{0}\b|\bclass[ \t]+{0}\b|(?<![\w$]){0}[ \t]*[=:](?!=)"
    r"|^[ \t]*(?:async[ \t]+|static[ \t]+|\*)*{0}[ \t]*\([^()\n]*\)[ \t]*\{{",
}
_ENTRY = {"c": "main", "cpp": "main"}  # what a program defines that reads standard input
_ENTRY_DEFINITION = r"\b{0}\s*\("


def select_program(blocks: Sequence[Block], language: str, function: str = "") -> str | None:
    """The source of the last block that is a program in this language; None without blocks.

    Blocks that name the language precede those that name none, and these all others. Blocks that
    define `function` precede others, and so do C and C++ programs with `main`. A Python block is no
    program if it only calls what an earlier block defines, or what no block defines, is an
    interactive session, calls and defines nothing, is indented as a whole, or quotes lines of an
    earlier program that would do nothing alone. If no block is a program, the last one counts that
    does not only call.
    """
    entry = next((entry for entry in LANGUAGES.values() if language in entry.aliases), None)
    name, names = (entry.name, entry.aliases) if entry else (language, frozenset({language}))
    named = [block for block in blocks if block.language in names]
    unnamed = [block for block in blocks if not block.language]
    pools = [pool for pool in (named, unnamed, blocks) if pool]
    for pool in [
        defining for pool in pools if (defining := _defining(pool, name, function))
    ] + pools:
        programs = _python_programs(pool, blocks, function) if name == "python" else pool
        if programs:
            return programs[-1].source
    if not pools:
        return None
    others = [b for b in pools[0] if name != "python" or not _only_uses(b.source)]
    return (others or pools[0])[-1].source


def is_hedged(blocks: Sequence[Block], language: str) -> bool:
    """Whether several blocks are programs in this language, so that an answer has no single one."""
    entry = next((entry for entry in LANGUAGES.values() if language in entry.aliases), None)
    names = entry.aliases if entry else frozenset({language})
    pool = [block for block in blocks if block.language in names or not block.language]
    if entry is not None and entry.name == "python":
        pool = _python_programs(pool, blocks)
    return len({block.source.strip() for block in pool}) > 1


def _defining(blocks: Sequence[Block], language: str, function: str) -> list[Block]:
    """The blocks that define the function, or the entry of a program."""
    wanted = function or _ENTRY.get(language, "")
    form = _DEFINITIONS.get(language, "") if function else _ENTRY_DEFINITION
    if not wanted or not form:
        return []
    definition = re.compile(form.format(re.escape(wanted)), re.MULTILINE)
    return [block for block in blocks if definition.search(block.source)]


def _python_programs(
    blocks: Iterable[Block], shown: Iterable[Block], function: str = ""
) -> list[Block]:
    """The blocks that are programs; `shown`: all blocks, which define names for later ones."""
    programs: list[Block] = []
    defined: set[str] = set()
    starts = {block.start for block in blocks}
    for block in shown:
        code = _STRING.sub(_formatted, block.source)
        if block.start in starts and _stands_alone(block.source, code, defined):
            programs.append(block)
        defined.update(_TOP_LEVEL.findall(code))
    return _without_quotes(programs, function) if len(programs) <= MAX_QUOTES else programs


def _stands_alone(source: str, code: str, defined: set[str]) -> bool:
    """Whether a block works without the blocks before it, which define these names."""
    indented = source.lstrip("\n").startswith((" ", "\t"))
    if indented or not _WORK.search(code) or _SESSION.search(source):
        return False
    if _only_uses(source):
        return False
    return not (_called(code) & defined) - _bound(code)


def _without_quotes(programs: list[Block], function: str) -> list[Block]:
    """The blocks that are not a part of the longest, which alone has no result or lacks names."""
    texts = ["\n".join(["", *_lines(block.source), ""]) for block in programs]
    whole = max(texts, key=len, default="")
    return [
        block
        for block, text in zip(programs, texts, strict=True)
        if len(text) == len(whole) or text not in whole or _has_result(block.source, function)
    ]


def _has_result(source: str, function: str) -> bool:
    """Whether a block shows or defines something, and gets what it shows from somewhere."""
    code = _STRING.sub(_formatted, source)
    if function and _DEFINES.search(code):
        return True
    used = set(_NAME.findall(code)) - _BUILTINS - _KEYWORDS
    return _PRINTS.search(code) is not None and (not used or _BINDS.search(code) is not None)


def _lines(source: str) -> list[str]:
    return [line.strip() for line in source.split("\n") if line.strip()]


def _only_uses(source: str) -> bool:
    """Whether a block defines nothing and calls a name that it does not have."""
    code = _STRING.sub(_formatted, source)
    if _DEFINES.search(code):
        return False
    return bool(_called(code) - _bound(code))


def _called(code: str) -> set[str]:
    return set(_CALL.findall(code)) - _BUILTINS - _KEYWORDS


def _bound(code: str) -> set[str]:
    names: set[str] = set()
    for binding in _BINDING.finditer(code):
        names.update(_NAME.findall(binding[1]) if binding[2] is None else [binding[2]])
    return names


def _formatted(string: re.Match[str]) -> str:
    """What counts as code of a string or comment: the text of a formatted string."""
    if "f" not in (string["prefix"] or "").lower():
        return '""'
    return " ".join(filter(None, (string["a"], string["b"], string["c"], string["d"])))
