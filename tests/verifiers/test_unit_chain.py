"""Steps of a chain, one score each, where they stand."""

from random import Random

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.data.arithmetic import Chain, draw
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.unit_chain import MAX_STEPS, step_scores, steps


def scores_of(text):
    problem = get("unit_chain").problem({"value": 1})
    return [score for _, score in step_scores(problem, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8+7-5 = 15-5 = 10", [("8+7-5 = 15-5", 1.0), ("15-5 = 10", 1.0)]),
        ("First 5+3=8, then 8-2=5.", [("5+3=8", 1.0), ("8-2=5", 0.0)]),
        ("首先8+7=15，然后15-5=10。", [("8+7=15", 1.0), ("15-5=10", 1.0)]),
        ("- 3+4 = 7\n- 3+4 = 8", [("3+4 = 7", 1.0), ("3+4 = 8", 0.0)]),
        ("2×3=6 and 6÷4=3/2", [("2×3=6", 1.0), ("6÷4=3/2", 1.0)]),
        ("so 3+1 = 4 - which", [("3+1 = 4", 1.0)]),
        ("2+(3=5", []),
        ("x+3=5, f(2)=4, 1.5+1=2.5, 7=7.5, a_1=3, = 4 =", []),
        ("1/0=1", []),
        ("3=3; 2+3=3+2; 2*3 = (3*2)", []),
        ("2+3=5; 2 + 3 = 5; 3+2=5", [("2+3=5", 1.0)]),
        ("3=4; 3=4", [("3=4", 0.0)]),
        ("", []),
    ],
)
def test_every_equality_of_integers_is_a_step(text, expected):
    assert [(step.text, step.score) for step in steps(text)] == expected
    assert all(text[step.start : step.end] == step.text for step in steps(text))
    assert scores_of(text) == [score for _, score in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"$3 \times 4 = 12$", [(r"3 \times 4 = 12", 1.0)]),
        (r"\(3 \cdot 4 = 13\)", [(r"3 \cdot 4 = 13", 0.0)]),
        (r"\[ 8 \div 2 = 4 \]", [(r"8 \div 2 = 4", 1.0)]),
        (r"3+4=7 \\ 7-2=4 \\", [("3+4=7", 1.0), ("7-2=4", 0.0)]),
        (r"$2 \times 5 - 3 = 10 - 3 = 7$",
         [(r"2 \times 5 - 3 = 10 - 3", 1.0), ("10 - 3 = 7", 1.0)]),
        (r"so \implies 3\,+\,4 = 8", [(r"3\,+\,4 = 8", 0.0)]),
        (r"2\left(3+4\right) = 14; 2 \times \left(3+4\right) = 15",
         [(r"2\left(3+4\right) = 14", 1.0), (r"2 \times \left(3+4\right) = 15", 0.0)]),
        (r"3 \times 4 = 4 \times 3; 0 \times 5 = 0", [(r"0 \times 5 = 0", 1.0)]),
        (r"x \times 4 = 12, 3 \times x = 12", []),
    ],
)  # fmt: skip
def test_operations_in_latex_are_read_as_signs(text, expected):
    assert [(step.text, step.score) for step in steps(text)] == expected
    assert all(text[step.start : step.end] == step.text for step in steps(text))


@pytest.mark.parametrize(
    "text",
    [
        "x - 3 = 5", "x -3 = 5", "x + y - 3 = 5", "$x$ - 3 = 5", r"\frac{6}{2} - 3 = 0",
        "5 cm + 3 = 8", "5 apples - 3 = 2", "5 apples -3 = 2", "x_{1} + 2 = 5", "3! - 1 = 5",
        r"20\% \times 50 = 10", "sqrt 9 = 3", r"\sqrt 9 = 3", r"\log 8 = 3", r"17 \bmod 5 = 2",
        "17 mod 5 = 2", "2+2 = 2^2", r"3 \times 4 = 2 \sqrt{36}", "3+4 = 3 + x", "3+4 = 3 × x",
        r"3+4 = 1 \times x", "5 + $3 = 8", r"5 - \$3 = 2", "5 + 1,000 = 1005", "x² - 3 = 6",
        r"2\pi + 1 = 7", r"\alpha + 1 = 5",
    ],
)  # fmt: skip
def test_the_rest_of_a_formula_with_more_than_integers_is_no_step(text):
    assert steps(text) == []


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Then -3 + 5 = 2", 1.0), ("Then -3 + 5 = 3", 0.0), ("We get: - 3+5 = 2", 1.0),
        ("So 3 + 4 = 8", 0.0), (r"\text{So } 3 + 4 = 8", 0.0), ("Step 2: 3 + 4 = 7", 1.0),
        ("- $3 + 4 = 8$", 0.0), ("然后-3+5=3", 0.0), (r"3 + 4 = 8\text{ cm}", 0.0),
        (r"\quad 3+4 = 8", 0.0), (r"x = 3 \times 4 = 13", 0.0), ("3, 4+5 = 10", 0.0),
        ("1,2,4+5 = 10", 0.0),
        ("2+3 = 6 - which", 0.0), ("2+3 = 6 +\n", 0.0), ("y = 2. 3 + 4 = 8", 0.0),
    ],
)  # fmt: skip
def test_words_and_marks_before_an_equality_hide_no_step(text, score):
    assert [step.score for step in steps(text)] == [score]


def test_a_response_in_latex_scores_like_one_in_plain_signs():
    for times in ("*", "×", r"\times", r"\cdot"):
        response = f"<think>$3 {times} 4 = 12$, $12 - 6 = %s$</think><answer>%s</answer>"
        assert judge(get("unit_chain").problem({"value": 6}), response % (6, 6)).score == 1.0
        assert judge(get("unit_chain").problem({"value": 6}), response % (7, 7)).score == 0.25
        assert judge(get("unit_chain").problem({"value": 6}), response % (7, 6)).score == 0.5


def test_a_wrong_link_is_wrong_and_its_neighbours_are_not():
    assert scores_of("9+4+1 = 13+1 = 15 = 10+5") == [1.0, 0.0, 1.0]


def written_out(chain):
    lines = [str(chain)]
    while chain.rest:
        chain = chain.step()
        lines.append(str(chain))
    return " = ".join(lines)


def test_solutions_of_our_own_chains_are_right_step_by_step():
    random = Random(0)
    for _ in range(50):
        chain = draw(random, "train")
        scores = scores_of(written_out(chain))
        assert scores == [1.0] * len(chain.rest)
        off = Chain(chain.first + 1, chain.rest)
        assert scores_of(f"{chain} = {off}") == [0.0]


@pytest.mark.parametrize(
    ("response", "score", "first_wrong"),
    [
        ("<think>5+3=8; 8-2=6</think><answer>6</answer>", 1.0, -1),
        ("<think>5+3=8; 8-2=5</think><answer>6</answer>", 0.5, 1),
        ("<think>5+3=8; 8-2=5</think><answer>5</answer>", 0.25, 1),
        ("<think>5+3=9; 9-2=5</think><answer>5</answer>", 0.0, 0),
        ("<think>clear</think><answer>6</answer>", 0.0, -1),
        ("<think>5+3=8; 8-3=5</think><answer>5</answer>", 0.0, -1),
        ("<think>1+1=2; 2+1=3; 3+1=4; 4+1=5</think><answer>5</answer>", 0.0, -1),
        ("<think>9-8+5 = 1+5 = 6</think><answer>6</answer>", 1.0, -1),
        ("<think>3-3+6 = 0+6 = 6</think><answer>6</answer>", 1.0, -1),
        ("<think>6÷4=3/2; 3/2*4=6</think><answer>6</answer>", 1.0, -1),
        ("<think>1-3=-2; -2+8=6, as 6-8=-2</think><answer>6</answer>", 1.0, -1),
    ],
)
def test_the_score_is_the_share_of_right_steps_halved_for_a_wrong_answer(
    response, score, first_wrong
):
    verdict = judge(get("unit_chain").problem({"value": 6}), response)
    assert verdict.score == score and verdict.components["first_wrong"] == first_wrong


PADDING = {
    "one trivial step": "0+0=0; " * 200,
    "trivial steps": "".join(f"{n}+0={n}; {n}*1={n}; 0*{n}=0; {n}={n}; " for n in range(30)),
    "one true step": "1+1=2; " * 200,
    "the same step, rewritten": "2+3=5; 3+2=5; (2 + 3) = 5; ",
    "unrelated steps": "".join(f"{n}+50={n + 50}; " for n in range(100)),
}


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize(
    ("chain", "answer", "score"),
    [("", 7, 0.0), ("", 6, 0.0), ("5+4=8; 8-2=6", 6, 0.5), ("5+4=8; 8-2=6; ", 7, 0.0)],
)
def test_padding_earns_nothing(padding, chain, answer, score):
    response = f"<think>{chain}; {padding}</think><answer>{answer}</answer>"
    assert judge(get("unit_chain").problem({"value": 6}), response).score == score


@pytest.mark.slow
def test_long_texts_are_read_in_linear_time():
    assert len(steps("".join(f"{n}+1={n + 1}; " for n in range(2_000)))) == MAX_STEPS
    with cpu_budget(3):
        for junk in ("9" * 200_000, "=" * 100_000, "1+" * 100_000, "1=" * 100_000, "(=" * 100_000):
            steps(junk)


@pytest.mark.parametrize(
    ("answer", "score"),
    [("13", 1.0), (r"\boxed{13}", 1.0), (r"$\boxed{13}$", 1.0), (r"\boxed{14}", 0.0)],
)
def test_the_answer_in_tags_may_be_boxed(answer, score):
    problem = get("unit_chain").problem({"value": 13})
    assert judge(problem, f"<think>8+5=13</think><answer>{answer}</answer>").score == score
