"""Supervised recipes: what does not fit together is refused, defaults are the paper's."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SFTRecipe

SFT = {"name": "n", "start": "s", "optimizer": {"learning_rate": 1e-3}}
COLLECTS = SFT | {"teacher": "t", "collect": {"questions": 4}}


def test_generated_rows_must_be_counted():
    with pytest.raises(ValidationError, match="generated data has no end"):
        SFTRecipe.model_validate(SFT | {"data": {"source": "arithmetic"}})
    assert SFTRecipe.model_validate(SFT | {"data": {"source": "a.jsonl"}}).data.rows == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "source='' and problems={}: set exactly one"),
        ({"source": "a.jsonl", "problems": {"gsm8k": 1.0}, "rows": 4}, "set exactly one"),
        ({"problems": {"gsm8k": 1.0}}, "rows=0: set the number of rows"),
        (
            {"problems": {"gsm8k": 1.0}, "rows": 4, "steps": {"gsmk8": "places"}},
            "steps: 'gsmk8' is no source of `problems`. Did you mean 'gsm8k'? Known: gsm8k",
        ),
        (
            {"source": "a.jsonl", "steps": {"gsm8k": "places"}},
            "steps: 'gsm8k' is no source of `problems`. Known: none",
        ),
        ({"problems": {"arithmetic": 1.0}, "rows": 4}, "'arithmetic' has no worked solutions"),
        ({"problems": {"gsm9k": 1.0}, "rows": 4}, "no source 'gsm9k'. Did you mean 'gsm8k'?"),
    ],
)
def test_rows_come_from_one_place_that_is_known(data, message):
    with pytest.raises(ValidationError) as refused:
        SFTRecipe.model_validate(SFT | {"data": data})
    assert message in str(refused.value)


def test_a_teacher_asked_in_the_template_of_r1_zero_takes_no_system_message():
    collect = {"questions": 4, "system": "r1"}
    with pytest.raises(ValidationError, match="template r1_zero has an instruction of its own"):
        ColdStartRecipe.model_validate(COLLECTS | {"collect": collect})
    chat = ColdStartRecipe.model_validate(COLLECTS | {"collect": collect | {"template": "chat"}})
    assert "<think>" in chat.collect.system


def test_epochs_and_proportions_are_the_papers_unless_told():
    cold, rejection = (k.model_validate(COLLECTS) for k in (ColdStartRecipe, RejectionRecipe))
    assert (cold.epochs, rejection.epochs) == (3, 2)
    assert rejection.general.reasoning == 3 and cold.collect.temperature == 1.0
    assert cold.data.template == rejection.data.template == "r1_zero"
    for kind in (ColdStartRecipe, RejectionRecipe):  # another setting of data leaves it as it is
        asked = COLLECTS | {"data": {"held_out": 8}}
        assert kind.model_validate(asked).data.template == "r1_zero"
        own = COLLECTS | {"data": {"template": "own"}}
        assert kind.model_validate(own).data.template == "own"
    assert cold.examine and not SFTRecipe.model_validate(SFT | {"data": {"source": "a"}}).examine


@pytest.mark.parametrize(
    "changed",
    [
        {"collect": {"questions": 4, "problems": {"arithmetic": 0.0}}},
        {"collect": {"questions": 4, "keep": 0}},
        {"filters": {"consistency": 1.1}},
        {"filters": {"min_word": 3}},
        {"rewrite": {"rewriter": "http://x/v1"}},
    ],
)
def test_values_outside_their_range_are_refused(changed):
    with pytest.raises(ValidationError):
        ColdStartRecipe.model_validate(COLLECTS | changed)


def test_a_set_needs_held_out_questions_only_where_the_stage_reads_them():
    file = {"sets": {"gsm8k": {"path": "train.jsonl"}}}
    worked = SFT | {"data": {"problems": {"gsm8k": 1.0}, "rows": 4}} | file
    SFTRecipe.model_validate(worked)
    with pytest.raises(ValidationError, match="no question of 'gsm8k' is held out"):
        SFTRecipe.model_validate(worked | {"examine": True})
    collecting = COLLECTS | file | {"collect": {"questions": 4, "problems": {"gsm8k": 1.0}}}
    with pytest.raises(ValidationError, match="no question of 'gsm8k' is held out"):
        RejectionRecipe.model_validate(collecting | {"examine": False})
    named = {"evaluation": {"sources": ["gsm8k"]}} | file
    offline = {"method": "sft", "data": {"source": "a.jsonl"}}
    DistillRecipe.model_validate(SFT | named | offline | {"examine": False})
    with pytest.raises(ValidationError, match="no question of 'gsm8k' is held out"):
        DistillRecipe.model_validate(SFT | named | offline)
    PreferenceRecipe.model_validate(SFT | named)
    with pytest.raises(ValidationError, match="no question of 'gsm8k' is held out"):
        PreferenceRecipe.model_validate(SFT | named | {"problems": {"arithmetic": 1.0}})
