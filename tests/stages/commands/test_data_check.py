"""A sound set passes; a wrong answer, a verifier that takes anything and a repetition are found."""

from dataclasses import replace

from veriloop.data.hub.load import Entry
from veriloop.data.problem import Problem
from veriloop.stages.commands.data_check import check
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict


class Judging:
    """Judges in this process, or as a test says."""

    def __init__(self, said=judge):
        self.said, self.asked = said, 0

    def judge_all(self, tasks):
        self.asked += len(tasks)
        return [self.said(problem, response) for problem, response in tasks]


def entries(*values, verifier="number"):
    key = {"number": "value", "math_answer": "answer"}[verifier]
    return [
        Entry(
            problem=Problem(
                id=f"s/train/{n}", prompt=f"Question {n}?", verifier=verifier, reference={key: v}
            )
        )
        for n, v in enumerate(values)
    ]


def test_a_sound_set_has_its_answers_accepted_and_others_refused():
    found = check(entries("1", "2", "3"), Judging())
    assert found.sound and (found.problems, found.answers, found.strangers) == (3, 3, 3)
    assert found.refused == found.failed == found.mistaken == found.duplicates == ()


def test_an_answer_that_its_own_verifier_refuses_is_named():
    made = entries("1", "2", "3")
    wrong = Judging(lambda problem, said: Verdict(score=0.0, detail="not so"))
    found = check(made, wrong)
    assert not found.sound and len(found.refused) == 3
    assert found.refused[0] == "s/train/0: graded, not so"


def test_a_verifier_that_fails_is_not_a_wrong_answer():
    found = check(entries("half"), Judging())
    assert not found.sound and found.refused == ()
    assert found.failed[0].startswith("s/train/0: error, ValueError: reference value 'half'")


def test_a_verifier_that_cannot_read_the_references_of_rows_without_answers_is_named():
    made = [
        replace(e, problem=replace(e.problem, verifier="code_tests")) for e in entries("1", "2")
    ]
    result = check(made, Judging())
    assert (result.unanswered, result.answers, len(result.failed)) == (2, 0, 1) and not result.sound
    assert result.failed[0].startswith("s/train/0: error, ValueError: no reference key 'value'")


def test_a_verifier_that_takes_one_answer_too_many_is_found():
    def lax(problem, said):
        return Verdict(score=1.0) if problem.id.endswith("/0") else judge(problem, said)

    found = check(entries("1", "2", "3"), Judging(lax))
    assert found.mistaken == ("s/train/0: accepts '\\\\boxed{2}', the answer to s/train/1",)
    assert not found.sound


def test_equal_answers_in_other_words_are_no_mistake():
    found = check(entries("0.5", "\\frac{1}{2}", "7", verifier="math_answer"), Judging())
    assert found.sound and found.strangers == 3


def test_neighbours_are_of_one_verifier_and_differ():
    made = entries("1", "1") + entries("x", verifier="math_answer")
    found = check(made, Judging())
    assert found.strangers == 0 and found.answers == 3


def test_repetitions_and_long_prompts_are_named_and_are_no_fault():
    first, second = entries("1", "2")
    again = replace(second.problem, prompt=" Question  0? ")
    found = check([first, Entry(problem=again)], Judging(), lambda one: one.id.endswith("/0"))
    assert found.duplicates == found.too_long == ("s/train/1",) and found.sound


def test_problems_without_an_answer_are_counted_and_programs_tried_as_often_as_asked():
    tests = [{"stdin": "", "expected_stdout": "1"}]
    problem = Problem(id="s/0", prompt="?", verifier="code_tests", reference={"tests": tests})
    programs = Entry(problem=problem, solutions=("print(1)", "print( 1)", "print(2)"))
    bare = Entry(problem=replace(problem, id="s/1"))
    found = check([programs, bare], Judging(), most=3)
    assert (found.answers, found.unanswered) == (3, 1)
    assert len(found.refused) == 1 and found.refused[0].startswith("s/0: graded")
