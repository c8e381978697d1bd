"""reasoning-gym's tasks, strictly: no parts, no hedges, and no answer is ever evaluated."""

import importlib.util
import sys
from types import ModuleType

import pytest

from veriloop.verifiers import reasoning_gym as strict
from veriloop.verifiers.reasoning_gym import NotPlain, hedged, judge_answer, plain_formula
from veriloop.verifiers.registry import get, judge

QUEENS = "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _"
MIRROR = "_ _ Q _\nQ _ _ _\n_ _ _ Q\n_ Q _ _"


@pytest.fixture
def scorer(monkeypatch):
    """A package whose scorer pays what a test sets, and keeps what it was shown.

    An exception is raised for answers other than the entry's own, unless `module.broken`.
    """
    module = ModuleType("reasoning_gym")
    module.pays, module.shown, module.broken = 1.0, [], False

    def score_answer(answer, entry):
        module.shown.append(answer)
        if isinstance(module.pays, Exception):
            if module.broken or answer != entry["answer"]:
                raise module.pays
            return 1.0
        return module.pays

    module.get_score_answer_fn = lambda task: score_answer
    monkeypatch.setitem(sys.modules, "reasoning_gym", module)
    strict._scorer.cache_clear()
    yield module
    strict._scorer.cache_clear()


def entry(answer, **metadata):
    return {"question": "?", "answer": answer, "metadata": metadata}


@pytest.mark.parametrize(
    ("task", "record", "answer", "right"),
    [
        ("binary_matrix", entry("0 1\n1 0"), "[[0, 1], [1, 0]]", True),
        ("binary_matrix", entry("0 1\n1 0"), "0  1 \n 1 0", True),
        ("binary_matrix", entry("0 1\n1 0"), "[[0, 1], [1, 1]]", False),
        ("spiral_matrix", entry("1 2 4 3"), "(1, 2, 4, 3)", True),
        ("string_insertion", entry("ABC"), "['A', 'B', 'C']", True),
        ("string_insertion", entry("ABC"), "ABCD", False),
        ("n_queens", entry(QUEENS, valid_answers=[QUEENS, MIRROR]), MIRROR, True),
        ("n_queens", entry(QUEENS, valid_answers=[QUEENS]), MIRROR, False),
        ("countdown", entry("5 + 3", numbers=[3, 5], target=8), "3 + 5 = 8", True),
        ("countdown", entry("5 + 3", numbers=[3, 5], target=8), "3 + 5 = 9", False),
        ("countdown", entry("9", numbers=[2, 3], target=8), "2**3", False),
        ("countdown", entry("5 + 3", numbers=[3, 5], target=8), "8", False),
        ("puzzle24", entry("6*4", numbers=[4, 6]), "4 × 6", True),
    ],
)
def test_tasks_that_evaluate_answers_are_judged_without_their_scorer(task, record, answer, right):
    assert judge_answer(task, answer, record)[0] is right


@pytest.mark.parametrize("task", [*strict.MATRICES, *strict.FORMULAS, "countdown", "puzzle24"])
@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').abort()",
        "[__import__('os').getpid()]",
        "(lambda: 1)()",
        "9**9**9**9",
        "x.__class__",
        "[x for x in (1,)]",
        "f'{1}'",
        "exec('1')",
        "[" * 5_000,
        "x" * 10_000,
        "(" * 300 + "x" + ")" * 300,
        "N(9**9)",
        "S('x')",
        "factorial(9)",
        "x if x else y",
        "'a'",
    ],
    ids=range(16),
)
def test_nothing_but_data_reaches_a_scorer(scorer, task, answer):
    record = entry("17", numbers=[4, 6], target=10)
    assert not judge_answer(task, answer, record)[0] and scorer.shown == []


@pytest.mark.parametrize(
    "text",
    [
        "2240*x**5 - 896*x**4",
        "-34*x**8/15 - 5*x/4 + C",
        "-4*(-2*x - 8)**(3/2)/3 + C",
        "x*sin(x)",
        "exp(2*x)/2 + C",
        "log(Abs(x)) + C",
        "2*pi*x",
        "(x + 1)**2*(x - 1)",
        "+x",
        "x**(-1)",
        "1.5*x",
        "exp(-x**2/2)",
    ],
)
def test_plain_formulas_pass(text):
    plain_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x^2",
        "2x",
        "x**100",
        "x**(9*9*9)",
        "9**9**9",
        "(9**9)**9",
        "x**x**x",
        "9**61",
        "True",
        "foo(x)",
        "sin(x, 2)",
        "sin",
        "x; y",
        "x = 1",
        "x!",
        "[x]",
        "x.y",
        "x[0]",
        "1j",
        "x // 2",
        "x % 2",
    ],
)
def test_anything_else_does_not(text):
    with pytest.raises(NotPlain):
        plain_formula(text)


def test_formulas_are_shown_to_the_scorer_once_they_are_plain(scorer):
    record = entry("x**2 + C")
    assert judge_answer("simple_integration", "C + x**2", record) == (True, "")
    assert scorer.shown == ["C + x**2"]


@pytest.mark.parametrize("pays", [0.01, 0.5, 0.99, ValueError("x"), ZeroDivisionError()])
def test_less_than_full_marks_is_nothing(scorer, pays):
    scorer.pays = pays
    assert not judge_answer("letter_counting", "3", entry("4"))[0]


@pytest.mark.parametrize("pays", [ValueError("x"), KeyError("grid"), ZeroDivisionError()])
def test_a_scorer_that_cannot_read_its_own_entry_abstains(scorer, pays):
    scorer.pays, scorer.broken = pays, True
    problem = get("reasoning_gym").problem({"task": "letter_counting", "entry": entry("4")})
    verdict = judge(problem, "<answer>3</answer>")
    assert (verdict.status, verdict.score) == ("error", None)
    assert judge(problem, "<answer>4</answer>").score == 1.0
    assert judge(problem, "no answer").status == "no_answer"


def test_a_task_that_the_package_does_not_know_is_our_error(scorer):
    def unknown(task):
        raise ValueError(f"no dataset {task}")

    sys.modules["reasoning_gym"].get_score_answer_fn = unknown
    strict._scorer.cache_clear()
    problem = get("reasoning_gym").problem({"task": "no_such_task", "entry": entry("4")})
    verdict = judge(problem, "<answer>7</answer>")
    assert verdict.status == "error" and "no dataset no_such_task" in verdict.detail


@pytest.mark.parametrize(
    "answer",
    ["17 or 4", "4 or 17", "4, 17", "17, 4", "4\n4", "maybe 4", "4 4", "either 4", "perhaps 17"],
)
def test_hedging_earns_nothing_even_where_the_scorer_pays(scorer, answer):
    assert not judge_answer("letter_counting", answer, entry("4"))[0] and scorer.shown == []


def test_words_of_the_oracle_are_no_hedge():
    assert not hedged("true or false", ["True or False"])
    assert not hedged("14", ["4"]) and hedged("14 4", ["4"])


def test_own_answers_are_accepted_padded_or_from_the_metadata(scorer):
    scorer.pays = 0.0
    verifier = get("reasoning_gym")
    reference = {"task": "rubiks_cube", "entry": entry(None, example_correct_answer=" R' B' ")}
    assert judge(verifier.problem(reference), "<answer>\n  R' B' \n</answer>").score == 1.0


@pytest.mark.parametrize(
    ("task", "oracle", "answer", "right"),
    [
        ("calendar_arithmetic", "Friday", "friday", True),
        ("course_schedule", "False", "FALSE", True),
        ("sokoban", "DRL", "drl", True),
        ("game_of_life_halting", "True", "true", True),
        ("calendar_arithmetic", "Friday", "monday", False),
        ("calendar_arithmetic", "Friday", "friday or monday", False),
        ("codeio", '{"a": 1}', '{"A": 1}', False),
        ("rubiks_cube", "F U", "f u", False),
    ],
)
def test_case_counts_only_where_it_distinguishes_answers(scorer, task, oracle, answer, right):
    scorer.pays = 0.05
    assert judge_answer(task, answer, entry(oracle))[0] is right


def test_a_task_whose_scorer_takes_anything_needs_the_very_answer(scorer):
    assert not judge_answer("game_of_life_halting", "I don't know", entry("False"))[0]
    assert judge_answer("game_of_life_halting", "False", entry("False"))[0]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    strict._scorer.cache_clear()
    problem = get("reasoning_gym").problem({"task": "letter_counting", "entry": entry("4")})
    verdict = judge(problem, "<answer>5</answer>")
    assert verdict.status == "error" and "requirements/reasoning-gym.txt" in verdict.detail


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed"
)
def test_the_real_package_scores_through_the_verifier():
    import reasoning_gym

    strict._scorer.cache_clear()
    for task in ("letter_counting", "simple_integration", "polynomial_multiplication", "sokoban"):
        (record,) = reasoning_gym.create_dataset(task, size=1, seed=3)
        reference = {"task": task, "entry": dict(record)}
        own = f"<answer> {record['answer']} </answer>"
        assert judge(get("reasoning_gym").problem(reference), own).score == 1.0
        hedge = f"<answer>{record['answer']} or 17</answer>"
        assert judge(get("reasoning_gym").problem(reference), hedge).score == 0.0
