"""Reference answers that are not worked out: their values, and what sympy must not decide."""

import json
import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import psutil
import pytest
import sympy

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.verifiers.math import algebra, sympy_process, to_sympy
from veriloop.verifiers.math.decide import decide
from veriloop.verifiers.math.statements import read
from veriloop.verifiers.math.to_sympy import UndecidedError
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import fingerprint, judge, seconds_for

CASES = Path(__file__).parents[1] / "cases" / "math_not_worked_out.jsonl"
ROWS = [json.loads(line) for line in CASES.read_text().splitlines()]
HALF = r"\int_0^1 x\,dx"
OURS = {"binomial sum", "floor", "mod", "product", "series", "form"}  # we evaluate some of these


def problem_of(gold, **facts):
    return Problem(
        id="a/0", prompt="", verifier="math_answer", reference={"answer": gold}, facts=facts
    )


def judged(gold, answer, **facts):
    verdict = judge(problem_of(gold, **facts), rf"\boxed{{{answer}}}")
    return verdict.score, verdict.status


def tree(text):
    return read(text).parts[0].sides[0]


@pytest.fixture
def no_cache():
    sympy_process.ask.cache_clear()
    decide.cache_clear()
    yield
    sympy_process.ask.cache_clear()
    decide.cache_clear()


SLOW = {"integral", "product", "series"}  # sympy takes seconds
KINDS = [
    pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ())
    for kind in sorted({row["category"] for row in ROWS})
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_answers_to_golds_that_are_not_worked_out_are_judged_right(kind):
    for row in ROWS:
        if row["category"] != kind:
            continue
        if row["label"] is None:
            with pytest.raises(UndecidedError):
                decide(row["gold"], row["answer"])
            continue
        right, rule = decide(row["gold"], row["answer"])
        assert right == row["label"], row
        assert rule == "computer algebra" or kind in OURS or "int" in row["answer"], row


def test_the_table_holds_many_golds_with_right_and_wrong_answers():
    golds = {row["gold"] for row in ROWS}
    for label in (True, False):
        assert len({row["gold"] for row in ROWS if row["label"] is label}) >= 60
    assert len(golds) > 70


@pytest.mark.usefixtures("no_cache")
def test_the_value_is_the_one_that_sympy_returns(monkeypatch):
    nodes = []

    def ask(node, point=(), cpu_s=0):
        nodes.append((node.op, point))
        return "value", "7", "0"

    monkeypatch.setattr(algebra, "ask", ask)
    assert decide(HALF, "7") == (True, "computer algebra")
    assert decide(HALF, r"\frac12") == (False, "computer algebra")
    assert nodes == [("integral", ()), ("integral", ())]


@pytest.mark.usefixtures("no_cache")
def test_sympy_is_not_asked_about_answers_that_are_worked_out(monkeypatch):
    def ask(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(algebra, "ask", ask)
    for gold, answer in [("1/2", "0.5"), ("1/2", "1/3"), ("1/2", HALF), (r"2\sqrt{3}", "x^2"),
                         (r"\sum_{k=1}^{9}k", "44"), (f"{HALF}=\\frac12", "1")]:  # fmt: skip
        decide(gold, answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "answer", "use", "outcome"),
    [
        (HALF, r"\frac12", "fallback", (1.0, "graded")),
        (HALF, r"\frac12", "always", (1.0, "graded")),
        (HALF, r"\frac12", "never", (None, "error")),
        (HALF, r"\frac13", "never", (None, "error")),
        (HALF, HALF, "never", (1.0, "graded")),  # the same text
        (HALF, r"\int_0^1 x", "never", (0.0, "graded")),  # nothing that could be right
        (HALF, r"\int_0^1 t\,dt", "fallback", (1.0, "graded")),
        (HALF, r"\int_0^1 t^2\,dt", "fallback", (0.0, "graded")),
        (r"\frac12", HALF, "fallback", (0.0, "graded")),  # the response is not worked out
        (r"\frac12", HALF, "never", (0.0, "graded")),
        (r"\frac12", HALF, "always", (1.0, "graded")),
        (r"\frac13", HALF, "always", (0.0, "graded")),
        ("24", r"\Gamma(5)", "fallback", (0.0, "graded")),
        ("24", r"\Gamma(5)", "always", (1.0, "graded")),
        (HALF, r"\frac12", "sometimes", (None, "error")),
    ],
)
def test_the_setting_says_what_is_worked_out(gold, answer, use, outcome):
    assert judged(gold, answer, computer_algebra=use) == outcome


@pytest.mark.parametrize("answer", ["1", "x^2", r"\{1,2\}", r"\int_0^1 x\,dx", "(0,1)"])
def test_a_gold_without_a_value_is_our_error(answer):
    gold = r"\int_0^1 f(x)\,dx"
    assert judged(gold, answer) == (None, "error")
    assert judged(gold, gold) == (1.0, "graded")


@pytest.mark.parametrize("response", [r"\frac{1}{", "((((", r"\int", "9" * 3_000, "@", "not 1"])
def test_a_malformed_response_to_a_gold_without_a_value_is_wrong(response):
    verdict = judge(problem_of(r"\int_0^1 f(x)\,dx"), f"<answer>{response}</answer>")
    assert verdict.score == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9^{9}}}",
        r"\int_0^1 x^{9^{9^{9}}}\,dx",
        r"\int_0^{10^{10^{10}}} x\,dx",
        r"\Gamma(10^{10^{10}})",
        r"\zeta(10^{100})",
        r"\int_0^1" * 50 + "x^2" + "\\,dx" * 50,
        "+".join([HALF] * 20),
        r"\lim_{x\to 0}" * 20 + "x",
        r"\det" * 30 + "x",
        r"\binom{10^7}{5\cdot 10^6}+\int_0^1 dx",
        "(" * 300 + HALF + ")" * 300,
        r"\int_0^1 f(x)\,dx",
        r"\lim_{x\to\infty}\sin x",
        r"\int_0^1 x",
        r"\oint_C z\,dz",
        r"\int_{-1}^1\frac{dx}{x}",
        pytest.param(r"\sum_{k=1}^{10^9} k!", marks=pytest.mark.slow),
        pytest.param(r"\prod_{k=1}^{10^9}\Gamma(k)", marks=pytest.mark.slow),
    ],
    ids=lambda bomb: bomb[:20],
)
def test_no_response_turns_its_zero_into_an_error(bomb):
    decide(HALF, "1")
    with cpu_budget(4):  # of this process
        assert judged(HALF, bomb) == (0.0, "graded")
    assert judged(HALF, r"\frac12") == (1.0, "graded")


@pytest.mark.slow
@pytest.mark.usefixtures("no_cache")
def test_a_request_past_its_cpu_time_is_undecided_and_the_next_is_answered():
    kind, reason, _ = sympy_process.ask(tree(r"\sum_{k=1}^{10^9} k!"), (), 0.3)
    assert kind == "undecided" and "exceeded 0.3 s of CPU" in reason
    assert sympy_process.ask(tree(HALF)) == ("value", "1/2", "0")


@pytest.mark.slow
@pytest.mark.usefixtures("no_cache")
def test_a_request_past_its_wall_clock_ends_the_process(monkeypatch):
    sympy_process.ask(tree(HALF))
    process = sympy_process._processes[os.getpid()]
    monkeypatch.setattr(sympy_process, "BUSY", 0.0)
    assert sympy_process.ask(tree(r"\sum_{k=1}^{10^9} k!"))[0] == "undecided"
    assert process._popen.poll() is not None
    assert os.getpid() not in sympy_process._processes


def test_values_at_a_point_and_complex_values():
    point = (("a", Fraction(3)),)
    assert sympy_process.ask(tree(r"\int_0^a x^2\,dx"), point) == ("value", "9", "0")
    kind, real, imaginary = sympy_process.ask(tree(r"i\int_0^1 x\,dx+\Gamma(5)"))
    assert (kind, Fraction(real), Fraction(imaginary)) == ("value", 24, Fraction(1, 2))
    assert sympy_process.ask(tree(r"\int_0^a x\,dx")) == ("undecided", "no values for a", "")


def test_a_closed_form_that_quadrature_contradicts_is_undecided(monkeypatch):
    assert to_sympy.value(tree(HALF), {}) == ("1/2", "0")
    monkeypatch.setattr(to_sympy, "_closed", lambda written: sympy.Rational(1, 3))
    with pytest.raises(UndecidedError, match=r"1/3 differs from the numeric value 0\.5"):
        to_sympy.value(tree(HALF), {})


@pytest.mark.slow
def test_a_sum_without_a_closed_form_has_a_numeric_value_if_it_converges(monkeypatch):
    monkeypatch.setattr(to_sympy, "_closed", lambda written: written)
    real, _ = to_sympy.value(tree(r"\sum_{k=1}^{\infty}\frac{1}{k^2}"), {})
    assert float(real) == pytest.approx(float(sympy.zeta(2)), rel=1e-12)
    with pytest.raises(UndecidedError, match="neither a closed form nor a numeric value"):
        to_sympy.value(tree(r"\sum_{k=0}^{\infty}(-1)^k"), {})


@pytest.mark.slow
def test_the_process_that_judges_does_not_import_sympy():
    code = (
        "import sys\n"
        "from veriloop.verifiers.math.decide import decide\n"
        f"assert decide({HALF!r}, '1/2') == (True, 'computer algebra')\n"
        "print('sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_a_pool_judges_them_within_its_limits_and_leaves_no_process():
    tasks = [(problem_of(HALF), r"\boxed{\frac12}"), (problem_of(HALF), r"\boxed{2}"),
             (problem_of("2"), r"\boxed{2}"), (problem_of(r"\nabla f"), r"\boxed{2}")]  # fmt: skip
    with VerifierPool(1) as pool:
        verdicts = pool.judge_all(tasks)
        children = sympy_children()
        assert pool.restarts == 0
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0, 1.0, None]
    assert children
    deadline = time.monotonic() + 30
    while any(map(psutil.pid_exists, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(psutil.pid_exists, children))


def sympy_children():
    """Processes of computer algebra that workers of this process started."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.ppid() != os.getpid() and "to_sympy" in " ".join(child.cmdline())
    }


@pytest.mark.slow
def test_a_pool_gives_its_facts_to_every_problem():
    never = {"computer_algebra": "never"}
    own = problem_of(HALF, computer_algebra="fallback")
    with VerifierPool(1, facts=never) as pool:
        verdicts = pool.judge_all([(problem_of(HALF), r"\boxed{\frac12}"), (own, r"\boxed{0.5}")])
        marked = pool.fingerprint(["math_answer", "number"])
    assert [verdict.status for verdict in verdicts] == ["error", "graded"]
    plain = fingerprint(["math_answer", "number"])
    assert marked == plain | {"math_answer": f"{plain['math_answer']},computer_algebra=never"}


def test_the_time_of_computer_algebra_is_separate_from_the_limit_of_the_pool():
    for gold in (
        HALF,
        r"\frac{d}{dx}x^2",
        r"\operatorname{erf}(1)",
        r"\begin{vmatrix}1\end{vmatrix}",
    ):
        assert seconds_for(problem_of(gold)) > 60
    for gold in ("42", r"\frac{3}{4}", r"\text{Yes}", "x^2d"):
        assert seconds_for(problem_of(gold)) == 0.0
    assert seconds_for(problem_of("42", computer_algebra="always")) > 60


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        (r"\int_0^1 x\,dx+\int_0^1 x^2\,dx", ("add", "integral", "integral")),
        (r"\int_0^1\int_0^x xy\,\mathrm{d}y\,\mathrm dx", ("integral", "integral")),
        (r"\int\frac{dx}{x}+1", ("add", "integral")),
        (r"\int_0^12xdx", ("integral",)),
        (r"\int\sin\theta d\theta", ("integral",)),
        (r"\lim_{x\to0}\lim_{y\to0^+}\frac{x}{y}", ("limit", "limit")),
        (r"\frac{\partial^2}{\partial x\partial y}(x^2y)", ("derivative",)),
        (r"\frac{d^{2}}{d x^{2}}x^3", ("derivative",)),
        (r"\frac{dy}{dx}", ()),
        (r"\frac{d}{2}x", ()),
        (r"\zeta(1-\zeta)", ()),
        (r"\beta(x+1)", ()),
        (r"\limsup_{n\to\infty}a_n", ("opaque",)),
        (r"\iint_D x\,dA", ("opaque",)),
        (r"\int_0^1 x\,dx\,dy", ("integral",)),
    ],
)
def test_the_grammar_reads_calculus(text, ops):
    def walk(node):
        known = ("add", "integral", "limit", "derivative", "opaque")
        found = [node.op] if node.op in known and (node.op != "add" or "+" in text) else []
        return found + [op for arg in node.args for op in walk(arg)]

    assert tuple(op for op in walk(tree(text)) if op != "add" or "add" in ops) == ops
