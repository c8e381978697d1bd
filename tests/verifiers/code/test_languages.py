"""Problems whose programs are in another language, from the response to the verdict."""

import pytest

from tests.clock import Clock
from veriloop.data.problem import Problem
from veriloop.sandbox.languages.polyglot import COMPILE
from veriloop.sandbox.languages.table import LANGUAGES
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code import budget
from veriloop.verifiers.code import tests as code_tests
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.registry import judge

ADD = {"tests": [{"stdin": f"{n} 1\n", "expected_stdout": f"{n + 1}\n"} for n in range(5)]}
CALL = {
    "tests": [{"args": [n, [1]], "expected": {"sum": n + 1, "of": [n, 1]}} for n in range(3)],
    "function": "add",
}
ROWS = {
    "tests": [{"args": ["create table t(a); insert into t values (1), (2);"], "expected": [[3]]}],
    "function": "rows",
}
RIGHT = {
    "c": ('#include <stdio.h>\nint main(void) { int a, b; scanf("%d%d", &a, &b);'
          ' printf("%d\\n", a + b); }', ADD),
    "c++": ("#include <iostream>\nint main() { int a, b; std::cin >> a >> b;"
            " std::cout << a + b << std::endl; }", ADD),
    "node": ("const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\n"
             "console.log(a + b)", ADD),
    "js": ("const add = (n, [one]) => ({ sum: n + one, of: [n, one] })", CALL),
    "sh": ("read a b\necho $((a + b))", ADD),
    "sql": ("select sum(a) from t", ROWS),
}  # fmt: skip
WRONG = {
    name: source.replace("+", "-").replace("sum(", "max(") for name, (source, _) in RIGHT.items()
}


@pytest.fixture(scope="module")
def real_box():
    try:
        box = NamespaceExecutor(slots=1)
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))
    with box:
        yield box


@pytest.mark.slow
@pytest.mark.parametrize("tag", RIGHT)
def test_a_response_in_another_language_is_judged_end_to_end(tag, real_box, monkeypatch):
    monkeypatch.setattr(code_tests, "executor", lambda: real_box)
    source, tests = RIGHT[tag]
    limits = {"cpu_s": 2.0, "memory_mb": 256}
    reference = {**tests, "language": tag, "limits": limits}
    problem = Problem(id="x/0", prompt="", verifier="code_tests", reference=reference)

    def verdict(program):
        noise = "```text\n2\n```"
        return judge(problem, f"<think>Hm.</think>So:\n```{tag}\n{program}\n```\n{noise}")

    result = verdict(source)
    if result.status == "error" and "cannot run here" in result.detail:
        pytest.skip(result.detail)
    assert (result.score, result.status) == (1.0, "graded"), result
    assert verdict(WRONG[tag]).score == 0.0 and verdict("(").score == 0.0


def test_a_language_goes_by_its_own_name_from_then_on():
    for alias, name in (("C++", "cpp"), ("js", "javascript"), (None, "python")):
        assert CodeReference.read({**ADD, "language": alias}).language == name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"language": "pyton"}, r"no language 'pyton'. Did you mean 'python'\?"),
        ({**CALL, "language": "c"}, "a C program reads standard input, it cannot be called"),
        ({**CALL, "language": "sql"}, "no function 'add' of a SQL program. Known: rows, table"),
        ({"language": "js", "preload": ["math"]}, "`preload` requires Python"),
    ],
)
def test_a_reference_that_its_language_cannot_meet_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CodeReference.read({**ADD, **change})


def test_compiling_has_time_of_its_own(monkeypatch):
    """All tests have what they would have in Python, even where compiling takes all it may."""
    clock, walls = Clock(), []
    monkeypatch.setattr(budget, "time", clock)

    class Slow:
        backend, tier = "slow", 1

        def run_all(self, program, invocations, limits):
            clock.now += limits.wall * len(invocations) + (0 if walls else COMPILE.wall)
            walls.extend([limits.wall] * len(invocations))
            return [Execution(ended="ok", cpu_s=limits.wall) for _ in invocations]

    reference = CodeReference.read({
        "tests": [{"stdin": "", "expected_stdout": ""}] * 20, "scoring": "share",
        "limits": {"wall_s": 3.0}, "total_s": 10.0, "language": "cpp",
    })  # fmt: skip
    assert reference.seconds == 30.0 + COMPILE.wall
    result = code_tests.judge_program(Slow(), "x", reference)
    assert walls == [3.0, 3.0, 3.0, 1.0] and clock.now == 10.0 + COMPILE.wall
    assert result.score == 4 / 20
    python = CodeReference.read({**ADD, "total_s": 10.0})
    assert python.seconds == 30.0 and LANGUAGES["python"].compiler == ()
