"""Flags of settings that are mappings: sources, terms of the reward, published sets."""

import pytest

from veriloop.data.sources import SOURCES
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.launch import parse


def flags(*words):
    return parse("zero", ["tiny/zero", *words]).recipe


def test_a_flag_adds_a_source_and_the_others_stay(monkeypatch):
    monkeypatch.setitem(SOURCES, "other", SOURCES["arithmetic"])
    recipe = flags("--problems.other", "0.5", "--steps", "3")
    assert recipe.problems == {"arithmetic": 1.0, "other": 0.5} and recipe.steps == 3


def test_the_weight_0_removes_a_source(monkeypatch):
    monkeypatch.setitem(SOURCES, "other", SOURCES["arithmetic"])
    assert flags("--problems.other=1", "--problems.arithmetic=0").problems == {"other": 1.0}
    with pytest.raises(RecipeError, match="is empty"):
        flags("--problems.arithmetic", "0")


def test_a_term_of_the_reward_and_a_set_have_flags(tmp_path):
    recipe = flags(
        "--reward.terms.short.verifier", "think_format", "--reward.terms.short.weight", "-0.5",
        "--reward.terms.short.sources", "[arithmetic]", "--sets.gsm8k.path", str(tmp_path),
    )  # fmt: skip
    assert recipe.reward.terms["short"].weight == -0.5
    assert recipe.reward.terms["short"].sources == ("arithmetic",)
    assert recipe.reward.accuracy == flags().reward.accuracy
    assert recipe.sets["gsm8k"].path == str(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--problems.arithmetik", "1"), "Did you mean 'arithmetic'"),
        (("--reward.terms.a.verifier", "think_format", "--reward.terms.a.wieght", "1"), "weight"),
        (("--problems.arithmetic",), "--problems.arithmetic needs a value"),
        (("--problems.arithmetic", "much"), "problems.arithmetic: .*'much'"),
    ],
)
def test_a_mistake_names_the_key_and_the_nearest(words, message):
    with pytest.raises(RecipeError, match=message):
        flags(*words)
