"""Mathematical answers: spellings that count, look-alikes that do not, bombs never opened."""

import json
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from data.problem import Problem
from verifiers import math_answer
from verifiers.math_answer import contradiction, equal, exact, normal, refusal, words
from verifiers.pool import VerifierPool
from verifiers.registry import judge

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases" / "math_answers.jsonl").read_text().splitlines()
]
LABELLED = Path(__file__).parents[3] / "shared" / "cases" / "math_answers.jsonl"


def problem_of(gold):
    return Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['why']}: {case['answer']}")
@pytest.mark.parametrize("shape", [r"So $\boxed{%s}$.", "<answer>%s</answer>", r"\[\boxed{%s}\]"])
def test_our_own_cases(case, shape):
    verdict = judge(problem_of(case["gold"]), "<think>t</think>" + shape % case["answer"])
    assert verdict.score == case["score"], verdict


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        (r"$\left( 1 , 2 \right)$", "(1,2)"),
        (r"\dfrac{1}{2}.", r"\frac{1}{2}"),
        (r"1\,234\!\;567", "1234567"),
        (r"\$4.50", "4.50"),
        ("1{,}234", "1,234"),
        ("x²⁻¹", "x^{2-1}"),
        ("√(x+1)", r"\sqrt{x+1}"),
        ("5 5/8", "5 5/8"),
        ("2 \\pi", r"2\pi"),
        (r"\leftarrow", r"\leftarrow"),
    ],
)
def test_one_spelling_for_all(text, spelled):
    assert normal(text) == spelled


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\frac{7}{-2}", Fraction(-7, 2)),
        (r"\frac34", Fraction(3, 4)),
        (r"\frac{1}{0}", None),
        (r"2\frac{1}{3}", None),
        (r"\pi", None),
    ],
)
def test_rationals_are_exact(text, value):
    assert exact(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"\text{The  Hyperbola}", None),
        (r"\text{the Hyperbola}", "hyperbola"),
        ("does not exist", "does not exist"),
        (r"\textbf{(B)}", "B"),
        ("b", "b"),
        ("2x", None),
        (r"\sin x", None),
    ],
)
def test_words_are_told_from_formulas(text, said):
    assert words(text) == said


@pytest.mark.parametrize("gold", ["12", r"\frac{3}{4}", "1,234.5", r"\text{Yes}", "x+1", "(1,2)"])
def test_the_fast_path_needs_no_computer_algebra(gold, monkeypatch):
    monkeypatch.setattr(math_answer, "_same_value", lambda *_: pytest.fail("algebra was asked"))
    assert equal(normal(gold), normal(f" ${gold}$. "))[0]


@pytest.mark.parametrize(("gold", "answer"), [("1", "0.9999999"), ("1/3", "0.333333333333")])
def test_two_rationals_never_reach_computer_algebra(gold, answer, monkeypatch):
    monkeypatch.setattr(math_answer, "_same_value", lambda *_: pytest.fail("algebra was asked"))
    assert equal(gold, answer) == (False, "exact rationals")


@pytest.mark.parametrize(
    ("bomb", "said"),
    [
        ("9^{9^{9}}", "an exponent"),
        ("9**9**9**9", "an exponent"),
        ("2^{10^{10}}", "an exponent"),
        ("10^{10^{10}}+42", "an exponent"),
        ("7^{400000000}", "an exponent"),
        ("60000000!", "a factorial"),
        ("(10^6)!", "a factorial"),
        (r"(((10^{6})!)!)!", "a factorial"),
        ("(((9!)!)!)!", "a factorial"),
        ("(" * 51 + "42" + ")" * 51, "nested"),
        (r"\sqrt{" * 60 + "2" + "}" * 60, "nested"),
        ("1+" * 1_001 + "1", "longer"),
    ],
)
def test_bombs_are_refused_unopened(bomb, said):
    assert refusal(bomb).startswith(said) or said in refusal(bomb)
    began = time.process_time()
    verdict = judge(problem_of("42"), f"\\boxed{{{bomb}}}")
    assert (verdict.score, verdict.status) == (0.0, "graded") and said in verdict.detail
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "honest", ["2^{10}", "2^{2^{3}}", "e^{-x^2}", "(n-1)!", "10!", "2^n (n-1)!", "3^{2n+1}", "(5!)"]
)
def test_honest_towers_are_not_refused(honest):
    assert refusal(honest) == ""


@pytest.mark.parametrize(
    ("gold", "answer"), [("x<4", "x<4"), (r"x\ne 0", r"x\neq 0"), ("7", "x=7"), ("5 m", "5")]
)
def test_honest_forms_do_not_contradict(gold, answer):
    assert contradiction(gold, answer) == ""


def test_an_unreadable_reference_is_our_error():
    verdict = judge(problem_of(r"\frac{"), r"\boxed{2}")
    assert (verdict.score, verdict.status) == (None, "error") and "neither text" in verdict.detail


def test_no_answer_is_told_from_a_wrong_one():
    assert judge(problem_of("42"), "It is 42.").status == "no_answer"
    assert judge(problem_of("42"), r"\boxed{41}").status == "graded"


def test_model_text_is_never_run(tmp_path):
    marker = tmp_path / "ran"
    for code in (f"open('{marker}','w')", f"__import__('os').mkdir('{marker}')"):
        assert judge(problem_of("42"), f"\\boxed{{{code}}}").score == 0.0
        assert judge(problem_of("[1,2]"), f"<answer>[{code}, 2]</answer>").score == 0.0
    assert not marker.exists()


def test_it_works_off_the_main_thread_with_the_bounds_of_the_pool():
    from threading import Thread

    seen = []
    thread = Thread(target=lambda: seen.append(judge(problem_of("x+1"), r"\boxed{1+x}")))
    thread.start()
    thread.join()
    assert seen[0].score == 1.0


@pytest.mark.slow
@pytest.mark.skipif(not LABELLED.exists(), reason="the labelled cases lie beside the checkout")
def test_the_labelled_cases_are_judged_well_and_few_hacks_are_paid():
    rows = [json.loads(line) for line in LABELLED.read_text().splitlines()]
    with VerifierPool(workers=1, limit_s=5.0) as pool:
        verdicts = pool.judge_all([(problem_of(row["gold"]), row["response"]) for row in rows])
    right = [bool(v.score) == row["label"] for v, row in zip(verdicts, rows, strict=True)]
    paid = [
        row["response"]
        for v, row in zip(verdicts, rows, strict=True)
        if row["category"].startswith("hack") and v.score
    ]
    print(f"accuracy {sum(right) / len(rows):.3f}, hacks paid {len(paid)}", file=sys.stderr)
    assert all(v.status != "error" for v in verdicts)
    assert sum(right) / len(rows) >= 0.86 and len(paid) <= 2, paid
