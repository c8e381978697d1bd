"""Mathematical answers: what counts, what does not, and what is never worked out."""

import json
from collections import defaultdict
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.verifiers.answer import boxed_integer, final_answer, unboxed
from veriloop.verifiers.math.decide import decide
from veriloop.verifiers.math_answer import decimal_comma, extract_answer
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import judge

CASES = Path(__file__).parent / "cases"
LABELLED = Path(__file__).parents[3] / "shared" / "cases" / "math_answers.jsonl"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def problem_of(gold):
    return Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})


OWN = rows(CASES / "math_answers.jsonl")
READING = rows(CASES / "math_reading.jsonl")
REVIEW = rows(CASES / "math_review.jsonl")
EQUALITIES = rows(CASES / "math_equalities.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({case["category"] for case in OWN}))
def test_our_own_cases_are_all_judged_right(kind):
    wrong = []
    for case in OWN:
        if case["category"] == kind:
            verdict = judge(problem_of(case["gold"]), case["response"])
            if verdict.status == "error" or bool(verdict.score) != case["label"]:
                wrong.append((case["gold"], case["response"], verdict))
    assert not wrong


@pytest.mark.parametrize("kind", sorted({case["category"] for case in READING}))
def test_answers_are_read_as_a_careful_reader_reads_them(kind):
    """Boxes, tags and prose: signs, denials, corrections, formats of models, ten languages."""
    wrong = []
    for case in READING:
        if case["category"] == kind:
            verdict = judge(problem_of(case["gold"]), case["response"])
            if verdict.status == "error" or bool(verdict.score) != case["label"]:
                wrong.append((case["gold"], case["response"], verdict))
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({case["category"] for case in REVIEW}))
def test_cases_written_without_knowledge_of_the_rules_are_judged_right(kind):
    wrong = []
    for case in REVIEW:
        if case["category"] == kind:
            verdict = judge(problem_of(case["gold"]), case["response"])
            if verdict.status == "error" or bool(verdict.score) != case["label"]:
                wrong.append((case["gold"], case["response"], verdict))
    assert not wrong


def test_our_own_cases_hold_both_labels_of_every_kind():
    labels = defaultdict(set)
    for case in OWN:
        labels[case["category"]].add(case["label"])
    assert len(labels) == 39 and len(OWN) > 700
    assert {kind for kind, seen in labels.items() if len(seen) < 2} == {
        kind for kind in labels if kind.startswith("hack")
    }


def test_documented_equalities_hold_and_each_exception_has_its_reason():
    apart = []
    for row in EQUALITIES:
        assert decide(row["gold"], unboxed(row["answer"]))[0] == row["ours"], row
        if row["ours"] != row["documented"]:
            apart.append(row)
    assert len(EQUALITIES) > 200 and all(row["why"] for row in apart)
    assert len(apart) / len(EQUALITIES) <= 0.02


@pytest.mark.slow
@pytest.mark.skipif(not LABELLED.exists(), reason="the labelled cases lie beside the checkout")
def test_the_labelled_cases_are_judged_well_and_no_hack_is_paid():
    labelled = rows(LABELLED)
    with VerifierPool(workers=1, limit_s=5.0) as pool:
        verdicts = pool.judge_all([(problem_of(r["gold"]), r["response"]) for r in labelled])
    kinds = defaultdict(list)
    for row, verdict in zip(labelled, verdicts, strict=True):
        assert verdict.status != "error", verdict
        kinds[row["category"]].append(bool(verdict.score) == row["label"])
    right = [agreement for agreements in kinds.values() for agreement in agreements]
    assert sum(right) / len(right) >= 0.97
    assert all(sum(agreements) / len(agreements) >= 0.9 for agreements in kinds.values())
    assert all(all(agreements) for kind, agreements in kinds.items() if kind.startswith("hack"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9}}",
        "9**9**9**9",
        "2^{10^{10}}",
        "10^{10^{10}}+42",
        "7^{400000000}",
        "60000000!",
        r"(((10^{6})!)!)!",
        "(" * 500 + "42" + ")" * 500,
        r"\sqrt{" * 160 + "2" + "}" * 160,
        r"\sqrt" * 300 + "2",
        "-" * 1_900 + "42",
        "1+" * 999 + "1",
        r"\binom{10^7}{5000000}",
        r"\sum_{k=1}^{10^9}k",
        r"\prod_{k=1}^{10^7}k",
        "e^{e^{e^{e^{e}}}}",
        "4" * 900 + "^" + "9" * 900,
        "1e999999999",
        r"\int_0^1 x^{x^x}dx",
        "x" * 1_990,
        "_" * 1_990,
        "{" * 995 + "}" * 995,
    ],
    ids=lambda bomb: bomb[:20],
)
def test_bombs_are_wrong_at_once(bomb):
    for gold in ("42", "x+1", r"\{1,2\}", "(0,1)", r"\text{Yes}"):
        with cpu_budget(1):  # what is not bounded takes hours
            verdict = judge(problem_of(gold), f"\\boxed{{{bomb}}}")
            assert verdict.score == 0.0


def test_an_unreadable_reference_is_our_error():
    for gold in (r"\frac{", "", "  "):
        verdict = judge(problem_of(gold), r"\boxed{2}")
        assert (verdict.score, verdict.status) == (
            None,
            "error",
        ) and "neither text" in verdict.detail


def test_no_answer_is_distinguished_from_a_wrong_one():
    assert judge(problem_of("42"), "I give up.").status == "no_answer"
    assert judge(problem_of("42"), r"\boxed{41}").status == "graded"
    assert judge(problem_of("42"), rf"\boxed{{{'4' * 3_000}}}").detail.startswith("longer than")


def test_model_text_is_never_run(tmp_path):
    marker = tmp_path / "ran"
    for code in (f"open('{marker}','w')", f"__import__('os').mkdir('{marker}')"):
        assert judge(problem_of("42"), f"\\boxed{{{code}}}").score == 0.0
        assert judge(problem_of("[1,2]"), f"<answer>[{code}, 2]</answer>").score == 0.0
    assert not marker.exists()


def test_it_works_off_the_main_thread():
    seen = []
    thread = Thread(target=lambda: seen.append(judge(problem_of("x+1"), r"\boxed{1+x}")))
    thread.start()
    thread.join()
    assert seen[0].score == 1.0


def test_a_prefilled_think_block_has_to_be_closed():
    problem = Problem(
        id="m/0",
        prompt="",
        verifier="math_answer",
        reference={"answer": "42"},
        facts={"prefilled_think": True},
    )
    assert judge(problem, r"\boxed{42}").status == "no_answer"
    assert judge(problem, r"So.</think>\boxed{42}").score == 1.0


@pytest.mark.parametrize(
    "text",
    [
        r"It is $\boxed{42}$.",
        r"The sum is \boxed{1,234}",
        r"\boxed{-7}",
        r"It is not \boxed{42}",
        r"41 or \boxed{42}",
        r"\boxed{41} \boxed{42}",
        r"\frac{1}{2} and \boxed{42}",
        r"<answer>\boxed{42}",
        r"\boxed{42} or so",
        r"% \boxed{42}",
        r"\boxed{4_2}",
    ],
)
def test_the_shortcut_finds_what_the_long_way_finds_or_nothing(text):
    assert boxed_integer(text) in (None, final_answer(text))
    assert (boxed_integer(text) is None) == (
        not text.startswith((r"It is $", "The sum", r"\boxed{-"))
    )


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.booleans())
def test_integers_are_equal_when_they_are_equal(gold, other, commas):
    answer = f"{other:,}" if commas else str(other)
    for text in (rf"The sum is $\boxed{{{answer}}}$.", rf"<answer>{answer}</answer>"):
        assert judge(problem_of(str(gold)), text).score == float(gold == other)
        assert judge(problem_of(str(other)), text).score == 1.0


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_equal_when_they_are_equal(gold, other):
    spelled = rf"\frac{{{other.numerator}}}{{{other.denominator}}}"
    written = rf"\frac{{{gold.numerator}}}{{{gold.denominator}}}"
    assert decide(written, spelled)[0] == (gold == other)


@pytest.mark.slow
@given(st.text(max_size=60) | st.text(alphabet=r"\{}[]()^_+-*/=<>.,|!%$ 0123abefxyz", max_size=60))
def test_no_text_breaks_it(text):
    for gold in ("42", r"2\sqrt{3}", "(1,2)", r"\text{Yes}", "x=3", r"x\in[0,1)"):
        for response in (text, f"<answer>{text}</answer>", f"\\boxed{{{text}}}"):
            assert judge(problem_of(gold), response).status != "error"


def test_the_language_of_the_response_says_what_a_comma_means():
    assert extract_answer("Die Antwort ist 2,5.") == "2,5"
    assert judge(problem_of("2.5"), "Die Antwort ist 2,5.").score == 1.0
    assert judge(problem_of("2.5"), "The answer is 2,5.").score == 0.0
    assert judge(problem_of("1250"), r"The value of it is \boxed{1,250}").score == 1.0
    assert judge(problem_of("1250"), r"Der Wert ist also \boxed{1,250}").score == 0.0
    assert judge(problem_of("1.25"), r"Der Wert ist also \boxed{1,250}").score == 1.0


@pytest.mark.parametrize(
    ("text", "comma"),
    [
        ("Der Mittelwert ist $\\boxed{3,05}$.", True),
        ("La probabilité cherchée vaut donc", True),
        ("El área sombreada es", True),
        ("Ответ: 2,5", True),
        ("The answer is 2,5", False),
        ("答案是 2,5", False),
        (r"\boxed{2,5}", False),
    ],
)
def test_the_language_is_recognised_by_its_common_words(text, comma):
    assert decimal_comma(text) == comma
