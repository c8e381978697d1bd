"""Steps of a chain, one score each, where they stand."""

import time
from random import Random

import pytest

from data.arithmetic import Chain, draw
from verifiers.registry import get, judge
from verifiers.unit_chain import MAX_STEPS, step_scores, steps


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8+7-5 = 15-5 = 10", [("8+7-5 = 15-5", 1.0), ("15-5 = 10", 1.0)]),
        ("First 5+3=8, then 8-2=5.", [("5+3=8", 1.0), ("8-2=5", 0.0)]),
        ("首先8+7=15，然后15-5=10。", [("8+7=15", 1.0), ("15-5=10", 1.0)]),
        ("- 3+4 = 7\n- 3+4 = 8", [("3+4 = 7", 1.0), ("3+4 = 8", 0.0)]),
        ("2×3=6 and 6÷4=3/2", [("2×3=6", 1.0), ("6÷4=3/2", 1.0)]),
        ("so 3 = 3 - which", [("3 = 3", 1.0)]),
        ("2+(3=5", []),
        ("x+3=5, f(2)=4, 1.5+1=2.5, 7=7.5, a_1=3, = 4 =", []),
        ("1/0=1", []),
        ("", []),
    ],
)
def test_every_equality_of_integers_is_a_step(text, found):
    assert [(step.text, step.score) for step in steps(text)] == found
    assert all(text[step.start : step.end] == step.text for step in steps(text))
    assert step_scores(text) == [score for _, score in found]


def test_a_wrong_link_is_wrong_and_its_neighbours_are_not():
    assert step_scores("9+4+1 = 13+1 = 15 = 15") == [1.0, 0.0, 1.0]


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
        scores = step_scores(written_out(chain))
        assert scores == [1.0] * len(chain.rest)
        off = Chain(chain.first + 1, chain.rest)
        assert step_scores(f"{chain} = {off}") == [0.0]


@pytest.mark.parametrize(
    ("response", "score", "first_wrong"),
    [
        ("<think>5+3=8; 8-2=6</think><answer>6</answer>", 1.0, -1),
        ("<think>5+3=8; 8-2=5</think><answer>6</answer>", 0.5, 1),
        ("<think>5+3=8; 8-2=5</think><answer>5</answer>", 0.25, 1),
        ("<think>5+3=9; 9-2=5</think><answer>5</answer>", 0.0, 0),
        ("<think>clear</think><answer>6</answer>", 0.0, -1),
    ],
)
def test_the_score_is_the_share_of_right_steps_halved_for_a_wrong_answer(
    response, score, first_wrong
):
    verdict = judge(get("unit_chain").problem({"value": 6}), response)
    assert verdict.score == score and verdict.components["first_wrong"] == first_wrong


@pytest.mark.slow
def test_long_texts_are_read_in_linear_time():
    assert len(steps("1=1; " * 2_000)) == MAX_STEPS
    began = time.process_time()
    for junk in ("9" * 200_000, "=" * 100_000, "1+" * 100_000, "(" * 100_000 + "=1"):
        steps(junk)
    assert time.process_time() - began < 2.0
