"""Strict JSON, its schema and its value."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.json_answer import json_text, same, strict_loads
from veriloop.verifiers.registry import get, judge


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "{'a': 1}", '{"a": 1,}', '{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]', "NaN",
        "[Infinity]", "-Infinity", '{"a": 1} {}', "// x\n1", "9" * 5_000, "[" * 100_000,
        "[" * 201 + "]" * 201, '{"a": ' * 150 + "[" * 51 + "]" * 51 + "}" * 150,
        '"' + "a" * 300_000 + '"', "1e400", "[-1.5e999]", r'"\ud800"', r'{"\udfff": 1}', '"\ud800"',
    ],
    ids=range(21),
)  # fmt: skip
def test_what_is_no_json_is_refused(text):
    with pytest.raises(
        ValueError, match=r"JSON|key|char|Expecting|digits|nested|longer|line|delimiter|range"
    ):
        strict_loads(text)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True), (True, 1, False), (False, 0, False), (True, True, True), ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], [2, 1], False), ([1], [1, 1], False), (None, None, True), (None, False, False),
        ({}, [], False), ([True], [1], False),
    ],
)  # fmt: skip
def test_equality_is_that_of_json(a, b, equal):
    assert same(a, b) is equal is same(b, a)


@pytest.mark.parametrize(
    ("response", "extra", "text"),
    [
        ("<answer> [1] </answer>", "refuse", "[1]"),
        ("<think>t</think>[1]", "refuse", "[1]"),
        ("```json\n[1]\n```", "refuse", "[1]"),
        ("Here:\n```json\n[1]\n```", "refuse", "Here:\n```json\n[1]\n```"),
        ("Here:\n```json\n[1]\n```", "fence", "[1]"),
        ("```\n[1]\n```\n```\n[2]\n```", "fence", "```\n[1]\n```\n```\n[2]\n```"),
        ("<answer>[1]</answer><answer>[2]</answer>", "fence", None),
        ("<think>[1]", "refuse", None),
        (r"\boxed{[1]}", "refuse", "[1]"),
    ],
)
def test_the_text_that_should_be_json(response, extra, text):
    assert json_text(response, extra) == text


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3}},
    "required": ["n"],
}


@pytest.mark.parametrize(
    ("reference", "answer", "score"),
    [
        ({"schema": SCHEMA}, '{"n": 3}', 1.0),
        ({"schema": SCHEMA}, '{"n": 2}', 0.0),
        ({"schema": SCHEMA}, '{"n": "3"}', 0.0),
        ({"schema": SCHEMA}, "{}", 0.0),
        ({"value": {"n": 3}}, '{"n": 3}', 1.0),
        ({"value": {"n": 3}, "schema": SCHEMA}, '{"n": 4}', 0.0),
        ({"value": None}, "null", 1.0),
        ({"schema": {"type": "string", "format": "date"}}, '"2024-02-30"', 0.0),
    ],
)
def test_schema_and_value_must_both_hold(reference, answer, score):
    verdict = judge(get("json_answer").problem(reference), f"<answer>{answer}</answer>")
    assert verdict.score == score, verdict


def test_the_verdict_says_what_does_not_fit():
    verdict = judge(get("json_answer").problem({"schema": SCHEMA}), '<answer>{"n": 2}</answer>')
    assert verdict.detail == "$.n breaks 'minimum'"
    assert verdict.components == {"parsed": 1.0, "valid": 0.0, "equal": 1.0}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({}, "needs 'schema', 'value' or both"),
        ({"schema": {"type": "nothing"}}, 'ValidationError: "nothing" is not valid'),
        ({"schema": {"$ref": "http://127.0.0.1:1/x.json"}}, "Retrieval is disabled"),
        ({"schema": {"$ref": "#/$defs/none"}}, "does not exist"),
        ({"schema": {"pattern": "(?=a)b"}}, 'is not a "regex"'),
        ({"schema": {"pattern": r"(a)\1"}}, 'is not a "regex"'),
        ({"schema": {"pattern": "["}}, 'is not a "regex"'),
        ({"value": 1, "extra_text": "any"}, "extra_text must be one of"),
    ],
)
def test_a_reference_of_no_use_is_our_error(reference, message):
    verdict = judge(get("json_answer").problem(reference), "<answer>1</answer>")
    assert verdict.status == "error" and message in verdict.detail


TREE = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
HOSTILE = {
    "nested quantifiers": ({"pattern": "^(a+)+$"}, '"' + "a" * 100_000 + '!"'),
    "alternatives": ({"pattern": "^(a|a)*$"}, '"' + "a" * 100_000 + '!"'),
    "a pattern of keys": (
        {"patternProperties": {"^(x+x+)+y$": {"type": "null"}}, "additionalProperties": False},
        '{"' + "x" * 100_000 + '": 1}',
    ),
    "a recursive schema": (TREE, "[" * 900 + "1" + "]" * 900),
    "an endless number": ({"multipleOf": 0.01}, "1e400"),
    "a long integer": ({"multipleOf": 0.01, "maximum": 5}, "1" * 4_000),
    "many objects": (
        {"uniqueItems": True, "maxItems": 9},
        "[" + ",".join(f'{{"a":{n}}}' for n in range(15_000)) + "]",
    ),
    "half a surrogate pair": ({"type": "string", "maxLength": 0}, r'"\ud800"'),
}


@pytest.mark.parametrize(("schema", "answer"), HOSTILE.values(), ids=HOSTILE)
def test_no_answer_makes_the_verifier_fail(schema, answer):
    with cpu_budget(2):
        verdict = judge(get("json_answer").problem({"schema": schema}), answer)
    assert (verdict.score, verdict.status) == (0.0, "graded")


def test_a_pattern_that_is_costly_to_search_is_matched_all_the_same():
    problem = get("json_answer").problem({"schema": {"type": "string", "pattern": "^(a+)+$"}})
    assert judge(problem, '"' + "a" * 100_000 + '"').score == 1.0


BOXED = r'{"reasoning": "we get \\boxed{4}", "answer": 4}'
STRUCK = '{"md": "~~no~~", "answer": 4}'
FOUR = {"schema": {"required": ["answer"], "properties": {"answer": {"const": 4}}}}
TAGGED = {"value": {"html": "<answer>4</answer>"}}


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        (FOUR, BOXED), (FOUR, f"```json\n{BOXED}\n```"), (FOUR, f"<answer>{BOXED}</answer>"),
        (FOUR, f"<answer>```json\n{BOXED}\n```</answer>"), (FOUR, STRUCK),
        (FOUR, f"<answer>{STRUCK}</answer>"), (FOUR, f"Here it is: <answer>{STRUCK}</answer>"),
        (FOUR, '<answer>{"md": "<!-- no -->", "answer": 4}</answer>'),
        (FOUR, r'<answer>{"md": "\\phantom{x}", "answer": 4}</answer>'),
        (TAGGED, '{"html": "<answer>4</answer>"}'),
        (TAGGED, '<answer>{"html": "<answer>4</answer>"}</answer>'),
    ],
)  # fmt: skip
def test_strings_of_json_may_hold_latex_and_markup(reference, response):
    assert judge(get("json_answer").problem(reference), f"<think>x</think>{response}").score == 1.0


@pytest.mark.parametrize(
    ("reference", "response"),
    [
        (FOUR, f"Here it is: {BOXED}"), (FOUR, f"<!-- <answer>{STRUCK}</answer> -->"),
        (FOUR, f"<answer>{STRUCK}</answer> Wait, that is wrong."),
        (FOUR, f"It is not <answer>{STRUCK}</answer>"),
        (FOUR, f"<answer>{STRUCK}</answer><answer>{STRUCK}</answer>"),
        (FOUR, f"~~<answer>{STRUCK}</answer>~~"), (FOUR, '<answer>{"answer": ~~5~~4}</answer>'),
        (FOUR, f"<answer>{STRUCK} or {STRUCK}</answer>"),
        ({"value": 4}, "<answer>4</answer>. The answer is 5."),
        ({"value": 4}, '"<answer>4</answer>"'), ({"value": 4}, "<answer>~~5~~4</answer>"),
    ],
)  # fmt: skip
def test_json_that_is_hidden_denied_or_one_of_several_is_refused(reference, response):
    assert judge(get("json_answer").problem(reference), f"<think>x</think>{response}").score == 0.0


def test_no_depth_of_an_answer_is_a_failure_of_the_judge():
    """So that none can escape its verdict."""
    problem = get("json_answer").problem({"schema": {"type": "array"}})
    verdicts = [judge(problem, "[" * depth + "]" * depth) for depth in (1, 200, 201, 256, 5000)]
    assert [v.score for v in verdicts] == [1.0, 1.0, 0.0, 0.0, 0.0]
