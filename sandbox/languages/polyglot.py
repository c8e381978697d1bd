"""Runs programs in other languages on a Python executor, each through a trusted Python shim.

Compiling is a run that returns the binary as data; running is a run that executes the binary, a
shell or node in place of the shim. So the limits, filters and namespaces are those of a Python run.
"""

import base64
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Call, Dialogue, Executor, Invocation, Program, Stdin
from veriloop.sandbox.languages.table import Language, named
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution

MAX_SOURCE = 1 << 20  # characters
MAX_BINARY = 8 << 20  # bytes
COMPILE = Limits(
    cpu_s=10,
    memory_mb=1024,
    counted="group",
    processes=6,  # the driver, the compiler, the assembler, the linker and its own driver
    disk_mb=64,
    output_bytes=2 * MAX_BINARY + 1024,  # the frame encodes bytes in hexadecimal
)
_SAMPLE_LIMITS = Limits(cpu_s=5, memory_mb=256)
_CACHED = 8  # compiled programs: the tests of a program come in several batches
_NEAR = 0.95  # of the CPU limit: the kernel kills the compiler, and its driver reports an error
_SET_UP, _SET_UP_DONE = b"set-up\n", b"set-up\nset-up done\n"  # as in shims/sql.py
_MAX_ARGS = 1_500_000  # bytes of JSON that shims/exec_program.py can pass on without a file
_KILLED = b"Killed signal terminated program"  # message of the gcc driver
_FULL = (b"File too large", b"No space left on device")
_ERROR = re.compile(r"^.* error: .*$|^\w*Error: .*$", re.MULTILINE)  # of gcc, of node
_MAX_REASON = 300  # characters
_SHIMS = Path(__file__).parent / "shims"


class Polyglot:
    """Runs programs in other languages on a Python executor. Thread-safe."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._built: OrderedDict[tuple[str, str], bytes | Execution] = OrderedDict()
        self._works: set[str] = set()

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """As Executor.run_all; if a program does not compile, every input has that result.

        Raises ValueError for an unknown language or a feature that the language lacks, and
        SandboxUnavailableError if its tools or the isolation that they need are missing.
        """
        language = named(program.language)
        if language.name == "python":
            return self._executor.run_all(replace(program, language="python"), invocations, limits)
        inputs = [_shim_input(language, case, self._executor.tier) for case in invocations]
        if program.preload:
            raise ValueError(
                f"preload is only for Python, got {program.preload} for a {language.title} program"
            )
        if failure := self._check(language):
            return [failure] * len(invocations)
        return self._run(language, program.source, inputs, limits)

    def _check(self, language: Language) -> Execution | None:
        """Run a sample program once. Raises SandboxUnavailableError if it does not work; returns an
        infrastructure failure."""
        if language.name in self._works:
            return None
        try:
            (run,) = self._run(language, language.sample, [Stdin()], _SAMPLE_LIMITS)
        except SandboxUnavailableError as error:
            raise SandboxUnavailableError(f"{_requirements(language)}: {error}") from error
        if run.ended == "sandbox_error":
            return run
        if run.stdout != b"ready\n":
            stderr = run.stderr.decode("utf-8", "replace").strip()[-400:]
            raise SandboxUnavailableError(
                f"{_requirements(language)}: {run.ended} {run.why}; {stderr}"
            )
        self._works.add(language.name)
        return None

    def _run(
        self, language: Language, source: str, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        if len(source) > MAX_SOURCE:
            why = f"the source has {len(source)} characters; at most {MAX_SOURCE} are allowed"
            return [Execution(ended="error", why=why)] * len(invocations)
        binary = self._compiled(language, source) if language.compiler else b""
        if isinstance(binary, Execution):
            return [binary] * len(invocations)
        shim_bytes = len(binary) + 6 * len(source) + max(map(_size, invocations), default=0)
        bounds = replace(
            limits,
            counted=language.counted,
            processes=max(limits.processes, language.processes),
            disk_mb=limits.disk_mb + (shim_bytes >> 20) + 1,  # files of the shim are not counted
            error_bytes=limits.error_bytes + (len(_SET_UP_DONE) if language.name == "sql" else 0),
        )
        shim = Program(source=_shim(language, source, binary, limits))
        return [
            _outcome(language, run, limits)
            for run in self._executor.run_all(shim, invocations, bounds)
        ]

    def _compiled(self, language: Language, source: str) -> bytes | Execution:
        """The binary, or the failed compilation; infrastructure failures are not cached."""
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
            while len(self._built) > _CACHED:
                self._built.popitem(last=False)
        return done

    def _compile(self, language: Language, source: str) -> bytes | Execution:
        command = list(language.compiler)
        call = Call(function="build", args=(command, source, language.suffix, MAX_BINARY))
        run = self._executor.run(Program(source=_text("build.py")), call, COMPILE)
        if isinstance(run.value, bytes):
            return run.value
        if isinstance(run.value, int):
            why = f"the binary has {run.value} bytes; at most {MAX_BINARY} are allowed"
            return replace(run, ended="output", value=None, why=why)
        killed = _KILLED in run.stderr or run.cpu_s >= _NEAR * COMPILE.cpu_s
        if run.ended == "error" and killed:  # out of memory would have ended as "memory"
            return replace(run, ended="cpu", why=f"compiling used {run.cpu_s:.1f} s of CPU")
        if run.ended == "error" and any(words in run.stderr for words in _FULL):
            return replace(run, ended="output", why=f"compiling wrote over {COMPILE.disk_mb} MB")
        return replace(run, why=f"compiling: {_reason(run)}")


def compile_seconds(language: str) -> float:
    """The time limit for compiling a program in this language."""
    return COMPILE.wall if named(language).compiler else 0.0


def _reason(run: Execution) -> str:
    """The first error message on standard error, which need not be its last line."""
    error = _ERROR.search(run.stderr.decode("utf-8", "replace")) if run.ended == "error" else None
    return error.group()[:_MAX_REASON] if error else run.why


def _requirements(language: Language) -> str:
    cgroup = ", and tier 1 with a cgroup" if language.needs_cgroup else ""
    return f"{language.title} cannot run here; it needs the packages {language.packages}{cgroup}"


def _shim_input(language: Language, invocation: Invocation, tier: int) -> Invocation:
    """The input of the shim. Raises ValueError for a call that the language does not support."""
    if isinstance(invocation, Stdin):
        return invocation
    if isinstance(invocation, Dialogue):
        raise ValueError(f"a dialogue is between Python programs, not {language.title}")
    language.check_call(invocation.function)
    if language.name == "sql":
        return invocation
    if invocation.kwargs or not invocation.function.isidentifier():
        raise ValueError(
            f"{language.title} functions have a name and take no keywords, "
            f"got {invocation.function!r} and {sorted(invocation.kwargs)}"
        )
    args = wire.encode(list(invocation.args))[wire.LENGTH_BYTES :].decode("ascii")
    if tier == 2 and len(args) > _MAX_ARGS:
        raise ValueError(
            f"arguments of {invocation.function!r} have {len(args)} bytes; without a writable file "
            f"(tier 2) a {language.title} function takes at most {_MAX_ARGS}"
        )
    return Call(function="call", args=(invocation.function, args))


def _size(invocation: Invocation) -> int:
    return (
        sum(2 * len(word) for word in invocation.args if isinstance(word, str))
        if isinstance(invocation, Call)
        else 0
    )


def _shim(language: Language, source: str, binary: bytes, limits: Limits) -> str:
    """The Python program that executes this one."""
    if language.name == "sql":
        return f"{_text('sql.py')}\n{_SQL.format(source=source)}"
    if language.compiler:
        ending = f"native({base64.b64encode(binary).decode()!r})"
    elif language.name == "bash":
        ending = f"bash({source!r})"
    else:
        return f"{_text('exec_program.py')}\n" + _NODE.format(
            source=source, start=_text("start.js"), memory_mb=limits.memory_mb
        )
    return f"{_text('exec_program.py')}\n{ending}\n"


_SQL = """
SOURCE = {source!r}
note()
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


def _outcome(language: Language, run: Execution, limits: Limits) -> Execution:
    """The execution with the runtime's message for its end; a forged one earns nothing better.

    A runtime that cannot allocate may crash before it can say so.
    """
    if language.name == "sql":
        rest = run.stderr.removeprefix(_SET_UP_DONE)
        if rest.startswith(_SET_UP):  # the program has not begun
            return replace(run, ended="sandbox_error", why=f"setting up the database: {run.why}")
        run = replace(run, stderr=rest)
    message = next((text for text in language.out_of_memory if text in run.stderr), None)
    if run.ended in ("error", "signal") and message is not None:
        return replace(run, ended="memory", why=message.decode())
    if run.ended == "signal" and run.peak_mb > limits.memory_mb:
        over = f"{run.peak_mb:.0f} MB of {limits.memory_mb} MB in use"
        return replace(run, ended="memory", why=f"{run.why} with {over}")
    return replace(run, why=_reason(run))
