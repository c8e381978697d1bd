"""The outcome at the top of the page: the line, the picture, the problem before and after."""

import json

import pytest

from veriloop.pipeline.report import outcome, outcome_picture
from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.report.write import write_report
from veriloop.pipeline.runs.record import StageRecord

LOW = {"pass@1": 0.25, "pass@1 95%": [0.2, 0.3]}
HIGH = {"pass@1": 0.9, "pass@1 95%": [0.85, 0.95]}
STUDENT = {"pass@1": 0.5, "pass@1 95%": [0.45, 0.55]}
GOAL = {"pass@1": {"at_least": 0.95, "value": 0.9, "met": False}}


@pytest.fixture
def several(run):
    """Function: a run folder whose stages are (name, before, after, goals)."""

    def build(*stages):
        folder = run(steps=1)
        manifest = json.loads((folder / "run.json").read_text())
        entry = manifest["stages"][0]
        manifest["stages"] = [
            entry
            | {"name": name, "before": before, "after": after, "goals": goals}
            | {"inputs": {"recipe": {"stage": name}}}
            for name, before, after, goals in stages
        ]
        (folder / "run.json").write_text(json.dumps(manifest | {"seconds": 95.0}))
        return folder

    return build


@pytest.fixture
def evaluated(run, answer):
    """Function: a run whose held-out responses before and after are (problem, text, right), and
    perhaps another prompt than the usual one."""

    def build(before, after):
        folder = run(steps=1, before=LOW, after=HIGH)
        for step, rows in ((0, before), (1, after)):
            (folder / f"zero/evaluated/step_{step:06}.parquet").unlink()
            graded = [
                answer(text, problem=p, right=right, prompt="".join(prompt) or "What is 1+1?")
                for p, text, right, *prompt in rows
            ]
            StageRecord(folder / "zero", tensorboard=False).write_evaluated(step, graded)
        return read_run(folder)

    return build


def test_the_line_goes_from_the_first_stage_to_the_last_that_trains_the_policy(several):
    stages = [("zero", LOW, HIGH, {}), ("reward_model", {}, {}, {}), ("distill", LOW, STUDENT, {})]
    assert outcome.line(read_run(several(*stages))) == (
        "Held-out pass@1 0.250 [0.200, 0.300] → 0.900 [0.850, 0.950] after zero; 3 stages in 1:35"
    )


def test_the_line_says_where_the_last_evaluation_asked_something_else(several):
    folder = several(("zero", LOW, HIGH, {}), ("again", LOW, HIGH, {}))
    told = json.loads((folder / "run.json").read_text())
    for stage, temperature in zip(told["stages"], (1.0, 0.7), strict=True):
        evaluation = {"sources": ["gsm8k", "math500"], "temperature": temperature}
        stage["inputs"]["recipe"] |= {"evaluation": evaluation, "rollout": {"max_tokens": 96}}
    (folder / "run.json").write_text(json.dumps(told))
    assert (
        "after again (asked gsm8k, math500 at temperature 1.0, 96 tokens, then gsm8k, math500 at "
        "temperature 0.7, 96 tokens); 2 stages"
    ) in outcome.line(read_run(folder))


def test_the_line_says_where_a_resumed_stage_asked_other_problems(several):
    """The recipe on record is the one that it was resumed with."""
    folder = several(("zero", LOW | {"problems_hash": "a"}, HIGH | {"problems_hash": "b"}, {}))
    run = json.loads((folder / "run.json").read_text())
    evaluation = {"sources": ["programs"], "temperature": 1.0}
    run["stages"][0]["inputs"]["recipe"] |= {"evaluation": evaluation, "max_tokens": 96}
    (folder / "run.json").write_text(json.dumps(run))
    assert (
        "after zero (asked other problems at temperature 1.0, 96 tokens, then programs at "
        "temperature 1.0, 96 tokens)"
    ) in outcome.line(read_run(folder))
    run["stages"][0]["before"]["problems_hash"] = "b"
    (folder / "run.json").write_text(json.dumps(run))
    assert "asked" not in outcome.line(read_run(folder))


def test_a_run_that_only_distils_ends_with_its_student(several):
    assert "→ 0.500 [0.450, 0.550] after distill" in outcome.line(
        read_run(several(("distill", LOW, STUDENT, {})))
    )


def test_the_line_tells_a_missed_goal_and_a_missing_metric(several):
    line = outcome.line(read_run(several(("sft", {}, {}, GOAL))))
    assert line == (
        "No held-out pass@1 before and after training; 1 stage in 1:35; "
        "sft missed: pass@1 0.9, target ≥ 0.95"
    )


def test_the_line_tells_that_all_goals_are_met(several):
    met = {"format": {"at_least": 0.5, "value": 0.9, "met": True}}
    assert outcome.line(read_run(several(("sft", {}, {}, met)))).endswith("; all goals met")


def test_the_picture_has_each_stage_with_its_intervals_and_goal(several):
    stages = [("zero", LOW, HIGH, GOAL), ("sft", {}, {}, {}), ("again", {}, HIGH, {})]
    section = outcome_picture.section([read_run(several(*stages))])
    assert section is not None
    assert (section.count('class="hollow"'), section.count('class="solid"')) == (2, 3)  # with key
    assert section.count('class="interval"') == 3
    assert section.count('class="goal missed"') == 1
    assert "zero: 0.250 [0.200, 0.300] → 0.900 [0.850, 0.950]" in section
    assert ">again</text>" in section and ">sft</text>" not in section


def test_a_level_that_was_reached_is_drawn_as_met_where_the_gain_was_missed(several):
    goal = {"at_least": 0.5, "gain": 0.9, "value": 0.9, "met": False}
    section = outcome_picture.section([read_run(several(("zero", LOW, HIGH, {"pass@1": goal})))])
    assert section is not None
    assert section.count('class="goal"') == 2 and 'class="goal missed"' not in section  # and key


def test_a_run_without_pass_at_1_has_no_picture(several):
    folder = several(("sft", {}, {}, {}))
    assert outcome_picture.section([read_run(folder)]) is None
    write_report(folder)
    assert 'id="outcome"' not in (folder / "report.html").read_text()


def test_the_shortest_right_response_to_an_unsolved_problem_is_shown(evaluated):
    before = [("a", "no", False), ("a", "never", False), ("b", "yes", True), ("b", "no", False),
              ("c", "none", False)]  # fmt: skip
    after = [("a", "long and right", True), ("b", "ok", True), ("c", "w", False), ("a", "r", True),
             ("c", "right", True)]  # fmt: skip
    pair = outcome.contrast(evaluated(before, after))
    assert pair is not None
    assert (pair.before["response"], pair.after["response"]) == ("no", "r")
    assert (pair.first, pair.last) == ("zero", "zero")


def test_problems_of_two_sources_with_one_id_are_told_apart(evaluated):
    before = [("a", "one", False, "one?"), ("a", "two", True, "two?")]
    after = [("a", "uno", True, "one?"), ("a", "d", True, "two?"), ("a", "t", True, "three?")]
    pair = outcome.contrast(evaluated(before, after))
    assert pair is not None
    assert (pair.before["response"], pair.after["response"]) == ("one", "uno")
    assert pair.before["prompt"] == pair.after["prompt"] == "one?"


def test_equally_short_responses_are_chosen_by_problem(evaluated):
    rows = [("b", "x", False), ("a", "y", False)]
    pair = outcome.contrast(evaluated(rows, [(p, text, True) for p, text, _ in rows]))
    assert pair is not None and pair.after["problem_id"] == "a"


def test_without_a_newly_solved_problem_the_page_says_so(evaluated):
    told = evaluated([("a", "x", True), ("b", "y", False)], [("a", "x", True), ("b", "y", False)])
    assert outcome.contrast(told) is None
    assert "No recorded held-out problem was unsolved before" in str(
        outcome_picture.section([told])
    )


def test_responses_of_a_model_are_text_in_the_outcome(evaluated):
    hostile = "</pre><img src=x onerror=alert(1)>\x1b[31m \u202eleft\nline"
    told = evaluated([("a", hostile, False)], [("a", hostile, True)])
    section = str(outcome_picture.section([told]))
    assert "<img" not in section and "&lt;img src=x" in section
    assert "⟨001b⟩[31m ⟨202e⟩left\nline" in section


def test_page_markdown_and_json_have_the_line(several):
    folder = several(("zero", LOW, HIGH, {}))
    write_report(folder)
    line = outcome.line(read_run(folder))
    assert line in (folder / "report.html").read_text()
    assert "Held-out pass@1 0.250" in (folder / "report.md").read_text()
    assert json.loads((folder / "report.json").read_text())["outcome"] == line
