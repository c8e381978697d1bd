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
