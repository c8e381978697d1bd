"""Rows of supervised fine-tuning from questions whose sources know the steps to the answer."""

import json

import pytest

from veriloop.data.gym import GymSource
from veriloop.data.hub.source import SourceSpec, open_source
from veriloop.data.sft_rows import parse_rows
from veriloop.data.sources import SOURCES
from veriloop.data.worked_rows import worked_rows
from veriloop.verifiers.registry import judge

SETTINGS = {"min_terms": 2, "max_terms": 3, "max_digits": 2}


@pytest.fixture
def sources(tmp_path):
    """A reasoning-gym task, and a file with GSM8K's columns."""
    rows = [
        {"question": f"Ann has {n} and 1. All?", "answer": f"She has {n}+1=<<{n}+1={n + 1}>>{n + 1}"
         f" pears.\n#### {n + 1}"}
        for n in range(30)
    ] + [{"question": "Bob owes nothing.", "answer": "#### 0"}]  # fmt: skip
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    gsm8k, _ = open_source(SourceSpec(name="gsm8k", path=str(path), held_out=0.3))
    return {"gsm8k": gsm8k, "chain_sum": GymSource("chain_sum", SETTINGS, "chain_sum")}


def texts(row):
    return row["prompt"][0]["content"], row["completion"][0]["content"]


@pytest.mark.slow
def test_rows_have_steps_and_the_right_answer_and_their_verifier_accepts_them(sources):
    rows = worked_rows(sources, {"gsm8k": 1.0, "chain_sum": 2.0}, 0, 30)
    assert len({texts(row)[0] for row in rows}) == 30
    assert {row["source"] for row in rows} == set(sources)
    problems = {
        problem.prompt: problem
        for source in sources.values()
        for problem in source.distinct("rl", 0, 60)
    }
    asked = [(problems[question], answer) for question, answer in map(texts, rows)
             if question in problems]  # fmt: skip
    assert len(asked) > 10
    assert all(judge(problem, answer).score == 1.0 for problem, answer in asked)
    assert len(parse_rows(rows, "row")) == 30


def test_the_calculator_of_gsm8k_and_its_answer_line_are_left_out(sources):
    (row, *_) = worked_rows(sources, {"gsm8k": 1.0}, 0, 1)
    question, answer = texts(row)
    number = int(question.split()[2])
    steps = f"She has {number}+1={number + 1} pears."
    assert answer == f"<think>{steps}</think><answer>{number + 1}</answer>"


def test_sums_in_the_steps_are_spelled_out_by_place_value(sources):
    plain, spelled = (worked_rows(sources, {"chain_sum": 1.0}, 0, 30, {"chain_sum": steps})
                      for steps in ("operations", "places"))  # fmt: skip
    assert [row["prompt"] for row in plain] == [row["prompt"] for row in spelled]
    longer = 0
    for (_, plain_answer), (_, answer) in zip(map(texts, plain), map(texts, spelled), strict=True):
        assert answer.rpartition(" = ")[2] == plain_answer.rpartition(" = ")[2]
        longer += len(answer) > len(plain_answer)
    assert longer > 10


def test_only_the_steps_of_the_named_sources_are_spelled_out(sources):
    weights = {"gsm8k": 1.0, "chain_sum": 2.0}
    plain, spelled = (worked_rows(sources, weights, 0, 30, steps)
                      for steps in (None, {"chain_sum": "places"}))  # fmt: skip
    changed = {row["source"] for row, other in zip(plain, spelled, strict=True) if row != other}
    assert changed == {"chain_sum"}


def test_one_line_programs_have_their_expressions_as_steps():
    rows = worked_rows(SOURCES, {"programs": 1.0}, 0, 20)
    for question, answer in map(texts, rows):
        assert answer.startswith("<think>First x" if question.isascii() else "<think>先算x")
        assert answer.rpartition("<answer>")[2].startswith("def f(x): return ")


def test_no_question_is_held_out(sources):
    held_out = {problem.prompt for problem in sources["gsm8k"].distinct("test", 0, 99)}
    learned = len(sources["gsm8k"].distinct("rl", 0, 99))
    rows = worked_rows(sources, {"gsm8k": 1.0}, 0, learned - 1)  # one has no steps
    assert held_out and not held_out & {texts(row)[0] for row in rows}


def test_rows_depend_only_on_the_seed(sources):
    first, again, other = (worked_rows(sources, {"chain_sum": 1.0}, s, 5) for s in (0, 0, 1))
    assert first == again != other


def test_a_source_without_steps_and_too_few_questions_are_refused(sources):
    with pytest.raises(ValueError, match="'arithmetic' has no worked solutions"):
        worked_rows(SOURCES, {"arithmetic": 1.0}, 0, 1)
    with pytest.raises(ValueError, match=r"gsm8k: \d+ different questions .* rows=99 are too many"):
        worked_rows(sources, {"gsm8k": 1.0}, 0, 99)


@pytest.mark.parametrize("task", ["chain_sum", "basic_arithmetic"])
def test_the_steps_of_a_task_end_in_its_answer(task):
    source = GymSource(task, {"min_terms": 2, "max_terms": 4})
    problems = source.distinct("rl", 0, 40)
    worked = [(problem, source.worked(problem)) for problem in problems]
    assert sum(bool(steps) for _, steps in worked) > 30
    for problem, steps in worked:
        assert not steps or steps.endswith(f" = {problem.reference['entry']['answer']}.")


def test_a_task_that_is_no_expression_has_no_steps():
    source = GymSource("spell_backward", {})
    assert source.worked(source.problem("rl", 0, 0)) == ""
