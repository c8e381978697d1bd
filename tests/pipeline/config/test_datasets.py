"""Settings of a data set that would be read as something else, or not at all, are refused."""

import pytest
from pydantic import ValidationError

from veriloop.pipeline.config.datasets import SetConfig, is_generated


def test_a_path_and_a_repository_exclude_each_other():
    with pytest.raises(ValidationError, match=r"path='a\.jsonl' and repo='me/mine': set only one"):
        SetConfig(path="a.jsonl", repo="me/mine")


def test_a_split_of_a_single_file_is_refused_and_another_file_is_not():
    with pytest.raises(ValueError, match=r"test='test' is a split, and g\.jsonl holds one alone"):
        SetConfig(path="g.jsonl", test="test").holds_out("gsm8k")
    assert SetConfig(path="g.jsonl", test="h.jsonl").holds_out("gsm8k")
    assert SetConfig(path="g", test="validation").holds_out("gsm8k")


def test_a_source_is_generated_unless_it_is_a_published_set():
    sets = {"words": SetConfig(gym="spell_backward"), "arithmetic": SetConfig(of="gsm8k")}
    assert is_generated("words", sets) and is_generated("reasoning_gym/acre", sets)
    assert is_generated("programs", sets) and not is_generated("arithmetic", sets)
    assert not is_generated("gsm8k", sets)


def test_a_question_names_a_column_in_braces():
    own = {"path": "q.jsonl", "answer": "a", "verifier": "number"}
    assert SetConfig(question="{q}", **own).question == ("{q}",)
    assert SetConfig(question=["Solve:", "{q}"], **own).question == ("Solve:", "{q}")
    for forgotten in ("question", ["question"], "{question", "question}"):
        with pytest.raises(
            ValidationError, match=r"no column in braces.*Did you mean '{question}'"
        ):
            SetConfig(question=forgotten, **own)
