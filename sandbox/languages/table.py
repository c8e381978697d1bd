"""The supported languages: names, required packages, compilers."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from veriloop.sandbox.limits import Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language. Its programs read standard input; some have functions to call."""

    name: str
    title: str  # for messages
    aliases: frozenset[str]  # in lower case, including the name
    packages: str  # required Debian packages
    counted: Counted = "address"  # what limits the memory of its programs
    processes: int = 0  # that its programs require
    compiler: tuple[str, ...] = ()  # command without input and output; (): interpreted
    suffix: str = ""  # of a source file
    functions: frozenset[str] | None = frozenset()  # that can be called; None: any
    out_of_memory: tuple[bytes, ...] = ()  # messages of its runtime on standard error
    sample: str = ""  # a program that prints "ready"

    def check_call(self, function: str) -> None:
        """Raise ValueError if its programs cannot have this function."""
        if self.functions is None:
            return
        if not self.functions:
            raise ValueError(f"a {self.title} program reads standard input, it cannot be called")
        if function not in self.functions:
            known = ", ".join(sorted(self.functions))
            raise ValueError(f"no function {function!r} of a {self.title} program. Known: {known}")

    @property
    def needs_cgroup(self) -> bool:
        """Whether it starts processes, which only tier 1 with a cgroup can limit."""
        return bool(self.processes or self.compiler)


_FLAGS = ("-O2", "-s", "-pipe", "-pthread", "-fno-diagnostics-color", "-fmax-errors=20")
_ALL = (
    Language(
        name="python",
        title="Python",
        aliases=frozenset({"python", "py", "python3", "py3"}),
        packages="python3",
        functions=None,
    ),
    Language(
        name="c",
        title="C",
        aliases=frozenset({"c", "c99", "c11", "c17", "gcc"}),
        packages="gcc libc6-dev",
        counted="group",
        compiler=("gcc", "-std=gnu17", *_FLAGS),
        suffix=".c",
        sample='#include <stdio.h>\nint main(void) { puts("ready"); }\n',
    ),
    Language(
        name="cpp",
        title="C++",
        aliases=frozenset(
            {"cpp", "c++", "cc", "cxx", "g++", "c++11", "c++14", "c++17", "c++20", "cpp17", "cpp20"}
        ),
        packages="g++ libc6-dev",
        counted="group",
        compiler=("g++", "-std=gnu++20", *_FLAGS),
        suffix=".cpp",
        out_of_memory=(b"std::bad_alloc",),
        sample='#include <cstdio>\n#include <vector>\nint main() { puts("ready"); }\n',
    ),
    Language(
        name="javascript",
        title="JavaScript",
        aliases=frozenset({"javascript", "js", "node", "nodejs", "cjs"}),
        packages="nodejs",
        counted="data",  # V8 reserves gigabytes of address space that it never uses
        functions=None,
        out_of_memory=(b"JavaScript heap out of memory", b"Array buffer allocation failed"),
        sample="console.log('ready');\n",
    ),
    Language(
        name="bash",
        title="Bash",
        aliases=frozenset({"bash", "sh", "shell"}),
        packages="bash coreutils",
        counted="group",
        processes=16,  # a pipe is two of them
        sample="echo ready | cat\n",
    ),
    Language(
        name="sql",
        title="SQL",
        aliases=frozenset({"sql", "sqlite", "sqlite3"}),
        packages="libpython3-stdlib",  # the sandbox's Python holds SQLite
        functions=frozenset({"rows", "table"}),
        sample="select 'ready';\n",
    ),
)
LANGUAGES: Mapping[str, Language] = {language.name: language for language in _ALL}


def named(name: str) -> Language:
    """The language called `name`, in any case. Raises ValueError naming the nearest match."""
    by_alias = {alias: language for language in _ALL for alias in language.aliases}
    language = by_alias.get(name.lower())
    if language is None:
        close = get_close_matches(name.lower(), by_alias, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no language {name!r}.{hint} Known: {', '.join(LANGUAGES)}")
    return language
