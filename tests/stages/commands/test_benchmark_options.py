"""What flags and sets come to: samples by size, room for answers, and refusals."""

import json
from dataclasses import replace

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.benchmark_options import Options, answers_path, exam_plans


class RolloutGenerator:
    """Prompts of as many tokens as characters."""

    def prompt(self, problem):
        return tuple(range(len(problem.prompt)))


@pytest.fixture
def plan(tmp_path):
    """Function: the plan of a set with so many questions under these flags."""

    def made(questions=3, positions=40_000, **flags):
        rows = [{"question": f"What is {n}?", "answer": f"#### {n}"} for n in range(questions)]
        file = tmp_path / f"{questions}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        flags = {"set": (f"gsm8k={file}",), **flags}
        return exam_plans(Options(checkpoint="m", **flags), RolloutGenerator(), positions)[0]

    return made


@pytest.mark.parametrize(
    ("questions", "samples"), [(1, 64), (100, 64), (101, 16), (300, 16), (301, 4)]
)
def test_answers_to_a_question_go_by_the_size_of_the_set(plan, questions, samples):
    made = plan(questions)
    assert made.sampling.per_prompt == samples and made.ks == (samples,)


def test_the_size_is_that_of_the_whole_set(plan):
    made = plan(301, limit=10)
    assert made.sampling.per_prompt == 4 and len(made.exam.problems) == 10


def test_the_paper_s_settings_are_the_default(plan):
    made = plan().sampling
    assert (made.temperature, made.top_p, made.max_tokens) == (0.6, 0.95, 32_768)


def test_an_answer_has_what_the_longest_prompt_leaves(plan):
    made = plan(11, positions=60)
    assert made.sampling.max_tokens == 60 - len("What is 10?") and made.room == 60
    assert plan(11, positions=60, limit=1).sampling.max_tokens == made.sampling.max_tokens
    assert plan(11, positions=60, max_tokens=5).room == 16
    assert plan(11, positions=None).sampling.max_tokens == 32_768


def test_the_likeliest_answer_is_one(plan):
    assert plan(temperature=0.0).sampling.per_prompt == 1


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"samples": 4, "k": (1, 5)}, "--k 5 must be 1 to 4"),
        ({"k": (0,)}, "--k 0 must be 1 to 64"),
        ({"samples": 0}, "flags: per_prompt=0"),
        ({"top_p": 0.0}, "flags: top_p=0.0 must be in"),
        ({"temperature": float("nan")}, "flags: temperature=nan must be 0"),
        ({"temperature": 0.0, "samples": 4}, "--temperature 0 gives one answer"),
        ({"positions": 5}, "leaves 0 of the model's 5 positions"),
        ({"max_tokens": 99, "positions": 60}, "leaves 50 of .* --max-tokens is 99"),
        ({"limit": 0}, "--limit 0 must be at least 1"),
        ({"system": "Add."}, "'Add.' is only used with --template chat"),
        ({"set": ("gsm8k", "gsm8k=x")}, "each once"),
        ({"set": ()}, "at least one"),
        ({"set": ("gsm8",)}, "--set gsm8: no data set 'gsm8'. Did you mean 'gsm8k'"),
        (
            {"set": ("mine",)},
            r"no data set 'mine'\. Known: .*\. A file of your own: --set NAME=PATH$",
        ),
        ({"set": ("gsm8k=absent.jsonl",)}, "absent.jsonl is not a file"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_flag(plan, flags, told):
    with pytest.raises(RecipeError, match=told):
        plan(**flags)


def test_a_file_whose_columns_are_unknown_is_to_be_exported_first(plan, tmp_path):
    """Columns cannot be named here."""
    path = tmp_path / "own.jsonl"
    path.write_text('{"task": "1+1?", "right": "2"}\n')
    with pytest.raises(RecipeError) as refused:
        plan(set=(f"mine={path}",))
    said = str(refused.value)
    assert said.startswith(f"--set mine={path}: mine: none of its columns (task, right) holds")
    assert f"as in gsm8k={path}, or export it first" in said
    assert f"veriloop data export {path} --question" in said and "or the columns" not in said


def test_answers_lie_together_exactly_where_nothing_that_they_hang_on_differs(plan, tmp_path):
    def place(weights="w", **flags):
        file = str(tmp_path / "3.jsonl")
        options = Options(checkpoint="m", set=(f"gsm8k={file}",), **flags)
        (made,) = exam_plans(options, RolloutGenerator(), 40_000)
        return answers_path(tmp_path, made.facts(options, weights))

    plan()
    assert plan(stop=("</answer>",)).sampling.stop == ("</answer>",)
    assert "stop" not in plan().facts(Options(checkpoint="m", set=()), "w")  # as stored before
    assert place() == place(samples=2, k=(1,), limit=1, verifier_workers=2, json="a.json")
    others = [
        place("v"), place(seed=2), place(temperature=1.0), place(top_p=1.0), place(max_tokens=9),
        place(stop=("</answer>",)), place(template="chat"), place(template="chat", system="Add."),
        place(split="train"),
    ]  # fmt: skip
    assert len({place(), *others}) == 10 and place().name.startswith("gsm8k-")
    made = plan()
    facts = made.facts(Options(checkpoint="m", set=()), "w")
    asked = replace(made, prompts_sha256="of other prompts to the same questions")
    assert asked.facts(Options(checkpoint="m", set=()), "w") != facts
