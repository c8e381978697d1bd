"""Every published set becomes problems from rows in its own schema."""

import datetime

import pytest

from veriloop.data import preferences, sft_rows
from veriloop.data.hub.load import read
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.trainer_formats import openrlhf
from veriloop.data.problem import Problem
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.registry import get, judge

STDIN = [{"stdin": "1 2\n", "expected_stdout": "3\n"}, {"stdin": "4 5\n", "expected_stdout": "9\n"}]
CALLS = [{"args": [1, 2], "expected": 3}, {"args": [4, 5], "expected": 9}]
EXPECTED = {
    "gsm8k": [("math_answer", {"answer": "72"}), ("math_answer", {"answer": "-1200"})],
    "svamp": [("math_answer", {"answer": n}) for n in ("145", "0.5", "1")],
    "math": [("math_answer", {"answer": r"\frac{3}{4}"})],
    "math500": [("math_answer", {"answer": r"(3,\pi)"})],
    "aime24": [("math_answer", {"answer": "033"})],
    "aime25": [("math_answer", {"answer": "70"})],
    "numina_cot": [("math_answer", {"answer": "3"})],
    "numina_1_5": [("math_answer", {"answer": "5"})],
    "openr1_math": [("math_answer", {"answer": "5"})],
    "deepscaler": [("math_answer", {"answer": "2"})],
    "dapo_math": [("math_answer", {"answer": "34"})],
    "countdown": [("countdown", {"numbers": [44, 19, 35], "target": 98})],
    "mbpp": [
        (
            "code_tests",
            {
                "function": "add",
                "tests": [
                    {"assert": "assert add(2, 3) == 5"},
                    {"assert": "assert add(0, 1) == 1"},
                ],
            },
        )
    ],
    "apps": [
        ("code_tests", {"tests": STDIN}),
        ("code_tests", {"function": "add", "tests": CALLS}),
    ],
    "taco": [("code_tests", {"tests": [{"stdin": "1\n2", "expected_stdout": "3"}]})],
    "livecodebench": [
        ("code_tests", {"tests": STDIN}),
        ("code_tests", {"function": "add", "tests": CALLS}),
    ],
    "codeforces": [("code_tests", {"tests": STDIN, "limits": {"cpu_s": 2.0, "memory_mb": 256}})],
}
PROBLEMS = [name for name, layout in SETS.items() if layout.kind == "problems"]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_set_has_its_verifier_and_reference(name, rows, written):
    made = [entry.problem for entry in read(name, path=written(rows[name]))]
    plain = [{k: v for k, v in one.reference.items() if k != "solution"} for one in made]
    assert [(one.verifier, part) for one, part in zip(made, plain, strict=True)] == EXPECTED[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tests"), [("mbpp", "test_list"), ("humaneval", "test")])
def test_tests_that_refuse_the_sets_own_solution_give_no_verdict(name, tests, rows, written):
    (sound, *_) = read(name, path=written(rows[name]))
    assert sound.problem.reference["solution"] == sound.solutions[0]
    wrong = ["assert add(1, 1) == 5"] if name == "mbpp" else "def check(f):\n    assert f(1) == 5"
    (entry,) = read(name, path=written([rows[name][0] | {tests: wrong}]))
    for program in (entry.solutions[0], "def add(a, b=0):\n    return 0\ntotal = add"):
        assert judge(entry.problem, f"```python\n{program}\n```").status == "error"


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gsm8k", ["She has 70+2=72.", ""]),
        ("svamp", ["First 290 / 2 = 145.", "", ""]),
        ("math", [""]),
    ],
)
def test_the_steps_of_a_row_are_read_where_it_has_any(name, steps, rows, written):
    assert [entry.worked for entry in read(name, path=written(rows[name]))] == steps


def test_the_question_of_svamp_follows_its_story(rows, written):
    (first, *_) = read("svamp", path=written(rows["svamp"]))
    assert first.problem.prompt == "Ann has 290 pears in 2 groups\n\nHow big is a group?"
    assert first.problem.facts["subject"] == "Common-Division"


def test_every_set_of_problems_has_rows_here_and_a_verifier_that_reads_them(rows, written):
    for name in PROBLEMS:
        made = [entry.problem for entry in read(name, path=written(rows[name], f"{name}.jsonl"))]
        assert made, name
        for one in made:
            assert one.id.startswith(f"{name}/") and one.facts["source"] == name
            assert set(get(one.verifier).example.reference) - {"function", "limits"} <= set(
                one.reference
            )
            if one.verifier == "code_tests":
                CodeReference.read(one.reference)
    assert set(rows) == set(SETS)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("name", ["gsm8k", "dapo_math", "mbpp", "codeforces", "livecodebench"])
def test_jsonl_json_and_parquet_hold_the_same_problems(name, ending, rows, written):
    from_lines = [entry.problem for entry in read(name, path=written(rows[name]))]
    made = [entry.problem for entry in read(name, path=written(rows[name], f"rows.{ending}"))]
    assert made == from_lines


def test_ids_are_the_rows_own_numbers_whatever_is_left_out(rows, written):
    valid, proof = rows["numina_1_5"]
    reading = read("numina_1_5", path=written([proof, valid, proof, valid]))
    assert [entry.problem.id for entry in reading] == [
        "numina_1_5/train/1",
        "numina_1_5/train/3",
    ]
    assert reading.rows == 4
    assert dict(reading.dropped) == {"question_type is not math-word-problem": 2}


def test_problems_of_joined_exports_have_ids_of_their_own(written):
    sums = [
        Problem(id="q1", prompt=f"What is {n}+1?", verifier="number", reference={"value": n + 1})
        for n in (1, 2, 3)
    ]
    lines = [openrlhf(problem) for problem in [*sums, sums[1]]]
    reading = read("mine", path=written(lines))
    made = [entry.problem for entry in reading]
    assert [problem.id for problem in made] == ["q1", "q1#2", "q1#3"]
    assert [problem.prompt for problem in made] == [problem.prompt for problem in sums]
    assert dict(reading.dropped) == {"a repeated row": 1}


def test_what_was_asked_in_another_format_is_asked_plainly(rows, written):
    (entry,) = read("dapo_math", path=written(rows["dapo_math"]))
    assert entry.problem.prompt == "What is 17*2?"


def test_a_paragraph_without_words_is_left_out(rows, written):
    first, second = read("apps", path=written(rows["apps"]))
    assert first.problem.prompt == "Add the numbers."
    starter = "```python\nfrom typing import *\n\ndef add(a, b):\n```"
    assert second.problem.prompt == f"Add.\n\nBegin with:\n{starter}"


def test_solutions_come_along_and_never_in_the_problem(rows, written):
    (apps, _), (mbpp,), (human,) = (
        list(read(name, path=written(rows[name], f"{name}.jsonl")))
        for name in ("apps", "mbpp", "humaneval")
    )
    assert apps.solutions == ("print(sum(map(int, input().split())))",)
    assert mbpp.solutions[0].endswith("return a + b\n")
    row = rows["humaneval"][0]
    assert human.solutions == (row["prompt"] + row["canonical_solution"],)
    assert "a + one()" not in human.problem.prompt


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mbpp", "humaneval", "apps", "taco"])
def test_a_sets_own_program_is_right_and_another_is_wrong(name, rows, written):
    entry = next(iter(read(name, path=written(rows[name]))))
    assert judge(entry.problem, f"```python\n{entry.solutions[0]}\n```").score == 1.0
    assert judge(entry.problem, "```python\nprint(7)\n```").score == 0.0


def test_helpers_of_a_humaneval_prompt_are_set_up_by_the_tests(rows, written):
    (entry,) = read("humaneval", path=written(rows["humaneval"]))
    assert entry.problem.reference["setup"] == "def one():\n    return 1"
    assert "names" not in entry.problem.reference
    own = "```python\ndef one():\n    return 5\ndef total(a): return 2 + {}\n```"
    assert judge(entry.problem, own.format(5)).score == 0.0
    assert judge(entry.problem, own.format(1)).score == 1.0  # the helper need not be repeated


def test_helpers_that_a_humaneval_prompt_leaves_to_write_are_the_programs(rows, written):
    row = rows["humaneval"][0]
    row = {**row, "prompt": row["prompt"].replace("return 1", '"""1"""')}
    (entry,) = read("humaneval", path=written([row]))
    assert entry.problem.reference["names"] == ["one"] and "setup" not in entry.problem.reference


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("gsm8k", {"answer": "72"}, "no #### answer"),
        ("gsm8k", {"answer": "#### many"}, "the answer is not a number"),
        ("gsm8k", {"question": " "}, "no question"),
        ("math", {"solution": "It is 3."}, "no boxed answer"),
        ("math", {"solution": r"\boxed{\frac{3}{4}"}, "an unclosed box"),
        ("math", {"solution": r"\boxed{ }"}, "an empty box"),
        ("svamp", {"Answer": "many"}, "the answer is not a number"),
        ("aime24", {"answer": "x"}, "the answer is not a number"),
        ("aime25", {"answer": "x"}, "the answer is not a number"),
        ("numina_1_5", {"problem_is_valid": "Incomplete"}, "problem_is_valid is not Yes"),
        ("apps", {"input_output": '{"inputs": [], "outputs": []}'}, "no tests"),
        ("apps", {"input_output": "[" * 100_000}, "input_output is not JSON"),
        ("apps", {"input_output": "1" * 5000}, "input_output has an integer of too many digits"),
        ("codeforces", {"official_tests": ["1 2"]}, "a test is not an object"),
        ("apps", {"input_output": '{"inputs": ["1"], "outputs": []}'},
         "numbers of inputs and outputs differ"),
        ("mbpp", {"code": "x = 1"}, "no test calls what the solution defines"),
        ("mbpp", {"test_list": ["assert add("]}, "tests are not valid Python"),
        ("humaneval", {"test": "assert True"}, "no check function"),
        ("codeforces", {"generated_checker": "print(1)"}, "needs a checker program"),
        ("codeforces", {"input_mode": "file"}, "reads and writes files"),
        ("codeforces", {"official_tests_complete": False}, "truncated tests"),
        ("codeforces", {"executable": False}, "executable is not True"),
        ("codeforces", {"interaction_format": "Ask."}, "is interactive"),
        ("livecodebench", {"private_test_cases": "not packed"},
         "tests are neither JSON nor packed"),
        ("countdown", {"nums": None}, "no numbers"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_counted_by_its_reason(name, change, reason, rows, written):
    reading = read(name, path=written([rows[name][0] | change]))
    assert list(reading) == [] and dict(reading.dropped) == {reason: 1}


def test_another_file_than_the_set_is_a_mistake_and_not_many_bad_rows(written):
    with pytest.raises(ValueError, match=r"no column 'question'\. The rows have prompt, answer"):
        list(read("gsm8k", path=written([{"prompt": "p", "answer": "#### 1"}])))


def test_an_unknown_set_names_the_nearest():
    with pytest.raises(ValueError, match=r"no data set 'gms8k'\. Did you mean 'gsm8k'\?"):
        read("gms8k")


@pytest.mark.parametrize("name", ["ultrafeedback_binarized", "ultrafeedback", "hh_rlhf"])
def test_preferences_are_as_trl_lays_them_out(name, rows, written):
    made = list(read(name, path=written(rows[name])))
    (row,) = preferences.parse_rows(made, "row")
    if isinstance(row, preferences.Ranked):
        assert row.answers == ("Hi!", "What.")  # the second of two equal ones is left out
    else:
        asked, best = row.prompt[-1]["content"], row.chosen[0]["content"]
        assert (asked, best) in (("Hello?", "Hi!"), ("Bye.", "Bye!"))
        assert row.gap == (4.5 if name == "ultrafeedback_binarized" else None)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("ultrafeedback_binarized", {"rejected": [{"role": "user", "content": "Hello?"},
         {"role": "assistant", "content": "Hi!"}]}, "chosen and rejected are equal"),
        ("ultrafeedback_binarized", {"chosen": [{"role": "user", "content": "Hello?"},
         {"role": "assistant", "content": ""}]}, "an empty message in chosen"),
        ("hh_rlhf", {"rejected": "\n\nHuman: Another?\n\nAssistant: So what"},
         "chosen and rejected answer different conversations"),
        ("hh_rlhf", {"chosen": "\n\nHuman: Hello?\n\nAssistant: "}, "an empty turn"),
        ("ultrafeedback", {"completions": []}, "fewer than two answers with different scores"),
        ("ultrafeedback", {"completions": ["Hi!"]}, "completions are not objects"),
        ("ultrafeedback_binarized", {"score_chosen": "high"}, "a score is not a number"),
        ("mixture_of_thoughts", {"messages": ["Hi!"]}, "messages holds no messages"),
        ("mixture_of_thoughts", {"messages": "Hi!"}, "no messages"),
        ("mixture_of_thoughts", {"messages": [{"role": "user", "content": "a"}]},
         "does not end with an answer to a question"),
    ],
)  # fmt: skip
def test_a_preference_that_says_nothing_is_counted(name, change, reason, rows, written):
    reading = read(name, path=written([rows[name][0] | change]))
    assert list(reading) == [] and dict(reading.dropped) == {reason: 1}


def test_thoughts_are_conversations_to_learn(rows, written):
    made = list(read("mixture_of_thoughts", path=written(rows["mixture_of_thoughts"])))
    assert made == rows["mixture_of_thoughts"]
    (row,) = sft_rows.parse_rows(made, "row")
    assert row.turns == (1,)


def test_scores_of_a_pair_are_optional(rows, written):
    row = {k: v for k, v in rows["ultrafeedback_binarized"][0].items() if "score" not in k}
    (pair,) = read("ultrafeedback_binarized", path=written([row]))
    assert set(pair) == {"prompt", "chosen", "rejected"}


def test_a_date_of_parquet_is_no_part_of_a_reference(written):
    day = datetime.date(2020, 1, 15)
    reading = read("countdown", path=written([{"nums": [1], "target": day}], "rows.parquet"))
    assert list(reading) == [] and dict(reading.dropped) == {"target is not a value of JSON": 1}
