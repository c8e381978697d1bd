"""Generated rows to learn: right by construction, the same in every run, free of held-out sums."""

import pytest

from veriloop.data import arithmetic, general, sft_rows
from veriloop.data.decontaminate import formulas
from veriloop.data.generated_rows import general_answers, worked_sums
from veriloop.verifiers.registry import get, judge


@pytest.mark.parametrize("rows", [worked_sums, general_answers])
def test_they_are_rows_of_the_usual_layout_and_always_the_same(rows):
    made = list(rows(3, 20))
    assert made == list(rows(3, 20)) and made[:5] == list(rows(3, 5)) and made != list(rows(4, 20))
    assert len(sft_rows.parse_rows(made, "row")) == 20


def test_worked_sums_are_right_checked_and_not_held_out():
    for row in worked_sums(0, 100):
        (asked,) = formulas(row["prompt"][0]["content"])
        chain = arithmetic.parse(asked)
        said = row["completion"][0]["content"]
        assert arithmetic.split_of(asked) == "rl"
        assert said.endswith(f"</think><answer>{chain.value}</answer>")
        assert said.count("Check: ") + said.count("检验：") == len(chain.rest)
        assert not any(arithmetic.held_out(arithmetic.parse(one)) for one in formulas(said))


def test_general_answers_are_good_ones_to_prompts_of_the_rl_split():
    asked = {prompt.text: prompt.topic for prompt in general.prompts("rl")}
    for row in general_answers(0, 100):
        topic = asked[row["prompt"][0]["content"]]
        about = {"kind": topic.kind, "entity": topic.entity, "language": topic.language}
        problem = get("small_talk").problem(about)
        assert judge(problem, row["completion"][0]["content"]).score == 1.0
        assert row["language"] == topic.language
