"""One-line programs: what they compute, that two calls tell them apart, and who may see which."""

import re
from itertools import combinations, product
from random import Random

import pytest

from veriloop.data import programs
from veriloop.data.programs import (
    INPUTS,
    NUMBERS,
    Composition,
    distinct,
    draw,
    held_out,
    problem,
    slip,
    steps,
)
from veriloop.verifiers.registry import judge

SPLITS = ("train", "rl", "test")
OPERATIONS = [(sign, n) for sign, numbers in NUMBERS.items() for n in numbers]


def composed(text):
    return Composition(tuple((sign, int(n)) for sign, n in re.findall(r"([+*-])(\d+)", text)))


def by_hand(operations, x):
    for sign, n in operations:
        x = {"+": x + n, "-": x - n, "*": x * n}[sign]
    return x


@pytest.fixture(scope="module")
def space():
    return [Composition(ops) for k in (2, 3) for ops in product(OPERATIONS, repeat=k)]


@pytest.fixture(scope="module")
def drawn():
    return {
        s: [composed(problem(s, 0, i).facts["composition"]) for i in range(800)] for s in SPLITS
    }


def test_a_composition_does_its_operations_in_order(space):
    for one in Random(0).sample(space, 500):
        for x in (*INPUTS, 0, 1, 100):
            assert one(x) == by_hand(one.operations, x), one


def test_every_program_on_the_way_computes_what_has_been_done_so_far(space):
    for one in Random(1).sample(space, 300):
        for count, written in enumerate(one.expressions(), 1):
            value = eval(written, {"x": 13})
            assert value == by_hand(one.operations[:count], 13), (str(one), written)


def test_brackets_stand_only_where_a_sum_is_multiplied():
    assert list(composed("+3*2-1").expressions()) == ["x+3", "(x+3)*2", "(x+3)*2-1"]
    assert list(composed("*2+3*4").expressions()) == ["x*2", "x*2+3", "(x*2+3)*4"]
    assert list(composed("*2*3-1").expressions()) == ["x*2", "x*2*3", "x*2*3-1"]
    assert composed("*2+3").program() == "def f(x): return x*2+3"


def test_two_calls_tell_any_two_functions_of_the_space_apart(space):
    lines, results = {one.line for one in space}, set()
    for slope, intercept in lines:
        results.add(tuple(slope * x + intercept for x in INPUTS))
    assert len(space) > 10_000 and len(lines) > 900
    assert len(results) == len(lines)  # as many results as functions: none is taken for another
    for one in Random(2).sample(space, 300):
        assert [t["expected"] for t in programs.reference(one)["tests"]] == [
            by_hand(one.operations, x) for x in INPUTS
        ]


def test_one_call_would_not_do(space):
    for x in INPUTS:
        assert len({one(x) for one in space}) < len({one.line for one in space})


@pytest.mark.parametrize("split", SPLITS)
def test_a_problem_is_the_same_whatever_was_asked_before(split):
    forwards = [problem(split, 3, i) for i in range(30)]
    assert [problem(split, 3, i) for i in reversed(range(30))] == forwards[::-1]
    assert forwards != [problem(split, 4, i) for i in range(30)]


def test_no_two_splits_share_a_function(drawn):
    functions = {s: {one.line for one in drawn[s]} for s in SPLITS}
    for one, other in combinations(SPLITS, 2):
        assert not functions[one] & functions[other]
    assert min(map(len, functions.values())) > 50


@pytest.mark.parametrize("split", ["train", "rl"])
def test_no_program_on_the_way_is_held_out(split, drawn):
    on_the_way = {two for one in drawn[split] for two in one.prefixes()}
    assert len(on_the_way) > 400 and not any(map(held_out, on_the_way))


def test_without_that_rule_held_out_programs_would_be_shown(space):
    leaks = [
        one for one in space
        if programs.split_of(one) == "rl" and any(held_out(two) for two in one.prefixes())
    ]  # fmt: skip
    assert len(leaks) > 50


def test_what_one_operation_does_is_no_problem_and_never_held_out(drawn, space):
    assert not any(programs.trivial(one) for split in SPLITS for one in drawn[split])
    for text in ("+3-1", "+2-2", "*2*2", "+9-9*3"):
        assert programs.trivial(composed(text)) and not held_out(composed(text)), text
    assert not programs.trivial(composed("*2*3"))
    assert not any(held_out(Composition((one,))) for one in OPERATIONS)


def test_a_slip_is_another_function_and_shows_nothing_held_out():
    random = Random(0)
    compositions = [draw(random, "train") for _ in range(300)]
    slips = [slip(random, one) for one in compositions]
    assert all(s.line != one.line for s, one in zip(slips, compositions, strict=True))
    assert not any(held_out(two) for s in slips for two in s.prefixes())


def test_a_question_tells_every_operation_in_order_and_in_one_language():
    for i in range(200):
        asked = problem("train", 0, i)
        named = asked.prompt.replace("doubles it", "multiplies by 2").replace("triples it", "by 3")
        told = [int(n) for n in re.findall(r"\d+", named)]
        assert told == [n for _, n in composed(asked.facts["composition"]).operations]
        assert (asked.facts["language"] == "zh") == (not asked.prompt.isascii())
    signs = {"adds": "+", "subtracts": "-", "加": "+", "减": "-", "乘": "*",
             "doubles": "*", "triples": "*", "multiplies": "*"}  # fmt: skip
    for i in range(50):
        asked = problem("rl", 0, i)
        words = re.findall("|".join(signs), asked.prompt)
        assert [signs[w] for w in words] == [
            s for s, _ in composed(asked.facts["composition"]).operations
        ]


def test_facts_name_source_and_size():
    first = problem("rl", 0, 0)
    assert first.facts == {
        "source": "programs", "language": "en", "operations": 3, "composition": "-1+9*3",
    }  # fmt: skip
    assert first.id == "programs/rl/0/0" and first.verifier == "code_tests"


def test_an_evaluation_set_repeats_no_composition_and_grows_at_its_end():
    few, many = distinct("test", 2, 20), distinct("test", 2, 200)
    assert len({p.facts["composition"] for p in many}) == 200 and many[:20] == few


def test_a_set_larger_than_the_split_is_all_of_it(space, monkeypatch):
    assert {s: programs.available(s) for s in SPLITS} == {"train": 4484, "rl": 1608, "test": 535}
    few = [one for one in space if programs._belongs(one, "test")][:5]
    monkeypatch.setattr(programs, "available", lambda split: len(few))
    monkeypatch.setattr(programs, "draw", lambda random, split: random.choice(few))
    assert len(distinct("test", 0, 99)) == 5


def answered(program):
    return f"<think>First x*2. </think><answer>{program}</answer>"


@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("def f(x): return (x+3)*2", 1.0),
        ("def f(x): return x*2+6", 1.0),
        ("f = lambda x: 6 + x + x", 1.0),
        ("def f(y):\n    y += 3\n    return 2 * y", 1.0),
        ("def f(x): return x+3*2", 0.0),
        ("def f(x): return x*2+3", 0.0),
        ("def f(x): return 20", 0.0),
        ("def g(x): return (x+3)*2", 0.0),
        ("def f(x): return (x+3)*2.5", 0.0),
        ("def f(x) return (x+3)*2", 0.0),
    ],
)
def test_the_sandbox_judges_what_a_program_does_and_not_how_it_is_written(program, score):
    from dataclasses import replace

    asked = replace(problem("rl", 0, 0), reference=programs.reference(composed("+3*2")))
    verdict = judge(asked, answered(program))
    assert (verdict.score, verdict.status) == (score, "graded"), verdict


def test_the_verdict_comes_from_a_sandbox(monkeypatch):
    from veriloop.verifiers.code import tests as code_tests

    asked = problem("rl", 0, 0)
    right = answered(composed(asked.facts["composition"]).program())
    assert judge(asked, right).score == 1.0

    def broken():
        raise RuntimeError("no sandbox today")

    monkeypatch.setattr(code_tests, "executor", broken)
    assert judge(asked, right).status == "error"


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_within_its_limits():
    verdict = judge(problem("rl", 0, 0), answered("def f(x):\n    while True: pass"))
    assert (verdict.score, verdict.status) == (0.0, "timeout")


def test_the_steps_are_each_expression_in_the_words_of_its_language():
    doubled = composed("+3*2")
    assert steps(doubled, lambda: "en") == "First x+3. Then (x+3)*2. "
    assert steps(doubled, lambda: "zh") == "先算x+3。再算(x+3)*2。"
    languages = iter(("en", "zh"))
    assert steps(doubled, lambda: next(languages)) == "First x+3. 再算(x+3)*2。"
    assert all(doubled(x) == 2 * (x + 3) for x in INPUTS)


def test_a_problem_has_steps_in_its_language_and_a_program_that_passes_its_tests():
    asked = [problem("rl", 0, index) for index in range(40)]
    assert {p.facts["language"] for p in asked} == {"en", "zh"}
    for one in asked:
        text, program = programs.worked(one), programs.answer(one)
        assert text.startswith("First " if one.facts["language"] == "en" else "先算")
        assert text.rstrip(".。").endswith(program.removeprefix("def f(x): return "))
        compute = eval(program.replace("def f(x): return ", "lambda x: "))
        assert all(compute(t["args"][0]) == t["expected"] for t in one.reference["tests"])
