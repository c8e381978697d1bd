"""The answer is JSON: strictly parsed, held against a schema, a value, or both."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from data.problem import Problem
from verifiers.answer import after_think, final_answer
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 200_000
EXTRA = ("refuse", "fence")

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL | re.IGNORECASE)


def strict_loads(text: str) -> Any:
    """Parse JSON as RFC 8259 has it: no NaN or Infinity, no key twice. Raises ValueError."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"longer than {MAX_CHARS} characters")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and true is not 1; objects without order, arrays with it."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def written(response: str, extra: str, *, prefilled_think: bool = False) -> str | None:
    """The text that should be JSON: the final answer, or without tags and box all that follows the
    thinking. With `extra` "fence" one fenced block in it is taken out of what stands around."""
    text = after_think(response, prefilled_think=prefilled_think)
    if text is None:
        return None
    if "<answer>" in text or "</answer>" in text or "\\boxed" in text:
        text = final_answer(response, prefilled_think=prefilled_think)
        if text is None:
            return None
    bare = text.strip()
    fences = _FENCE.findall(bare)
    if len(fences) == 1 and (extra == "fence" or _FENCE.fullmatch(bare)):
        bare = fences[0].strip()
    return bare or None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    parsed = json.loads(schema)
    Draft202012Validator.check_schema(parsed)
    return Draft202012Validator(
        parsed, registry=Registry(), format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def _mismatch(value: Any, schema: Any) -> str:
    """Why the value does not fit the schema; "" when it does. Raises for a schema that is none."""
    wrong = next(iter(_validator(json.dumps(schema)).iter_errors(value)), None)
    return "" if wrong is None else f"{wrong.json_path} breaks {wrong.validator!r}"


def _asked(reference: Mapping[str, Any]) -> str:
    if "schema" not in reference and "value" not in reference:
        raise ValueError(f"reference needs 'schema', 'value' or both, got {sorted(reference)}")
    extra = reference.get("extra_text", "refuse")
    if extra not in EXTRA:
        raise ValueError(f"extra_text must be one of {EXTRA}, got {extra!r}")
    return extra


@verifier(
    "json_answer",
    reference={
        "value": {"name": "Ada", "born": 1815},
        "schema": {"type": "object", "required": ["name", "born"]},
    },
    accepts='<think>easy</think><answer>{"born": 1815.0, "name": "Ada"}</answer>',
    rejects=(
        '<answer>{"name": "Ada"}</answer>',
        '<answer>{"name": "Ada", "born": "1815"}</answer>',
        '<answer>{"name": "Ada", "born": 1815, "born": 1815}</answer>',
        '<answer>Here it is: {"name": "Ada", "born": 1815}</answer>',
        '<answer>{"name": "Ada", "born": 1815,}</answer>',
        '<answer>{"name": "Ada", "born": NaN}</answer>',
    ),
    other=({"value": [1, 2]}, "<think>t</think>```json\n[1, 2]\n```"),
    components=("parsed", "valid", "equal"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the JSON fits `reference["schema"]` (JSON Schema 2020-12) and equals
    `reference["value"]`, whichever are given.

    `reference["extra_text"]`: "refuse" (the default), or "fence" to take one fenced block out of
    the text around it. References in a schema are never fetched.
    """
    extra = _asked(problem.reference)
    prefilled = problem.facts.get("prefilled_think", False)
    text = written(response, extra, prefilled_think=prefilled)
    if text is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    parts = {"parsed": 0.0, "valid": 0.0, "equal": 0.0}
    try:
        value = strict_loads(text)
    except ValueError as why:
        return Verdict(score=0.0, answer=text[:2_000], detail=f"no JSON: {why}", components=parts)
    misfit = ""
    if "schema" in problem.reference:
        misfit = _mismatch(value, problem.reference["schema"])
    equal = "value" not in problem.reference or same(value, problem.reference["value"])
    parts = {"parsed": 1.0, "valid": float(not misfit), "equal": float(equal)}
    detail = misfit or ("" if equal else "another value")
    return Verdict(score=min(parts.values()), answer=text[:2_000], detail=detail, components=parts)
