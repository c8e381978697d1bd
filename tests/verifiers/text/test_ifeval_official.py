"""IFEval's own scores, with the leniencies of the original checks."""

import importlib.util
import json
import sys

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.text.ifeval_official import OFFICIAL, SCORES, official
from veriloop.verifiers.text.instruction_text import follows

INSTALLED = all(map(importlib.util.find_spec, ("langdetect", "nltk", "punkt")))
pytestmark = pytest.mark.skipif(not INSTALLED, reason="the extra `ifeval` is not installed")

LENIENT = [  # followed for the original, not by our stricter check
    ("keywords:existence", {"keywords": ["art"]}, "We start now."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "A c\u200bat sat."),
    ("language:response_language", {"language": "de"}, "12345"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* \u200b\n* \u200b"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*.* *.*"),
    ("detectable_format:multiple_sections", {"section_spliter": "S", "num_sections": 2}, "S1 S1"),
    ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no."),
    ("detectable_format:json_format", {}, "42"),
    ("combination:two_responses", {}, "a****** A"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Say hi."),
    ("startend:end_checker", {"end_phrase": "any questions?"}, "Many questions?"),
    ("startend:quotation", {}, '"a" and "b"'),
]
STRICT = [  # followed by our check, not for the original
    ("detectable_format:constrained_response", {}, "my answer is yes."),
    ("length_constraints:number_words", {"num_words": 2, "relation": "less than"}, "x-ray"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* a\n-"),
]


def test_every_id_of_ifeval_has_its_check():
    assert len(OFFICIAL) == 25


@pytest.mark.slow
@pytest.mark.parametrize(("id", "kwargs", "text"), LENIENT)
def test_the_original_pays_what_our_check_refuses(id, kwargs, text):
    assert official(text, id, kwargs) and not follows(text, id, kwargs)


@pytest.mark.parametrize(("id", "kwargs", "text"), STRICT)
def test_the_original_refuses_what_our_check_pays(id, kwargs, text):
    assert not official(text, id, kwargs) and follows(text, id, kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "kwargs", "right", "wrong"),
    [
        (
            "length_constraints:number_sentences",
            {"num_sentences": 2, "relation": "less than"},
            "Dr. Smith paid the U.S. 3.50 today.",
            "He paid. She left.",
        ),
        (
            "change_case:capital_word_frequency",
            {"capital_frequency": 2, "capital_relation": "at least"},
            "A WORD",
            "Capital WORDS",
        ),
        ("language:response_language", {"language": "fr"}, "Je ne sais pas encore.", "I know it."),
        ("detectable_format:title", {}, "<<<a>>", "<<>>"),
        ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "p. p.s", "P.S."),
        (
            "detectable_content:number_placeholders",
            {"num_placeholders": 2},
            "[[a] []",
            "[a\n] [b]",
        ),
    ],
)
def test_the_original_checks_decide_as_they_do(id, kwargs, right, wrong):
    assert official(right, id, kwargs) and not official(wrong, id, kwargs)


def test_the_four_scores_are_components_and_one_is_the_score():
    reference = {
        "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"],
        "kwargs": [{}, {"end_phrase": "The end"}],
    }
    response = "<think>a, b</think>Sure, here:\nit rains. **The end**"
    expected = dict(zip(SCORES, (0.0, 0.0, 1.0, 1.0), strict=True))
    verdict = judge(get("ifeval").problem(reference), response)
    assert verdict.components == {"instructions": 2.0, **expected} and verdict.score == 0.0
    for name, value in expected.items():
        assert judge(get("ifeval").problem(reference | {"score": name}), response).score == value
    wrong = judge(get("ifeval").problem(reference | {"score": "strict"}), response)
    assert wrong.status == "error" and "score must be one of" in wrong.detail


def test_the_share_of_the_instructions_is_the_instruction_level():
    reference = {
        "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"],
        "kwargs": [{}, {"end_phrase": "The end"}],
        "score": "instruction_level_strict",
    }
    verdict = judge(get("ifeval").problem(reference), "It rains.")
    assert verdict.score == 0.5 and verdict.components["prompt_level_strict"] == 0.0


def test_long_junk_is_judged_in_time():
    kwargs = {
        "detectable_content:number_placeholders": {"num_placeholders": 1},
        "detectable_format:title": {},
        "detectable_format:number_bullet_lists": {"num_bullets": 1},
        "detectable_content:postscript": {"postscript_marker": "P.S."},
        "detectable_format:number_highlighted_sections": {"num_highlights": 1},
        "length_constraints:number_paragraphs": {"num_paragraphs": 1},
    }
    with cpu_budget(3):
        for junk in ("[", "\n", " ", "<<", "*", "p."):
            for id, arguments in kwargs.items():
                assert official(f"x{junk * 30_000}", id, arguments) in (True, False)


def test_the_words_of_the_reference_may_come_from_open_instruct():
    truth = [{"instruction_id": ["punctuation:no_comma"], "kwargs": [None]}]
    problem = get("ifeval").problem({"ground_truth": json.dumps(truth)})
    assert judge(problem, "no such mark").score == 1.0


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "langdetect", None)
    reference = {
        "instruction_id_list": ["language:response_language"],
        "kwargs": [{"language": "de"}],
    }
    verdict = judge(get("ifeval").problem(reference), "Hallo")
    assert verdict.status == "error" and "pip install 'veriloop[ifeval]'" in verdict.detail
