"""A published model in veriloop and in TRL: one rule for rewards, the same questions, the time."""

import importlib
import json

import pytest

from veriloop.data.gym import GymSource
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.verifiers.registry import get, judge

pytestmark = pytest.mark.usefixtures("benchmarks")
RESPONSES = (
    "<think>First 1 + 2 = 3.</think><answer>{}</answer>",
    "<think>First 1 + 2 = 3.</think>\n<answer> {} </answer>\n",
    "<think>First 1 + 2 = 3.</think><answer>{}1</answer>",
    "<think>First 1 + 2 = 3.</think><answer></answer>",
    "<think>First 1 + 2 = 3.</think><answer>x</answer>",
    "<think>a<think>b</think><answer>{}</answer>",
    "<think>a</think><answer>{}</answer><answer>{}</answer>",
    "<think>a</think> so <answer>{}</answer>",
    "<answer>{}</answer>",
    "<think>a</think>{}",
    "<think>a</think><answer>{}</answer> and more",
    "{}",
    "",
)


@pytest.fixture
def benchmarks(monkeypatch, pytestconfig):
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "benchmarks"))


@pytest.mark.parametrize("response", RESPONSES)
def test_the_rule_for_trl_is_that_of_the_verifiers(response):
    turns = importlib.import_module("published_turns")
    source = GymSource("chain_sum", {"min_terms": 2, "max_terms": 3, "max_digits": 2}, "chain_sum")
    for index in range(6):
        problem = source.problem("rl", 0, index)
        answer = problem.reference["entry"]["answer"]
        text = response.replace("{}", answer)
        accuracy, tagged = turns.worth(text, answer)
        assert accuracy == (judge(problem, text).score == 1.0)
        assert tagged == get("think_format").check(problem, text).score


def test_both_sides_are_asked_the_same_questions(tiny_checkpoint, tmp_path):
    published = importlib.import_module("published_trl")
    model = published.prepared(tiny_checkpoint(), tmp_path)
    rows = json.loads((model / "questions.json").read_text())
    from veriloop.pipeline.config.load import read_values, validate, with_flags
    from veriloop.pipeline.rollouts.generate import prompt_ids
    from veriloop.stages import reasoning_rl, rl

    turns = importlib.import_module("published_turns")
    values = with_flags(read_values(turns.RECIPE), {**turns.SETTINGS, "start": str(model)})
    recipe = validate(values, turns.RECIPE)
    task = reasoning_rl.task(recipe, rl.open_sources(recipe, model, tmp_path))
    tokenizer = load_tokenizer(model)
    for index, row in enumerate(rows[:50]):
        problem = task.problem(index)
        assert tuple(tokenizer(row["prompt"]).input_ids) == prompt_ids(problem, tokenizer, "chat")
        assert row["answer"] == problem.reference["entry"]["answer"]


def test_a_reward_is_reached_by_the_mean_of_several_steps():
    published = importlib.import_module("published_trl")
    steps = [{"s": 2.0, "paid": paid} for paid in (0, 1, 0, 0, 0, 0, 0.5, 0.5, 1, 1, 1)]
    assert published.reached(steps, 0.3) == 18.0
    assert published.reached(steps, 0.81) is None
    assert published.reached(steps[8:10], 1.0) == 4.0
    assert published.best_of_all([{"steps": steps}, {"steps": steps[:9]}]) == pytest.approx(0.4)


def test_less_time_than_the_bar_is_asked_for():
    published = importlib.import_module("published_trl")
    rows = [{"name": "ours", "reached_s": 60.0}, {"name": "TRL, searched", "reached_s": 100.0}]
    assert published.missed(rows) == []
    rows[0]["reached_s"] = 70.0
    assert published.missed(rows) == ["0.70 x the time of TRL, wanted 0.67"]


def test_the_table_has_a_row_for_each_side_and_the_proof_its_share_of_the_time():
    tables = importlib.import_module("published_tables")
    row = {"s": 9.0, "tokens_per_s": 400.0, "peak_gib": 3.0, "steps": [{"paid": 0.2, "s": 9.0}] * 4}
    sides = {"ours": 60.0, "TRL": 200.0, "TRL, searched": 120.0}
    rows = [{**row, "name": name, "reached_s": seconds} for name, seconds in sides.items()]
    result = {"rows": rows, "target": 0.8, "settings": {"micro_batch": 32}}
    header, _, ours, _, _, _, note, _, *curves = tables.published_trl(result)
    assert header.endswith("| s until 0.80 |") and ours.endswith("| 3.0 | 0.20 | 0.20 | 60 |")
    assert note == "TRL, searched: `micro_batch=32`."
    assert curves[0] == "| mean reward (seconds) | step 2 | step 4 |"
    assert curves[2] == "| ours | 0.20 (18) | 0.20 (36) |"
    ((_, shares, name),) = tables.proofs({"published_trl": result})
    assert (shares, name) == ("0.50 x; 0.30 x", "published_trl")
