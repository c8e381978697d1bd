"""The recipes with the paper's values ask for problems in the proportions of its Table 4."""

import pytest

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.load import read
from veriloop.pipeline.dry_run.plan import plan

DOMAINS = {"numina_1_5": "math", "codeforces": "code", "science": "STEM", "general": "general"}
DOMAINS |= dict.fromkeys(("knights", "zebras", "syllogisms"), "logic")
TABLE_4 = {"math": 26, "code": 17, "STEM": 22, "logic": 15}  # thousands of prompts
ASKING = ["zero", "cold_start", "reasoning_rl", "rejection_sft", "preference_rl"]


def weights(recipe):
    return recipe.collect.problems if hasattr(recipe, "collect") else recipe.problems


@pytest.mark.parametrize("stage", ASKING)
def test_every_stage_that_asks_has_the_proportions_of_table_4(stage):
    shares, recipe = {}, read(f"paper/{stage}")
    for source, weight in weights(recipe).items():
        assert (DOMAINS[source] == "logic") == (
            source in recipe.sets and bool(recipe.sets[source].gym)
        )
        shares[DOMAINS[source]] = shares.get(DOMAINS[source], 0) + weight
    assert shares == TABLE_4 | ({"general": 66} if stage == "preference_rl" else {})


@pytest.mark.parametrize("stage", [*ASKING, "distill"])
def test_every_stage_is_measured_on_published_benchmarks_that_no_question_overlaps(stage):
    recipe = read(f"paper/{stage}")
    benchmarks = {"aime24", "math500", "livecodebench"}
    assert set(recipe.evaluation.sources) - {"general"} == benchmarks
    assert not benchmarks & set(SOURCES)
    if stage != "distill":
        assert {name for one in recipe.sets.values() for name in one.against} == benchmarks


@pytest.mark.parametrize("stage", [*ASKING, "distill"])
def test_the_plan_says_where_every_set_is(stage):
    recipe = read(f"paper/{stage}")
    told = plan(recipe)
    asked = weights(recipe) if stage in ASKING else ()
    named = {*recipe.evaluation.sources, *asked} - {"general"}
    assert all(f"{name}: " in told for name in named)
