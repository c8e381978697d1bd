"""The sources of questions in a plan: their shares, those of evaluations, and published sets."""

import json
import re

import pytest

from veriloop.pipeline.config.load import read, shipped
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.dry_run.asked import shares
from veriloop.pipeline.dry_run.plan import plan, stage_plans


def rows(text):
    """The rows of a plan by name, each with all its values."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, value = line.partition("  ")
        found.setdefault(name, []).append(value.strip())
    return found


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"arithmetic": 3.0}, "arithmetic"),
        ({"a": 0.3, "b": 0.1}, "a 75 %, b 25 %"),
        ({"a": 26, "b": 17, "c": 37}, "a 32 %, b 21 %, c 46 %"),
        ({"a": 0.02, "b": 0.025, "c": 0.955}, "a 2 %, b 2.5 %, c 96 %"),
        ({"a": 999, "b": 1}, "a 100 %, b 0.1 %"),
    ],
)
def test_weights_are_told_as_shares_that_add_up_to_one(weights, told):
    assert shares(weights) == told


def asked_by(recipe):
    """(sources of training questions, sources of held-out ones) of a stage, by its settings."""
    sources = set(recipe.evaluation.sources) if hasattr(recipe, "evaluation") else set()
    if recipe.stage in ("cold_start", "rejection_sft"):
        return set(recipe.collect.problems), sources
    if recipe.stage == "sft":
        return set(recipe.data.problems), sources if recipe.examine else set()
    if recipe.stage == "distill":
        samples = recipe.method == "on_policy"
        return set(recipe.problems if samples else ()), sources
    if recipe.stage == "preference":
        samples = recipe.schedule.samples
        return set(recipe.problems if samples else ()), sources if recipe.problems else set()
    return set(getattr(recipe, "problems", ())), sources


def names_in(values):
    """The words of rows of a plan that may be names of sources."""
    return set(re.findall(r"[\w/]+", " ".join(values)))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_plan_of_every_shipped_stage_names_the_sources_that_it_asks(path):
    recipe = read(str(path))
    if not isinstance(recipe, R1Recipe):
        plans = [(recipe, plan(recipe))]
    else:
        parts = re.split(r"^(?=\d+/\d+ |data sets$)", plan(recipe), flags=re.MULTILINE)[1:]
        plans = [(step.recipe, told) for step, told in zip(steps(recipe), parts, strict=False)]
        assert len(plans) == len(recipe.stages)
    for stage, text in plans:
        learned, held_out = asked_by(stage)
        told = rows(text)
        worked = [value for value in told.get("data", []) if "worked solution" in value]
        assert learned <= names_in([*told.get("asked", []), *worked]), stage.name
        assert held_out <= names_in(told.get("evaluation", [])), stage.name
        assert bool(learned) is bool(told.get("asked") or worked), stage.name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny/preference_rl", "arithmetic 40 %, programs 20 %, general 40 %"),
        ("real/r1/cold_start", "math 60 %, gsm8k 40 %"),
        ("real/r1/rejection_sft", "math 50 %, gsm8k 48 %, mbpp 2 %"),
        ("tiny/collect_preferences", "arithmetic"),
        ("real/smollm2/dpo", "three_terms 50 %, svamp 50 %"),
        ("tiny/online_dpo", "arithmetic"),
        ("real/smollm2/distill", "chain_sum 10 %, three_terms 60 %, svamp 30 %"),
    ],
)
def test_a_stage_that_asks_tells_its_sources_and_shares(name, told):
    assert rows(plan(read(name)))["asked"] == [told]


def test_worked_solutions_are_told_with_their_shares():
    recipe = read("real/smollm2/cold_start")
    told, mixed = rows(plan(recipe)), "chain_sum 13 %, basic_arithmetic 7 %, svamp 80 %"
    assert told["data"] == [f"832 worked solutions: {mixed}"]
    assert "asked" not in told
    one = recipe.data.model_copy(update={"problems": {"programs": 2.0}})
    told = rows(plan(recipe.model_copy(update={"data": one})))
    assert told["data"] == ["832 worked solutions of programs"]


def test_a_preference_stage_that_learns_from_a_file_asks_held_out_problems_alone():
    told = rows(plan(read("tiny/dpo")))
    assert "asked" not in told and "of arithmetic x" in told["evaluation"][0]


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("real/smollm2/cold_start", ["chain_sum", "basic_arithmetic", "svamp", "two_digits"]),
        ("real/r1/rejection_sft", ["math", "gsm8k", "mbpp", "math500"]),
        ("real/r1/distill", ["gsm8k", "math500"]),
        ("real/smollm2/dpo", ["three_terms", "svamp", "chain_sum", "two_digits"]),
        ("real/r1/zero", ["math", "gsm8k", "math500"]),
        ("tiny/zero", []),
    ],
)
def test_the_published_sets_of_every_kind_of_stage_are_told(name, sets):
    told = rows(plan(read(name))).get("set", [])
    assert [row.partition(": ")[0] for row in told] == sets


def test_a_stage_that_evaluates_nothing_tells_which_held_out_problems_it_keeps_out():
    recipe = read("tiny/cold_start").model_copy(update={"examine": False})
    (told,) = rows(plan(recipe))["evaluation"]
    assert told == "none; rows that overlap with 256 held-out problems of arithmetic are left out"
    filters = recipe.filters.model_copy(update={"overlap": 0})
    assert "evaluation" not in rows(plan(recipe.model_copy(update={"filters": filters})))


def listed(*stages):
    return R1Recipe.model_validate({"stage": "r1", "name": "n", "stages": stages})


def test_a_list_tells_each_published_set_once():
    text = plan(read("paper/r1"))
    plans, _, sets = text.partition("\n\ndata sets\n")
    named = [line.split()[0] for line in sets.splitlines()]
    assert named == [
        "numina_1_5", "codeforces", "science", "knights", "zebras", "syllogisms", "aime24",
        "math500", "livecodebench",
    ]  # fmt: skip
    assert "set" not in rows(plans) and "AI-MO/NuminaMath-1.5" not in plans
    assert "data sets" not in plan(read("tiny/r1"))


def test_a_set_that_stages_read_from_elsewhere_is_told_for_each_with_its_stages(tmp_path):
    file = tmp_path / "mine.jsonl"
    lines = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(40)]
    file.write_text("\n".join(map(json.dumps, lines)))
    own = {"gsm8k": {"path": str(file), "held_out": 0.5}}
    change = {"problems": {"gsm8k": 1}, "evaluation.sources": ["gsm8k"], "sets": own}
    base = {"name": "base", "recipe": "tiny/base"}
    zero = {"recipe": "tiny/zero", "take": {"start": "base.checkpoint"}}
    hub = {**change, "sets": {}}
    run = listed(
        base, {**zero, "name": "a", "set": change}, {**zero, "name": "b", "set": hub},
        {**zero, "name": "c", "set": change},
    )  # fmt: skip
    first, second = stage_plans(run).partition("\n\ndata sets\n")[2].splitlines()
    assert first.startswith("  gsm8k  ") and first.endswith("(prompts of any length) (a, c)")
    assert second.endswith("openai/gsm8k, from the hub or its cache when the run starts (b)")
