"""Flags of settings that are mappings: sources, terms of the reward, published sets."""

import pytest
import yaml

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.load import FOLDER
from veriloop.pipeline.config.sections import RolloutConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling.sampler import Sampling
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


OWN = ("--sets.mine.verifier", "number", "--sets.mine.answer", "a", "--evaluation.sources",
       "arithmetic")  # fmt: skip


@pytest.mark.parametrize(
    "text", ["{question}", "Solve: {question}", "data #1", "*bold*", "@x",
             "[INST] {question} [/INST]", "null", "", "1", "- {question}"]
)  # fmt: skip
def test_texts_are_taken_as_they_are_written(text, tmp_path):
    recipe = flags(
        "--sets.mine.question", "Problem {q}", text, "--sets.mine.path", "data #1.jsonl", *OWN
    )
    assert recipe.sets["mine"].question == ("Problem {q}", text)
    assert recipe.sets["mine"].path == "data #1.jsonl"
    words = ("--sets.mine.question", "{q}", "--sets.mine.path", "q.jsonl")
    assert flags(f"--sets.mine.config={text}", *words, *OWN).sets["mine"].config == text
    assert flags(*words[2:], "--sets.mine.question=").sets["mine"].question == ()


def test_other_values_of_a_set_are_yaml_and_a_list_can_be_one_word():
    recipe = flags(
        "--sets.mine.path", "q.jsonl", "--sets.mine.held_out", "0.25", "--sets.mine.rows", "7",
        "--sets.mine.question", "[one, '{two}']", "--sets.mine.only.level", "1", "true", "x",
        "--sets.mine.only.kind=[a, 2]", "--sets.mine.only.one", "5", *OWN,
    )  # fmt: skip
    mine = recipe.sets["mine"]
    assert (mine.held_out, mine.rows, mine.question) == (0.25, 7, ("one", "{two}"))
    assert mine.only == {"level": (1, True, "x"), "kind": ("a", 2), "one": (5,)}


def test_keys_of_a_mapping_keep_their_hyphens_and_names_of_fields_have_none():
    recipe = flags(
        "--sets.my-set.only.problem-type", "a", "--sets.my-set.facts.some-fact", "the-column",
        "--sets.my-set.reference.the-key", "b-c", "--sets.my-set.fixed.at-least.one-more", "1",
        "--sets.my-set.path", "q.jsonl", "--sets.my-set.held-out", "0.5",
        "--sets.my-set.question", "{q}", "--sets.my-set.verifier", "number",
    )  # fmt: skip
    mine = recipe.sets["my-set"]
    assert mine.only == {"problem-type": ("a",)} and mine.held_out == 0.5
    assert mine.facts == {"some-fact": "the-column"} and mine.reference == {"the-key": "b-c"}
    assert mine.fixed == {"at-least": {"one-more": 1}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sets.mine.question.0", "hello"), r"question: \['\{q\}'\] is not a section"),
        (("--sets.mine.path.x", "1"), "path: 'q.jsonl' is not a section, so sets.mine.path.x"),
        (("--problems.arithmetic.x", "1"), "arithmetic: 1.0 is not a section"),
        (("--sets.new.path.x", "1"), "sets.new.path: Input should be a valid string"),
        (("--sets.mine.fixed.a.b", "1"), "a: 3 is not a section, so sets.mine.fixed.a.b"),
        (("--sets.mine.paht", "1"), "unknown key. Did you mean 'path'"),
    ],
)
def test_a_key_in_a_plain_value_is_refused(words, message, tmp_path):
    own = {"path": "q.jsonl", "question": ["{q}"], "verifier": "number", "fixed": {"a": 3}}
    with pytest.raises(RecipeError, match=message):
        parse("zero", [written(tmp_path, sets={"mine": own}), *words])


def written(folder, **changes):
    values = yaml.safe_load((FOLDER / "tiny/zero.yaml").read_text())
    (folder / "mine.yaml").write_text(
        yaml.safe_dump(values | {"problems": {"arithmetic": 1.0}} | changes)
    )
    return str(folder / "mine.yaml")


def test_a_path_replaces_the_repository_of_the_recipe_and_the_reverse(tmp_path):
    own = {"of": "gsm8k", "repo": "a/b"}
    mine = written(tmp_path, sets={"mine": own, "other": own})
    sets = parse("zero", [mine, "--sets.mine.path", "q.jsonl"]).recipe.sets
    assert (sets["mine"].path, sets["mine"].repo) == ("q.jsonl", "")
    assert sets["other"].repo == "a/b"
    for empty in (("--sets.mine.repo", ""), ("--sets.mine.repo=",)):
        both = parse("zero", [mine, "--sets.mine.path", "q.jsonl", *empty]).recipe.sets["mine"]
        assert both == sets["mine"]
    assert parse("zero", [mine, "--sets.mine.path="]).recipe.sets["mine"].repo == "a/b"
    with pytest.raises(RecipeError, match="set only one"):
        parse("zero", [mine, "--sets.mine.path", "q.jsonl", "--sets.mine.repo", "c/d"])
    local = written(tmp_path, sets={"mine": {"of": "gsm8k", "path": "q.jsonl"}})
    assert parse("zero", [local, "--sets.mine.repo", "c/d"]).recipe.sets["mine"].path == ""


@pytest.mark.parametrize("none", ["none", "null", "None"])
def test_none_is_written_as_in_a_recipe_or_as_in_the_help(none):
    recipe = flags(
        "--algorithm.preset", "ppo", "--algorithm.value-clip", none, "--algorithm.dual_clip=3"
    )
    assert recipe.algorithm.value_clip is None and recipe.algorithm.dual_clip == 3.0


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        (["</answer>"], ("</answer>",)),
        (["END", "[STOP]"], ("END", "[STOP]")),
        (["[END]"], ("[END]",)),  # a text in brackets, more likely than a list of one
        (["[a, b]"], ("a", "b")),
        (["[]"], ()),
        ([""], ()),
    ],
)
def test_a_list_of_texts_is_words_or_a_list_and_an_empty_word_empties_it(words, stop, tmp_path):
    mine = written(tmp_path, rollout={"prompts": 2, "per_prompt": 2, "max_tokens": 9,
                                      "stop": ["x"]})  # fmt: skip
    assert parse("zero", [mine, "--rollout.stop", *words]).recipe.rollout.stop == stop
    if len(words) == 1:
        assert parse("zero", [mine, f"--rollout.stop={words[0]}"]).recipe.rollout.stop == stop
    assert parse("zero", [mine, "--rollout.max-tokens", "8"]).recipe.rollout.stop == ("x",)


def test_an_empty_stop_string_would_end_every_response_and_is_refused():
    for stop in ("", "END"), ("",):
        with pytest.raises(ValueError, match="at least 1 character"):
            RolloutConfig(prompts=1, per_prompt=1, max_tokens=1, stop=stop)
        with pytest.raises(ValueError, match="an empty string would end every response"):
            Sampling(per_prompt=1, temperature=1.0, max_tokens=1, seed=0, stop=stop)
    with pytest.raises(RecipeError, match=r"rollout\.stop\.1: .*at least 1 character, got ''"):
        flags("--rollout.stop", "END", "")
