"""Tests that are code, run without letting what they expect come near the program.

The tests run in one sandbox, the program in another, and messages go between them: the tests ask
(call this, read that attribute, give the next item), the program answers, or asks back where it
was given a callback. A run cannot wait, so each message costs one: the side that is to speak next
starts again with all it has heard so far and ends with its next word. Only plain data crosses;
objects, generators and functions stay where they were made, and the other side holds a proxy
(`verifiers/split`). The program reaches neither the tests nor their verdict.
"""

import importlib.util
import marshal
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.executor import Call, Executor, Program
from sandbox.limits import Limits
from sandbox.result import Execution
from verifiers.code_outcome import OURS, Outcome
from verifiers.split.talk import digest

MAX_QUESTIONS = 300  # of the tests to the program, in one trial
MAX_CALLBACKS = 300  # of the program to the tests

_SHARED = ("values", "talk", "errors", "proxies")  # files of both sides
_FILES = {"trial": (*_SHARED, "stand_in", "tests_side"), "replay": (*_SHARED, "program_side")}
_OWN_IMPORT = re.compile(r"^from verifiers\.\S+ import (\([^)]*\)|[^\n]*)\n", re.MULTILINE)
_LOADER = """
import importlib.util, marshal

def run(magic, files, entry, args):
    names = {}
    for code, source in files:  # each finds the public names of those before it
        names = {name: value for name, value in names.items() if not name.startswith("_")}
        names["__name__"] = "split"
        same = magic == importlib.util.MAGIC_NUMBER
        exec(marshal.loads(code) if same else compile(source, "split.py", "exec"), names)
    return names[entry](*args)
"""


def run_trial(
    box: Executor,
    program: Program,
    needed: Sequence[str],
    tests: str,
    limits: Limits,
    setup: str = "",
) -> Outcome:
    """Whether `tests` pass on the program: on its function or class `needed[0]`, on the other
    names it must define, and on whatever else of it they use.

    `limits` hold for each answer of either side, their wall time for the whole trial. Tests may
    be statements, define `check(candidate)`, be functions and classes for pytest or unittest, and
    import the program as `solution`. "broken" when they cannot be used: they fail by themselves,
    never ask the program, differ from run to run, ask for what cannot cross, or too often.
    """
    return _Trial(box, program, needed, (setup, tests), limits).run()


class _Trial:
    def __init__(
        self,
        box: Executor,
        program: Program,
        needed: Sequence[str],
        tests: tuple[str, str],
        limits: Limits,
    ) -> None:
        self._box = box
        self._limits = limits
        self._ends = time.monotonic() + limits.wall
        self._program = _Side(program.preload, "replay", (program.source, list(needed)))
        self._tests = _Side(program.preload, "trial", (needed[0], *tests))

    def run(self) -> Outcome:
        while True:
            if over := self._tests_speak() or self._program_speaks():
                return over

    def _tests_speak(self) -> Outcome | None:
        begun = bool(self._program.said)
        ran = self._speak(self._tests, heard=self._program.said)
        if ran.ended in OURS:
            return Outcome(ran.ended, ran.why)
        if ran.ended != "ok" and not begun:  # the program has no part in it
            return Outcome("broken", f"ended {ran.ended} unasked")
        if ran.ended in ("protocol", "error"):  # `trial` itself never raises
            return Outcome("broken", "the tests pass what cannot cross")
        if ran.ended != "ok":
            return Outcome(ran.ended)
        if not self._tests.takes(ran.value):
            return Outcome("broken", "questions differ from one run to the next")
        match self._tests.said[-1]:
            case ["over", ended]:
                return Outcome(ended)
            case ["over", "broken" as ended, why]:
                return Outcome(ended, why)
        if self._tests.questions > MAX_QUESTIONS:
            return Outcome("broken", f"more than {MAX_QUESTIONS} questions to the program")
        return None

    def _program_speaks(self) -> Outcome | None:
        ran = self._speak(self._program, heard=self._tests.said)
        if ran.ended in OURS:
            return Outcome(ran.ended, ran.why)
        if ran.ended != "ok":
            return Outcome(ran.ended)
        if not self._program.takes(ran.value):
            return Outcome("wrong")
        return Outcome("wall") if self._program.questions > MAX_CALLBACKS else None

    def _speak(self, side: "_Side", heard: Sequence[Any]) -> Execution:
        """One run of a side. What it took to come this far before is added to its CPU limit."""
        left = self._ends - time.monotonic()
        if left <= 0:
            return Execution(ended="wall")
        limits = replace(self._limits, cpu_s=self._limits.cpu_s + side.cpu_s, wall_s=left)
        ran = self._box.run(side.program, side.call(heard), limits)
        side.cpu_s = ran.cpu_s
        return ran


class _Side:
    """What one side has said, and how to run it."""

    def __init__(self, preload: tuple[str, ...], entry: str, args: tuple[Any, ...]) -> None:
        self.program = Program(source=_LOADER, preload=preload)
        self.said: list[Any] = []
        self.cpu_s = 0.0  # of its last run
        self.questions = 0
        self._entry = entry
        self._args = args

    def call(self, heard: Sequence[Any]) -> Call:
        files = [_shipped(name) for name in _FILES[self._entry]]
        args = (importlib.util.MAGIC_NUMBER, files, self._entry, (*self._args, list(heard)))
        return Call(function="run", args=args)

    def takes(self, told: Any) -> bool:
        """Keep what was said, if it goes on from what was said before."""
        match told:
            case [int() as count, str() as before, [str() as kind, *_] as last]:
                if count != len(self.said) + 1 or before != digest(self.said):
                    return False
                self.said.append(last)
                self.questions += kind == "ask"
                return True
            case _:
                return False


@cache
def _shipped(name: str) -> tuple[bytes, str]:
    """A file of what runs inside: compiled for a Python of our own version, and as source."""
    text = (Path(__file__).parent / "split" / f"{name}.py").read_text(encoding="utf-8")
    source = _OWN_IMPORT.sub("", text)
    return marshal.dumps(compile(source, "split.py", "exec", dont_inherit=True)), source
