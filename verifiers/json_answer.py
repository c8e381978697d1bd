"""The answer is JSON: parsed strictly and checked against a schema, a value, or both."""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think, final_answer
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 200_000
MAX_DEPTH = 200  # below the recursion limit of the validation
EXTRA = ("refuse", "fence")

_MARKED = re.compile(r"</?answer>|\\boxed")
_OWN_MARKUP = re.compile(r"~~|%|<|\\")  # what may hide a part of a text, or ends tags
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL | re.IGNORECASE)


def strict_loads(text: str) -> Any:
    """Parse JSON by RFC 8259 and I-JSON (RFC 7493).

    No NaN, Infinity, duplicate keys, lone surrogates, or numbers beyond the range of a double that
    have a point or an exponent. Raises ValueError.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"longer than {MAX_CHARS} characters")
    try:
        value = json.loads(
            text,
            parse_constant=_reject_constant,
            parse_float=_finite,
            object_pairs_hook=_reject_duplicates,
        )
        json.dumps(value, ensure_ascii=False).encode()
        if _depth(value) > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError("a lone surrogate is not JSON") from error
    return value


def _depth(value: Any) -> int:
    """How deeply arrays and objects are nested; 0 for a scalar."""
    depth, level = 0, [value]
    while level := [v for v in level if isinstance(v, list | dict)]:
        depth += 1
        level = [item for v in level for item in (v.values() if isinstance(v, dict) else v)]
    return depth


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:20]} is out of range for JSON")
    return value


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise ValueError("a key occurs twice")
    return parsed


def same(a: Any, b: Any) -> bool:
    """JSON equality: 1 equals 1.0, true differs from 1, and the order of keys does not matter."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def json_text(response: str, extra: str, *, prefilled_think: bool = False) -> str | None:
    """The text that should be JSON: all text after the thinking if it parses, or if it has neither
    tags nor a box; else the final answer. With `extra` "fence", a single fenced block is cut out of
    that text."""
    text = after_think(response, prefilled_think=prefilled_think)
    if text is None:
        return None
    bare = _unfenced(text, extra)
    if _parses(bare) or not _MARKED.search(text):
        return bare or None
    answer = final_answer(text) or _tagged(text, extra)
    return None if answer is None else _unfenced(answer, extra) or None


def _unfenced(text: str, extra: str) -> str:
    bare = text.strip()
    fences = _FENCE.findall(bare)
    if len(fences) == 1 and (extra == "fence" or _FENCE.fullmatch(bare)):
        return fences[0].strip()
    return bare


def _parses(text: str) -> bool:
    try:
        strict_loads(text)
    except ValueError:
        return False
    return True


def _tagged(text: str, extra: str) -> str | None:
    """The JSON in the only tags around it, whose strings have markup of their own; else None.

    The text around the tags is judged as around any other answer.
    """
    opened, closed = text.find("<answer>"), text.rfind("</answer>")
    content = text[opened + len("<answer>") : closed] if 0 <= opened < closed else ""
    if not _OWN_MARKUP.search(content) or not _parses(_unfenced(content, extra)):
        return None
    outside = f"{text[:opened]}<answer>{{}}</answer>{text[closed + len('</answer>') :]}"
    return content if final_answer(outside) == "{}" else None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema_rs import Draft202012Validator, RegexOptions

    return Draft202012Validator(
        json.loads(schema), validate_formats=True, offline=True, pattern_options=RegexOptions()
    )


def _mismatch(value: Any, schema: Any) -> str:
    """Why the value does not fit the schema; "" if it fits.

    Raises jsonschema_rs.ValidationError on an invalid schema. Validation takes linear time in the
    length of a string, also for patterns.
    """
    error = next(iter(_validator(json.dumps(schema)).iter_errors(value)), None)
    if error is None:
        return ""
    path = "".join(f"[{key}]" if type(key) is int else f".{key}" for key in error.instance_path)
    return f"${path} breaks {error.schema_path[-1] if error.schema_path else 'the schema'!r}"


def _extra_text(reference: Mapping[str, Any]) -> str:
    if "schema" not in reference and "value" not in reference:
        raise ValueError(f"reference needs 'schema', 'value' or both, got {sorted(reference)}")
    extra = reference.get("extra_text", "refuse")
    if extra not in EXTRA:
        raise ValueError(f"extra_text must be one of {EXTRA}, got {extra!r}")
    return extra


@verifier(
    "json_answer",
    version="4",
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
    """1 if the JSON fits `reference["schema"]` (JSON Schema 2020-12) and equals
    `reference["value"]`; one of the two may be absent.

    `reference["extra_text"]`: "refuse" (the default), or "fence" to accept text around a single
    fenced block. Remote `$ref`s in a schema are never fetched. Patterns are run by an engine that
    takes linear time: a schema with a look-around or a back-reference is an error.
    """
    extra = _extra_text(problem.reference)
    prefilled = problem.facts.get("prefilled_think", False)
    text = json_text(response, extra, prefilled_think=prefilled)
    if text is None:
        return no_answer()
    parts = {"parsed": 0.0, "valid": 0.0, "equal": 0.0}
    try:
        value = strict_loads(text)
    except ValueError as error:
        detail = f"not JSON: {error}"
        return Verdict(score=0.0, answer=text[:2_000], detail=detail, components=parts)
    mismatch = ""
    if "schema" in problem.reference:
        mismatch = _mismatch(value, problem.reference["schema"])
    equal = "value" not in problem.reference or same(value, problem.reference["value"])
    parts = {"parsed": 1.0, "valid": float(not mismatch), "equal": float(equal)}
    detail = mismatch or ("" if equal else "not equal to the reference value")
    return Verdict(score=min(parts.values()), answer=text[:2_000], detail=detail, components=parts)
