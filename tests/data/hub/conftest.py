"""Rows in the schema of each published set, written here: its columns and types, our words."""

import base64
import json
import pickle
import zlib

import pytest


def packed(tests):
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def stdin(given, wanted):
    return {"input": given, "output": wanted, "testtype": "stdin"}


ADD = "def add(a, b):\n    return a + b\n"
COMPETITION = {
    "aliases": None, "contest_id": "852", "contest_name": "Round 1", "contest_type": "ICPC",
    "contest_start": 1504535700, "contest_start_year": 2017, "index": "A", "time_limit": 2.0,
    "memory_limit": 256.0, "title": "Sum", "description": "Add two numbers.",
    "input_format": "Two numbers.", "output_format": "Their sum.", "interaction_format": None,
    "note": None, "examples": [{"input": "1 2", "output": "3"}], "editorial": None, "rating": 800,
    "tags": ["math"], "testset_size": 2,
    "official_tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}],
    "official_tests_complete": True, "input_mode": "stdio", "generated_checker": None,
    "executable": True, "generated_tests": 0, "id": "852/A",
}  # fmt: skip
LIVE = {
    "question_title": "Sum", "question_content": "Print the sum.", "platform": "atcoder",
    "question_id": "abc_a", "contest_id": "abc", "contest_date": "2024-08-10T00:00:00",
    "starter_code": "", "difficulty": "easy",
    "public_test_cases": json.dumps([stdin("1 2\n", "3\n")]),
    "private_test_cases": packed([stdin("4 5\n", "9\n")]), "metadata": "{}",
}  # fmt: skip
NUMINA = {
    "problem": "What is 2+3?", "solution": "It is $\\boxed{5}$.", "answer": "5",
    "problem_type": "Algebra", "question_type": "math-word-problem", "problem_is_valid": "Yes",
    "solution_is_valid": "Yes", "source": "olympiads", "synthetic": False,
}  # fmt: skip


def said(*words):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": one} for i, one in enumerate(words)]


ROWS = {
    "gsm8k": [
        {"question": "Ann has 70 and 2. All?", "answer": "She has 70+2=<<70+2=72>>72.\n#### 72"},
        {"question": "Bob owes 1,200.", "answer": "#### -1,200"},
    ],
    "svamp": [
        {
            "ID": "chal-1", "Type": "Common-Division", "Equation": "( 290.0 / 2.0 )",
            "Body": "Ann has 290 pears in 2 groups", "Question": "How big is a group?",
            "Answer": 145.0,
        },
        {
            "ID": "chal-2", "Type": "Subtraction", "Equation": "4.0 -", "Body": "Bob had $ 4.",
            "Question": "How many are left of 4.5?", "Answer": "0.5",
        },
        {
            "ID": "chal-3", "Type": "Addition", "Equation": "( 4.0 + 3.0 )", "Body": "Cat has 4.",
            "Question": "How many are one?", "Answer": 1.0,
        },
    ],
    "math": [
        {
            "problem": "What is $\\frac12+\\frac14$?", "level": "Level 2", "type": "Algebra",
            "solution": "First \\boxed{1}, no: $\\boxed{\\frac{3}{4}}$.",
        },
    ],
    "math500": [
        {
            "problem": "Polar form?", "solution": "So $\\boxed{(3,\\pi)}$.", "answer": "(3,\\pi)",
            "subject": "Precalculus", "level": 2, "unique_id": "test/precalculus/807.json",
        },
    ],
    "aime24": [
        {
            "id": 60, "problem": "Walk?", "solution": "...", "answer": "033", "url": "u",
            "year": "2024",
        },
    ],
    "aime25": [{"problem": "Bases?", "answer": "70", "id": "0"}],
    "numina_cot": [
        {
            "source": "synthetic_math", "problem": "Half of 6?", "solution": "\\boxed{3}",
            "messages": said("Half of 6?", "\\boxed{3}"),
        },
    ],
    "numina_1_5": [NUMINA, NUMINA | {"question_type": "proof", "answer": "proof"}],
    "openr1_math": [
        {key: one for key, one in NUMINA.items() if "valid" not in key and key != "synthetic"}
        | {
            "uuid": "u-1", "is_reasoning_complete": [True], "generations": ["<think>"],
            "correctness_math_verify": [True], "correctness_llama": None,
            "finish_reasons": None, "correctness_count": 1, "messages": said("a", "b"),
        },
    ],
    "deepscaler": [{"problem": "What is 1+1?", "answer": "2", "solution": ""}],
    "dapo_math": [
        {
            "data_source": "math_dapo", "ability": "MATH",
            "prompt": [
                {
                    "content": "Solve the following math problem step by step. The last line of "
                    "your response should be of the form Answer: $Answer (without quotes) where "
                    "$Answer is the answer to the problem.\n\nWhat is 17*2?\n\nRemember to put "
                    'your answer on its own line after "Answer:".',
                    "role": "user",
                }
            ],
            "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
        },
    ],
    "countdown": [{"target": 98, "nums": [44, 19, 35]}],
    "mbpp": [
        {
            "task_id": 601, "text": "Write a function to add.", "code": "import math\n" + ADD,
            "test_list": ["assert add(2, 3) == 5", "assert add(0, 1) == 1"],
            "test_setup_code": "", "challenge_test_list": [],
        },
    ],
    "humaneval": [
        {
            "task_id": "HumanEval/0", "entry_point": "total",
            "prompt": "def one():\n    return 1\n\n\n"
            "def total(a: int) -> int:\n    \"\"\"a + 1\"\"\"\n",
            "canonical_solution": "    return a + one()\n",
            "test": "METADATA = {}\n\n\ndef check(candidate):\n"
            "    assert candidate(2) == 2 + one()\n",
        },
    ],
    "apps": [
        {
            "problem_id": 0, "question": "Add the numbers.", "difficulty": "introductory",
            "solutions": json.dumps(["print(sum(map(int, input().split())))"]),
            "input_output": json.dumps({"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}),
            "url": "u", "starter_code": "",
        },
        {
            "problem_id": 1, "question": "Add.", "difficulty": "interview", "solutions": "",
            "input_output": json.dumps(
                {"fn_name": "add", "inputs": [[1, 2], [4, 5]], "outputs": [[3], [9]]}
            ),
            "url": "u", "starter_code": "def add(a, b):",
        },
        {
            "problem_id": 2, "question": "No tests.", "difficulty": "interview", "solutions": "",
            "input_output": "", "url": "u", "starter_code": "",
        },
    ],
    "taco": [
        {
            "question": "Add lines.", "solutions": json.dumps(["print(int(input())+int(input()))"]),
            "starter_code": "", "difficulty": "EASY", "raw_tags": "[]", "name": None,
            "input_output": json.dumps({"inputs": [["1", "2"]], "outputs": [["3"]]}),
            "source": "codechef", "tags": "[]", "skill_types": "[]", "url": None,
            "Expected Auxiliary Space": None, "time_limit": "2.0 seconds", "date": None,
            "picture_num": None, "memory_limit": None, "Expected Time Complexity": None,
        },
    ],
    "livecodebench": [
        LIVE,
        LIVE
        | {
            "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
            "public_test_cases": json.dumps(
                [{"input": "1\n2", "output": "3", "testtype": "functional"}]
            ),
            "private_test_cases": packed(
                [{"input": "4\n5", "output": "9", "testtype": "functional"}]
            ),
            "metadata": '{"func_name": "add"}',
        },
    ],
    "codeforces": [COMPETITION],
    "ultrafeedback_binarized": [
        {
            "prompt": "Hello?", "prompt_id": "f0e3", "messages": said("Hello?", "Hi!"),
            "chosen": said("Hello?", "Hi!"), "rejected": said("Hello?", "What."),
            "score_chosen": 8.5, "score_rejected": 4.0,
        },
    ],
    "ultrafeedback": [
        {
            "source": "sharegpt", "instruction": "Hello?", "models": ["a", "b", "c"],
            "completions": [
                {"model": "a", "response": "What.", "fine-grained_score": 2.0,
                 "overall_score": 10.0, "annotations": {}, "critique": "", "principle": "",
                 "custom_system_prompt": ""},
                {"model": "b", "response": "Hi!", "fine-grained_score": 4.75,
                 "overall_score": 8.0, "annotations": {}, "critique": "", "principle": "",
                 "custom_system_prompt": ""},
                {"model": "c", "response": "Hi.", "fine-grained_score": 4.75,
                 "overall_score": 8.0, "annotations": {}, "critique": "", "principle": "",
                 "custom_system_prompt": ""},
            ],
            "correct_answers": ["None"], "incorrect_answers": ["None"],
        },
    ],
    "hh_rlhf": [
        {
            "chosen": "\n\nHuman: Hello?\n\nAssistant: Yes?\n\nHuman: Bye.\n\nAssistant: Bye!",
            "rejected": "\n\nHuman: Hello?\n\nAssistant: Yes?\n\nHuman: Bye.\n\nAssistant: So what",
        },
    ],
    "mixture_of_thoughts": [
        {
            "messages": said("What is 1+1?", "<think>one and one</think> 2"),
            "num_tokens": 9, "source": "open-r1/OpenR1-Math-220k",
        },
    ],
}  # fmt: skip
ROWS["humaneval_plus"] = ROWS["humaneval"]


@pytest.fixture
def rows():
    """The rows of every set, by its name."""
    return {name: [dict(row) for row in found] for name, found in ROWS.items()}


@pytest.fixture
def written(tmp_path):
    """Function: a set's rows (or others) in a file that ends as asked."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif path.suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
        return str(path)

    return write


@pytest.fixture
def packing():
    return packed
