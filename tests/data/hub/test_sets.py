"""Where each known set is published, under which splits, and which facts its rows tell."""

import pytest

from veriloop.data.hub.load import read
from veriloop.data.hub.sets import SETS

PUBLISHED = {  # repository and configuration on the hub, training and held-out split
    "gsm8k": ("openai/gsm8k", "main", "train", "test"),
    "svamp": ("ChilleD/SVAMP", "", "train", "test"),
    "math": ("DigitalLearningGmbH/MATH-lighteval", "default", "train", "test"),
    "math500": ("HuggingFaceH4/MATH-500", "", "", "test"),
    "aime24": ("HuggingFaceH4/aime_2024", "", "", "train"),
    "aime25": ("math-ai/aime25", "", "", "test"),
    "numina_cot": ("AI-MO/NuminaMath-CoT", "", "train", "test"),
    "numina_1_5": ("AI-MO/NuminaMath-1.5", "", "train", ""),
    "openr1_math": ("open-r1/OpenR1-Math-220k", "default", "train", ""),
    "deepscaler": ("agentica-org/DeepScaleR-Preview-Dataset", "", "train", ""),
    "dapo_math": ("BytedTsinghua-SIA/DAPO-Math-17k", "", "train", ""),
    "countdown": ("Jiayi-Pan/Countdown-Tasks-3to4", "", "train", ""),
    "mbpp": ("google-research-datasets/mbpp", "full", "train", "test"),
    "humaneval": ("openai/openai_humaneval", "", "", "test"),
    "humaneval_plus": ("evalplus/humanevalplus", "", "", "test"),
    "apps": ("codeparrot/apps", "", "train", "test"),
    "taco": ("BAAI/TACO", "", "train", "test"),
    "livecodebench": ("lighteval/code_generation_lite", "v6", "", "test"),
    "codeforces": ("open-r1/codeforces", "verifiable", "train", "test"),
    "ultrafeedback_binarized": (
        "HuggingFaceH4/ultrafeedback_binarized", "", "train_prefs", "test_prefs"
    ),
    "ultrafeedback": ("openbmb/UltraFeedback", "", "train", ""),
    "hh_rlhf": ("Anthropic/hh-rlhf", "", "train", "test"),
    "mixture_of_thoughts": ("open-r1/Mixture-of-Thoughts", "all", "train", ""),
}  # fmt: skip
HUMANEVAL, NUMINA = {"row": "HumanEval/0"}, {"origin": "olympiads", "subject": "Algebra"}
FACTS = {  # beside the source and the language
    "svamp": {"subject": "Common-Division", "row": "chal-1"},
    "math": {"difficulty": "Level 2", "subject": "Algebra"},
    "math500": {
        "difficulty": 2, "subject": "Precalculus", "row": "test/precalculus/807.json",
    },
    "numina_cot": {"origin": "synthetic_math"},
    "numina_1_5": NUMINA,
    "openr1_math": NUMINA,
    "dapo_math": {"row": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
    "mbpp": {"row": 601},
    "humaneval": HUMANEVAL,
    "humaneval_plus": HUMANEVAL,
    "apps": {"difficulty": "introductory"},
    "taco": {"difficulty": "EASY"},
    "livecodebench": {"difficulty": "easy", "row": "abc_a", "date": "2024-08-10T00:00:00"},
    "codeforces": {"difficulty": 800, "row": "852/A"},
}  # fmt: skip


def test_each_set_is_read_from_where_it_is_published():
    assert {
        name: (layout.repo, layout.config, layout.train, layout.test)
        for name, layout in SETS.items()
    } == PUBLISHED


@pytest.mark.parametrize(
    "name", [name for name, layout in SETS.items() if layout.kind == "problems"]
)
def test_the_facts_of_a_row_are_those_that_its_set_has(name, rows, written):
    first, *_ = read(name, path=written(rows[name]))
    facts = {"source": name, "language": "en"}
    assert first.problem.facts == facts | FACTS.get(name, {})


def test_of_some_sets_the_hub_has_a_script_alone():
    assert {name for name, layout in SETS.items() if layout.script} == {"apps", "taco"}


@pytest.mark.parametrize(
    ("name", "row", "prompt", "answer"),
    [
        ("aime24", {"Problem": "Walk?", "Answer": 33}, "Walk?", "33"),
        ("aime25", {"question": "Bases?", "answer": "70"}, "Bases?", "70"),
    ],
)
def test_columns_may_have_the_names_of_another_copy_of_the_set(name, row, prompt, answer, written):
    (entry,) = read(name, path=written([row]))
    assert (entry.problem.prompt, entry.problem.reference) == (prompt, {"answer": answer})
