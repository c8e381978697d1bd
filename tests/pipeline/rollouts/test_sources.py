"""Published sets in recipes: named or described, refused before a run where they cannot be."""

import json

import pytest
from pydantic import ValidationError

from veriloop.data.hub.sets import SETS
from veriloop.data.sources import SOURCES, source_of
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.dry_run.asked import described
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts import sources as questions
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit
from veriloop.pipeline.rollouts.sources import one_of_each, sources_of, summary_lines

FIXED = {
    "name": "n",
    "start": "s",
    "steps": 10,
    "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 8},
    "optimizer": {"learning_rate": 1e-3},
}


def recipe(**changes):
    return ZeroRecipe.model_validate(FIXED | changes)


@pytest.fixture
def sums(tmp_path):
    """Function: a file of GSM8K's columns with these many questions."""

    def write(count, name="gsm8k.jsonl", first=0):
        path = tmp_path / name
        rows = [
            {"question": f"Ann has {n} pears, and one more. All?", "answer": f"#### {n + 1}"}
            for n in range(first, first + count)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_a_published_set_is_named_like_any_source():
    summary_lines = recipe(
        problems={"gsm8k": 1.0}, evaluation={"sources": ["math500", "arithmetic"]}
    )
    assert summary_lines.problems == {"gsm8k": 1.0} and summary_lines.sets == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problems": {"gsm8": 1}}, r"no source 'gsm8'\. Did you mean 'gsm8k'\?"),
        ({"problems": {"hh_rlhf": 1}}, "no source 'hh_rlhf'"),
        ({"evaluation": {"sources": ["mine"]}}, "no source 'mine'"),
        ({"sets": {"mine": {}}}, r"sets\.mine: 'mine' is no known set.* Known: gsm8k, svamp, math"),
        (
            {"sets": {"mine": {"of": "gms8k", "path": "x"}}},
            r"sets\.mine: 'gms8k' is no known set\. Did you mean 'gsm8k'\?",
        ),
        (
            {"sets": {"mine": {"question": ["{q}"], "answer": "a", "verifier": "numbr"}}},
            r"no verifier 'numbr'\. Did you mean 'number'\?",
        ),
        ({"sets": {"gsm8k": {"against": ["nobody"]}}}, "no source 'nobody'"),
        ({"sets": {"gsm8k": {"held_out": 0.1, "test": "test"}}}, "set only one"),
        ({"sets": {"gsm8k": {"read": "hash"}}}, "read='hash' is not one of plain, text"),
        (
            {"sets": {"mine": {"question": ["{q}"]}}},
            "needs a verifier, and the column of the answer",
        ),
        ({"sets": {"gsm8k": {"pth": "x"}}}, "Extra inputs"),
        (
            {"sets": {"mine": {"path": "x.jsonl", "only": {"level": ["3"]}}}},
            r"sets\.mine: only=\{'level': \('3',\)\}: x\.jsonl is no known set",
        ),
        (
            {"rollout": FIXED["rollout"] | {"system": "Think."}},
            "template r1_zero has an instruction of its own",
        ),
    ],
)
def test_what_no_run_could_use_is_refused_with_the_recipe(changes, said):
    with pytest.raises((ValidationError, KeyError), match=said):
        recipe(**changes)


def test_a_set_is_read_split_and_told(sums):
    config = SetConfig(path=sums(30), held_out=0.4)
    sources, facts = sources_of(["arithmetic", "gsm8k"], {"gsm8k": config})
    assert sources["arithmetic"] is SOURCES["arithmetic"]
    learned, held = facts["gsm8k"]["learned"], facts["gsm8k"]["held_out"]
    assert learned + held == 30 and len(sources["gsm8k"].distinct("test", 0, 99)) == held > 0
    assert summary_lines(facts) == [f"gsm8k: {learned} questions to learn from, {held} held out"]
    kinds = one_of_each(sources, ["arithmetic", "gsm8k"], 0)
    assert {one.verifier for one in kinds} == {"number", "math_answer"}


def test_prompts_that_do_not_fit_are_left_out_and_told(sums):
    config = SetConfig(path=sums(12))
    sources, facts = sources_of(
        ["gsm8k"],
        {"gsm8k": config},
        PromptLimit(
            "rollout.max_prompt",
            len("Ann has 9 pears, and one more. All?"),
            lambda one: len(one.prompt),
        ),
    )
    assert summary_lines(facts) == [
        "gsm8k: 10 questions to learn from, 0 held out; 2 prompt too long"
    ]
    assert len(sources["gsm8k"].distinct("rl", 0, 99)) == 10


def characters(most):
    return PromptLimit("rollout.max_prompt", most, lambda problem: len(problem.prompt))


def test_a_generated_source_draws_others_in_place_of_prompts_that_do_not_fit():
    whole = sources_of(["arithmetic"])[0]["arithmetic"]
    prompts = [whole.problem("rl", 3, n).prompt for n in range(100)]
    most = sorted(map(len, prompts))[20]
    source, again = (
        sources_of(["arithmetic"], {}, characters(most))[0]["arithmetic"] for _ in "ab"
    )
    drawn = [source.problem("rl", 3, n) for n in range(100)]
    assert [again.problem("rl", 3, n) for n in reversed(range(100))] == drawn[::-1]
    assert all(len(problem.prompt) <= most for problem in drawn)
    kept = [n for n, prompt in enumerate(prompts) if len(prompt) <= most]
    assert 20 <= len(kept) < 100 and all(drawn[n].prompt == prompts[n] for n in kept)
    held_out = source.distinct("test", 0, 30)
    assert len(held_out) == 30 and all(len(problem.prompt) <= most for problem in held_out)
    every = sources_of(["arithmetic"], {}, characters(10_000))[0]["arithmetic"]
    assert every.distinct("test", 0, 30) == whole.distinct("test", 0, 30)


def test_a_generated_source_whose_prompts_are_too_long_names_the_setting():
    source = sources_of(["arithmetic"], {}, characters(3))[0]["arithmetic"]
    told = r"arithmetic: 0 of 200 questions have prompts of at most rollout.max_prompt=3 tokens"
    with pytest.raises(RecipeError, match=told):
        source.problem("rl", 0, 0)
    with pytest.raises(RecipeError, match=r"arithmetic: 0 of \d+ questions .*raise rollout.max_p"):
        source.distinct("test", 0, 300)


def test_what_shows_another_sets_held_out_questions_is_left_out(sums):
    sets = {
        "gsm8k": SetConfig(path=sums(8), against=("exam",), overlap=6),
        "exam": SetConfig(of="gsm8k", path=sums(1, "other.jsonl"), test=sums(3, "exam.jsonl", 5)),
    }
    _, facts = sources_of(["gsm8k"], sets)
    assert facts["gsm8k"]["dropped"] == {"contaminated": 3}


@pytest.mark.parametrize(("overlap", "dropped"), [(6, {"contaminated": 1}), (7, {})])
def test_as_many_shared_words_as_the_recipe_says_are_an_overlap(sums, tmp_path, overlap, dropped):
    exam = tmp_path / "exam.jsonl"
    question = "Today Ann has 3 pears, and one of them is green. How many are not?"
    exam.write_text(json.dumps({"question": question, "answer": "#### 2"}) + "\n")
    sets = {
        "gsm8k": SetConfig(path=sums(8), against=("exam",), overlap=overlap),
        "exam": SetConfig(of="gsm8k", path=sums(1, "other.jsonl", 9), test=str(exam)),
    }
    _, facts = sources_of(["gsm8k"], sets)
    assert facts["gsm8k"]["dropped"] == dropped


def test_columns_of_ones_own_are_read_by_the_verifiers_key(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"frage": "Zwei?", "loesung": "Also \\\\boxed{2}"}\n')
    config = SetConfig(
        path=str(path),
        question=("{frage}",),
        answer="loesung",
        verifier="math_answer",
        read="boxed",
        language="de",
    )
    sources, _ = sources_of(["mine"], {"mine": config})
    asked = sources["mine"].problem("rl", 0, 0)
    assert (asked.prompt, asked.verifier, asked.reference) == (
        "Zwei?", "math_answer", {"answer": "2"},
    )  # fmt: skip
    assert asked.facts["language"] == "de"


def test_a_set_that_cannot_be_read_is_a_mistake_in_the_recipe(tmp_path):
    missing = SetConfig(path=str(tmp_path / "none.jsonl"))
    with pytest.raises(RecipeError, match=r"sets\.gsm8k: gsm8k: .*none\.jsonl is not a file"):
        sources_of(["gsm8k"], {"gsm8k": missing})
    with pytest.raises(RecipeError, match=r"no source 'gsm8'\. Did you mean 'gsm8k'"):
        sources_of(["gsm8"])


def test_the_plan_reads_files_and_fetches_nothing(sums):
    sets = {"gsm8k": SetConfig(path=sums(6), held_out=0.5)}
    ((name, told),) = described(["arithmetic", "gsm8k"], sets).items()
    assert name == "gsm8k" and told.endswith(" held out (prompts of any length)")
    assert told.partition(" ")[2].startswith("questions to learn from, ")
    assert described(["gsm8k", "math500"], {}) == {
        "gsm8k": "openai/gsm8k, from the hub or its cache when the run starts",
        "math500": "HuggingFaceH4/MATH-500, from the hub or its cache when the run starts",
    }


def test_the_plan_says_which_file_of_a_set_is_missing_and_refuses_one_without_rows(sums, tmp_path):
    assert described(["gsm8k"], {"gsm8k": SetConfig(path="none")}) == {"gsm8k": "none (not found)"}
    sets = {"gsm8k": SetConfig(path=sums(6), against=("svamp",)), "svamp": SetConfig(path="none")}
    assert described(["gsm8k"], sets) == {"gsm8k": "none (not found)"}
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(RecipeError, match=r"sets\.gsm8k: .*bad\.jsonl"):
        described(["gsm8k"], {"gsm8k": SetConfig(path=str(tmp_path / "bad.jsonl"))})


@pytest.fixture
def gym(monkeypatch):
    """Sources of reasoning-gym as they are asked for; the package is not needed."""
    asked = []
    monkeypatch.setattr(
        questions, "GymSource", lambda *given: asked.append(given) or SOURCES["arithmetic"]
    )
    return asked


def test_a_task_of_reasoning_gym_is_named_or_given_settings(gym):
    sets = {"words": {"gym": "spell_backward", "settings": {"max_word_len": 5}}}
    asked = recipe(sets=sets, problems={"words": 1.0, "reasoning_gym/acre": 1.0})
    sources, facts = sources_of(asked.problems, asked.sets)
    assert gym == [
        ("spell_backward", {"max_word_len": 5}, "words"),
        ("acre", {}, "reasoning_gym/acre"),
    ]
    assert list(sources) == ["words", "reasoning_gym/acre"] and facts == {}
    assert described(["words", "reasoning_gym/acre"], asked.sets) == {
        "words": "reasoning-gym's spell_backward, generated",
        "reasoning_gym/acre": "reasoning-gym's acre, generated",
    }


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"settings": {"a": 1}, "of": "gsm8k"}, "read only by a reasoning-gym task"),
        (
            {"gym": "acre", "path": "x", "rows": 3},
            "gym='acre' is generated and does not read path, ro",
        ),
    ],
)
def test_settings_that_nobody_reads_are_refused(config, said):
    with pytest.raises(ValidationError, match=said):
        SetConfig.model_validate(config)


def test_rows_with_other_values_than_those_of_use_are_left_out_of_every_split(tmp_path):
    rows = [
        {"problem": f"{n}+1?", "solution": f"\\boxed{{{n + 1}}}", "level": level, "type": "Algebra"}
        for n, level in enumerate(["Level 1", "Level 4", "Level 5", "Level 1", "Level 4"])
    ]
    for split, some in (("train", rows[:3]), ("test", rows[3:])):
        lines = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    config = SetConfig(path=str(tmp_path), only={"level": ("Level 4", "Level 5")})
    sources, facts = sources_of(["math"], {"math": config})
    assert {one.prompt for one in sources["math"].distinct("rl", 0, 9)} == {"1+1?", "2+1?"}
    assert [one.prompt for one in sources["math"].distinct("test", 0, 9)] == ["4+1?"]
    assert facts["math"]["dropped"] == {"level is not Level 4 or Level 5": 2}


def test_what_a_set_leaves_out_itself_stays_left_out():
    layout = SetConfig(only={"source": ("olympiads",)}).layout("numina_1_5")
    assert layout.only["source"] == ("olympiads",) and layout.only["problem_is_valid"] == ("Yes",)


def test_a_set_may_take_the_place_of_a_generated_source(sums):
    config = SetConfig(of="gsm8k", path=sums(3), held_out=0.0)
    sources, _ = sources_of(["general"], {"general": config})
    asked = sources["general"].problem("rl", 0, 0)
    assert source_of(asked) == "general" and asked.prompt.startswith("Ann has")


def test_prompts_without_an_answer_have_a_fixed_reference_and_facts_from_columns(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"ask": "How do I greet?", "sort": "greet"},
        {"ask": "How do I steal?", "sort": "harm"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bound = {"length": {"at_least": 1}}
    config = SetConfig(
        path=str(path), question=("{ask}",), verifier="length", fixed=bound, facts={"kind": "sort"}
    )
    sources, _ = sources_of(["general"], {"general": config})
    asked = [sources["general"].problem("rl", 0, i) for i in range(2)]
    kinds = {problem.prompt: problem.facts["kind"] for problem in asked}
    assert kinds == {"How do I greet?": "greet", "How do I steal?": "harm"}
    assert all(problem.reference == bound and problem.verifier == "length" for problem in asked)
    assert all(problem.facts["source"] == "general" for problem in asked)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"question": ("{ask}",), "verifier": "length"}, "for prompts without an answer a `fixed`"),
        ({"of": "gsm8k", "fixed": {"a": 1}}, "fixed={'a': 1} is read only with `question`"),
        ({"of": "gsm8k", "facts": {"a": "b"}}, "facts={'a': 'b'} is read only with `question`"),
        ({"of": "gsm8k", "verifier": "number"}, "verifier='number' is read only with `question`"),
        ({"of": "gsm8k", "language": "de"}, "language='de' is read only with `question`"),
        (
            {"of": "gsm8k", "question": ("{a}",), "answer": "b", "verifier": "number"},
            r"of='gsm8k' and question=\['\{a\}'\]: set only one",
        ),
        (
            {
                "question": ("{a}",),
                "verifier": "length",
                "fixed": {"a": 1},
                "facts": {"source": "b"},
            },
            "the fact 'source' is the name of the set",
        ),
    ],
)
def test_a_set_needs_what_its_verifier_reads(config, said):
    with pytest.raises(ValidationError, match=said):
        SetConfig.model_validate(config)


def test_a_repository_takes_the_place_of_that_of_a_known_set():
    layout = SetConfig(of="gsm8k", repo="me/mine").layout("mine")
    assert layout is not None and (layout.repo, layout.config) == ("me/mine", "")
    assert layout.reference == SETS["gsm8k"].reference


def test_an_answer_and_a_reference_exclude_each_other():
    with pytest.raises(
        ValueError, match=r"answer='a' and reference=\{'value': 'b'\}: set only one"
    ):
        SetConfig(question=("{q}",), verifier="number", answer="a", reference={"value": "b"})


def test_generated_problems_are_no_exam_to_compare_with():
    values = FIXED | {"sets": {"gsm8k": {"against": ["arithmetic"]}}, "problems": {"gsm8k": 1.0}}
    with pytest.raises(ValidationError, match="'arithmetic' is generated, not published"):
        ZeroRecipe.model_validate(values)
