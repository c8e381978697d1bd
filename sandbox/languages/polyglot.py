"""Runs programs in other languages on an executor of Python: each becomes a trusted program there.

Compiling is a run that returns the binary as data; running is a run that becomes the binary, a
shell or node. Whatever bounds a Python program bounds these: limits, filters and namespaces stay.
"""

import base64
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox import wire
from sandbox.executor import Call, Executor, Given, Program, Stdin
from sandbox.languages.table import Language, named
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError
from sandbox.result import Execution

MAX_SOURCE = 1 << 20  # characters
MAX_BINARY = 8 << 20  # bytes
COMPILE = Limits(
    cpu_s=10,
    memory_mb=1024,
    counted="group",
    processes=6,  # the driver, the compiler, the assembler, the linker and its own driver
    disk_mb=64,
    output_bytes=2 * MAX_BINARY + 1024,  # of the frame, which spells bytes in hexadecimal
)
_TRIAL = Limits(cpu_s=5, memory_mb=256)
_KEPT = 8  # compiled programs: the tests of one come in several batches
_NEAR = 0.95  # of the CPU limit: the kernel ends the compiler, and its driver reports an error
_SET_UP_FAILED = 90  # as in shims/sql.py
_MOST_ARGS = 1_500_000  # bytes of JSON that shims/become.py can pass on without a file
_KILLED = b"Killed signal terminated program"  # as a driver of gcc says it
_FULL = (b"File too large", b"No space left on device")
_ERROR = re.compile(r"^.* error: .*$|^\w*Error: .*$", re.MULTILINE)  # of gcc, of node
_TOLD = 300  # characters of a reason
_SHIMS = Path(__file__).parent / "shims"


class Polyglot:
    """Needs an executor that runs Python. May be called from any thread."""

    def __init__(self, box: Executor) -> None:
        self._box = box
        self._lock = threading.Lock()
        self._built: OrderedDict[tuple[str, str], bytes | Execution] = OrderedDict()
        self._works: set[str] = set()

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """As Executor.run_all; a program that does not compile ends so for every input.

        Raises ValueError for an unknown language and for what the language does not have,
        SandboxUnavailableError where its tools, or what must bound them, are missing.
        """
        language = named(program.language)
        if language.name == "python":
            return self._box.run_all(replace(program, language="python"), given, limits)
        asked = [_asked(language, one, self._box.tier) for one in given]
        if program.preload:
            raise ValueError(
                f"preload is for Python alone, got {program.preload} for a {language.title} program"
            )
        failed = self._trial(language)
        return (
            [failed] * len(given) if failed else self._run(language, program.source, asked, limits)
        )

    def _trial(self, language: Language) -> Execution | None:
        """Raises SandboxUnavailableError unless a small program runs; returns a failure of ours."""
        if language.name in self._works:
            return None
        try:
            (ran,) = self._run(language, language.sample, [Stdin()], _TRIAL)
        except SandboxUnavailableError as refusal:
            raise SandboxUnavailableError(f"{_needs(language)}: {refusal}") from refusal
        if ran.ended == "sandbox_error":
            return ran
        if ran.stdout != b"ready\n":
            told = ran.stderr.decode("utf-8", "replace").strip()[-400:]
            raise SandboxUnavailableError(f"{_needs(language)}: {ran.ended} {ran.why}; {told}")
        self._works.add(language.name)
        return None

    def _run(
        self, language: Language, source: str, given: Sequence[Given], limits: Limits
    ) -> list[Execution]:
        if len(source) > MAX_SOURCE:
            why = f"the source has {len(source)} characters; at most {MAX_SOURCE} are allowed"
            return [Execution(ended="error", why=why)] * len(given)
        binary = self._compiled(language, source) if language.compiler else b""
        if isinstance(binary, Execution):
            return [binary] * len(given)
        more = len(binary) + 6 * len(source) + max(map(_size, given), default=0)
        bounds = replace(
            limits,
            counted=language.counted,
            processes=max(limits.processes, language.processes),
            disk_mb=limits.disk_mb + (more >> 20) + 1,  # what we put there is not the program's
        )
        shim = Program(source=_shim(language, source, binary, limits))
        return [_outcome(language, ran) for ran in self._box.run_all(shim, given, bounds)]

    def _compiled(self, language: Language, source: str) -> bytes | Execution:
        """The binary, or how compiling ended; what is our failure is not remembered."""
        key = (language.name, source)
        with self._lock:
            if key in self._built:
                self._built.move_to_end(key)
                return self._built[key]
        done = self._compile(language, source)
        if isinstance(done, Execution) and done.ended == "sandbox_error":
            return done
        with self._lock:
            self._built[key] = done
            while len(self._built) > _KEPT:
                self._built.popitem(last=False)
        return done

    def _compile(self, language: Language, source: str) -> bytes | Execution:
        command = list(language.compiler)
        call = Call(function="build", args=(command, source, language.suffix, MAX_BINARY))
        ran = self._box.run(Program(source=_text("build.py")), call, COMPILE)
        if isinstance(ran.value, bytes):
            return ran.value
        if isinstance(ran.value, int):
            why = f"the binary has {ran.value} bytes; at most {MAX_BINARY} are allowed"
            return replace(ran, ended="output", value=None, why=why)
        killed = _KILLED in ran.stderr or ran.cpu_s >= _NEAR * COMPILE.cpu_s
        if ran.ended == "error" and killed:  # for memory it would have ended so
            return replace(ran, ended="cpu", why=f"compiling used {ran.cpu_s:.1f} s of CPU")
        if ran.ended == "error" and any(words in ran.stderr for words in _FULL):
            return replace(ran, ended="output", why=f"compiling wrote over {COMPILE.disk_mb} MB")
        return replace(ran, why=f"compiling: {_why(ran)}")


def compile_seconds(language: str) -> float:
    """Within which a program in this language is compiled, or has failed to."""
    return COMPILE.wall if named(language).compiler else 0.0


def _why(ran: Execution) -> str:
    """The first error on standard error, where it holds one: its last line may be anything."""
    found = _ERROR.search(ran.stderr.decode("utf-8", "replace")) if ran.ended == "error" else None
    return found.group()[:_TOLD] if found else ran.why


def _needs(language: Language) -> str:
    more = ", and tier 1 with a cgroup" if language.needs_cgroup else ""
    return f"{language.title} cannot run here; it needs the packages {language.packages}{more}"


def _asked(language: Language, given: Given, tier: int) -> Given:
    """The input as the shim takes it. Raises ValueError where the language has no such thing."""
    if isinstance(given, Stdin):
        return given
    language.check_call(given.function)
    if language.name == "sql":
        return given
    if given.kwargs or not given.function.isidentifier():
        raise ValueError(
            f"{language.title} functions have a name and take no keywords, "
            f"got {given.function!r} and {sorted(given.kwargs)}"
        )
    args = wire.encode(list(given.args))[wire.LENGTH_BYTES :].decode("ascii")
    if tier == 2 and len(args) > _MOST_ARGS:
        raise ValueError(
            f"arguments of {given.function!r} have {len(args)} bytes; without a writable file "
            f"(tier 2) a {language.title} function takes at most {_MOST_ARGS}"
        )
    return Call(function="call", args=(given.function, args))


def _size(given: Given) -> int:
    return (
        sum(2 * len(word) for word in given.args if isinstance(word, str))
        if isinstance(given, Call)
        else 0
    )


def _shim(language: Language, source: str, binary: bytes, limits: Limits) -> str:
    """The Python program that becomes this one."""
    if language.name == "sql":
        return f"{_text('sql.py')}\n{_SQL.format(source=source)}"
    if language.compiler:
        ending = f"native({base64.b64encode(binary).decode()!r})"
    elif language.name == "bash":
        ending = f"bash({source!r})"
    else:
        return f"{_text('become.py')}\n" + _NODE.format(
            source=source, start=_text("start.js"), memory_mb=limits.memory_mb
        )
    return f"{_text('become.py')}\n{ending}\n"


_SQL = """
SOURCE = {source!r}
def rows(setup=""): return _table(setup, SOURCE)["rows"]
_table, table = table, lambda setup="": _table(setup, SOURCE)
if __name__ == "__main__": show(sys.stdin.read(), SOURCE)
"""
_NODE = """
SOURCE, START = {source!r}, {start!r}
def call(function, args): javascript(START, {memory_mb}, SOURCE, function, args)
if __name__ == "__main__": javascript(START, {memory_mb}, SOURCE)
"""


def _text(name: str) -> str:
    return (_SHIMS / name).read_text(encoding="utf-8")


def _outcome(language: Language, ran: Execution) -> Execution:
    """The end as this language's runtime tells it; its own word earns a program nothing better."""
    if language.name == "sql" and ran.exit_code == _SET_UP_FAILED:
        return replace(ran, ended="sandbox_error", why=ran.why)
    told = next((words for words in language.out_of_memory if words in ran.stderr), None)
    if ran.ended in ("error", "signal") and told is not None:
        return replace(ran, ended="memory", why=told.decode())
    return replace(ran, why=_why(ran))
