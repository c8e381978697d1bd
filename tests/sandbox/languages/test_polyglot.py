"""What is asked of the executor below, told by one that only pretends."""

from dataclasses import replace

import pytest

from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.languages.polyglot import (
    COMPILE,
    MAX_BINARY,
    MAX_SOURCE,
    Polyglot,
    compile_seconds,
)
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution

LIMITS = Limits(cpu_s=1, memory_mb=100, disk_mb=10)
READY = Execution(ended="ok", exit_code=0, stdout=b"ready\n")
BINARY = b"\x7fELF of the test"


class Box:
    """Compiles to BINARY and runs to READY, unless told otherwise; the trial it passes."""

    backend, tier = "pretended", 1

    def __init__(self, compiled=None, ran=READY):
        self.compiled = compiled or Execution(ended="ok", exit_code=0, value=BINARY)
        self.ran = ran
        self.compiles, self.runs = [], []

    def run(self, program, invocation, limits):
        self.compiles.append((program, invocation, limits))
        return self.compiled if "ready" not in invocation.args[1] else replace(READY, value=BINARY)

    def run_all(self, program, invocations, limits):
        trial = not self.runs
        self.runs.append((program, list(invocations), limits))
        return [READY if trial else self.ran for _ in invocations]

    def close(self):
        pass


def run(box, source="int main() {}", language="c", given=None, limits=LIMITS):
    program = Program(source=source, language=language)
    return Polyglot(box).run_all(program, given or [Stdin()], limits)


def test_a_program_is_compiled_once_for_all_inputs_and_for_later_ones():
    box, given = Box(), [Stdin(data=b"1"), Stdin(data=b"2")]
    many = Polyglot(box)
    for _ in range(3):
        assert len(many.run_all(Program(source="int main() {}", language="c"), given, LIMITS)) == 2
    assert [call.args[1] == "int main() {}" for _, call, _ in box.compiles] == [False, True]
    assert [given for _, given, _ in box.runs[1:]] == [given] * 3
    assert all(limits == COMPILE for _, _, limits in box.compiles)


def test_compiled_programs_are_forgotten_in_the_end():
    box = Box()
    many = Polyglot(box)
    for n in [*range(9), 8, 0]:
        many.run_all(Program(source=f"int a{n};", language="c"), [Stdin()], LIMITS)
    asked = [call.args[1] for _, call, _ in box.compiles[1:]]
    assert asked == [*[f"int a{n};" for n in range(9)], "int a0;"]


def test_a_program_that_does_not_compile_ends_so_for_every_input():
    told = b"x.c: In function 'main':\nx.c:1:2: error: no such thing\n      ^\n"
    failed = Execution(ended="error", exit_code=1, stderr=told, why="exit code 1:  ^")
    box = Box(failed)
    found = run(box, given=[Stdin(), Stdin()])
    assert found == [replace(failed, why="compiling: x.c:1:2: error: no such thing")] * 2
    assert len(box.runs) == 1, "nothing but the trial was run"


@pytest.mark.parametrize("ended", ["cpu", "wall", "memory", "output"])
def test_a_compiler_that_runs_out_says_of_what_and_is_not_asked_again(ended):
    box = Box(Execution(ended=ended, why="so"))
    many = Polyglot(box)
    for _ in range(2):
        (found,) = many.run_all(Program(source="x", language="cpp"), [Stdin()], LIMITS)
        assert (found.ended, found.why) == (ended, "compiling: so")
    assert len(box.compiles) == 2


def test_a_driver_that_hides_why_the_compiler_died_is_seen_through():
    used_up = Execution(ended="error", exit_code=1, cpu_s=COMPILE.cpu_s)
    assert run(Box(used_up))[0].ended == "cpu"
    killed = b"g++: fatal error: Killed signal terminated program cc1plus\n"
    assert run(Box(replace(used_up, cpu_s=1.0, stderr=killed)))[0].ended == "cpu"
    full = Execution(ended="error", exit_code=1, stderr=b"a.o: File too large\n")
    assert run(Box(full))[0].ended == "output"


def test_our_failure_to_compile_is_no_verdict_and_is_tried_again():
    box = Box(Execution(ended="sandbox_error", why="lost"))
    many = Polyglot(box)
    program = Program(source="x", language="c")
    assert many.run_all(program, [Stdin()], LIMITS)[0].ended == "sandbox_error"
    box.compiled = Execution(ended="ok", value=BINARY)
    assert many.run_all(program, [Stdin()], LIMITS) == [READY]


def test_a_binary_that_is_too_large_is_too_much_output():
    (found,) = run(Box(Execution(ended="ok", value=MAX_BINARY + 1)))
    assert found.ended == "output" and found.value is None
    assert found.why == f"the binary has {MAX_BINARY + 1} bytes; at most {MAX_BINARY} are allowed"


def test_a_source_that_is_too_large_is_the_programs_own_failure():
    (found,) = run(Box(), source="x" * (MAX_SOURCE + 1))
    assert found.ended == "error" and f"at most {MAX_SOURCE}" in found.why


@pytest.mark.parametrize(
    ("language", "counted", "processes"),
    [("c", "group", 0), ("js", "data", 0), ("sh", "group", 16)],
)
def test_a_language_has_its_own_bounds_next_to_the_ones_asked_for(language, counted, processes):
    box = Box()
    run(box, source="x" * 200_000, language=language)
    limits = box.runs[-1][2]
    assert (limits.counted, limits.processes) == (counted, processes)
    assert limits == replace(LIMITS, counted=counted, processes=processes, disk_mb=limits.disk_mb)
    assert LIMITS.disk_mb < limits.disk_mb <= LIMITS.disk_mb + 3, "room for what is put there"


def test_more_processes_than_a_language_needs_stay_allowed():
    box = Box()
    run(box, language="bash", limits=replace(LIMITS, processes=40))
    assert box.runs[-1][2].processes == 40


def test_python_by_another_name_is_python():
    box = Box()
    run(box, source="print(1)", language="py")
    assert box.runs == [(Program(source="print(1)"), [Stdin()], LIMITS)]


def test_a_language_whose_trial_fails_is_refused_with_what_it_needs():
    class Lacking(Box):
        def run_all(self, program, invocations, limits):
            told = b"bash: cat: not found\n"
            return [Execution(ended="error", exit_code=127, stderr=told, why="exit code 127")]

    said = "Bash cannot run here; it needs the packages bash coreutils, and tier 1 with a cgroup"
    with pytest.raises(SandboxUnavailableError, match=said + r".*cat: not found"):
        run(Lacking(), language="bash")


def test_a_machine_that_cannot_bound_processes_is_refused_by_the_languages_name():
    class Unbounded(Box):
        def run(self, program, invocation, limits):
            raise SandboxUnavailableError("Limits.processes=6 needs tier 1 and a cgroup")

    with pytest.raises(SandboxUnavailableError, match=r"C\+\+ cannot run here; .*processes=6"):
        run(Unbounded(), language="c++")


def test_a_trial_that_fails_by_our_fault_gives_no_verdict_and_is_made_again():
    class Lost(Box):
        def run_all(self, program, invocations, limits):
            self.runs.append(program)
            return [Execution(ended="sandbox_error", why="lost") for _ in invocations]

    box = Lost()
    many = Polyglot(box)
    for _ in range(2):
        found = many.run_all(Program(source="x", language="js"), [Stdin()] * 2, LIMITS)
        assert [one.ended for one in found] == ["sandbox_error"] * 2
    assert len(box.runs) == 2


@pytest.mark.parametrize(
    ("language", "given", "said"),
    [
        ("c", Call(function="f"), "a C program reads standard input, it cannot be called"),
        ("bash", Call(function="f"), "a Bash program reads standard input"),
        ("sql", Call(function="f"), "no function 'f' of a SQL program. Known: rows, table"),
        ("js", Call(function="f", kwargs={"x": 1}), r"take no keywords, got 'f' and \['x'\]"),
        ("js", Call(function="f()"), r"functions have a name .* got 'f\(\)'"),
        ("js", Call(function="f", args=[object()]), "is not plain data"),
        ("rust", Stdin(), "no language 'rust'"),
    ],
)
def test_what_a_language_does_not_have_is_the_callers_mistake(language, given, said):
    with pytest.raises(ValueError, match=said):
        run(Box(), language=language, given=[given])


def test_modules_to_preload_are_for_python_alone():
    program = Program(source="", language="js", preload=("math",))
    with pytest.raises(ValueError, match="preload is only for Python"):
        Polyglot(Box()).run_all(program, [Stdin()], LIMITS)


def test_what_was_out_of_memory_is_reported_by_the_runtime():
    died = Execution(ended="signal", signal=6, stderr=b"what():  std::bad_alloc\n")
    assert run(Box(ran=died), language="cpp")[0].ended == "memory"
    assert run(Box(ran=died), language="c")[0].ended == "signal"
    fine = replace(died, ended="ok")
    assert run(Box(ran=fine), language="cpp") == [fine]


def test_a_runtime_that_crashes_over_its_memory_limit_was_out_of_memory():
    died = Execution(ended="signal", signal=11, peak_mb=140.7, why="died of SIGSEGV")
    found = run(Box(ran=died), language="js")[0]
    assert (found.ended, found.why) == ("memory", "died of SIGSEGV with 141 MB of 100 MB in use")
    below = replace(died, peak_mb=100.0)
    assert run(Box(ran=below), language="js") == [below]


def test_only_what_is_compiled_takes_time_for_it():
    assert compile_seconds("c++") == compile_seconds("c") == COMPILE.wall
    assert compile_seconds("js") == compile_seconds("python") == 0
