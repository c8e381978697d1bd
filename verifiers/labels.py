"""From the label of somebody else's data set to a problem that one of our verifiers reads."""

import json
from collections.abc import Mapping
from typing import Any

from data.problem import Problem
from verifiers.registry import get

COLUMNS = ("solution", "answer", "ground_truth", "label", "target")  # tried in this order
_OWN = frozenset({"verifier", "reference", "facts"})  # keys of a label that says all by itself


def problem_for(
    label: Any, verifier: str = "", *, prompt: str = "", facts: Mapping[str, Any] | None = None
) -> Problem:
    """The problem that a label stands for.

    `{"verifier": ..., "reference": ..., "facts": ...}`, also as JSON text, names its verifier; any
    other object is the reference of `verifier`, and anything else is the one value that its
    reference holds, if it holds one. A prompt that ends with `<think>` says that the response
    starts inside. Raises KeyError for an unknown verifier, ValueError for a label it cannot take.
    """
    label = _plain(label)
    told = dict(facts or {})
    if isinstance(label, Mapping) and "verifier" in label:
        _only_own(label)
        verifier, told = label["verifier"], {**told, **(label.get("facts") or {})}
        label = label.get("reference", {})
    if not isinstance(verifier, str) or not verifier:
        raise ValueError(
            f"the label {_shown(label)} names no verifier, and none was given beside it"
        )
    keys = tuple(get(verifier).example.reference)
    if not isinstance(label, Mapping):
        label = _single(label, verifier, keys)
    if prompt.rstrip().endswith("<think>"):
        told.setdefault("prefilled_think", True)
    return Problem(id="", prompt=prompt, verifier=verifier, reference=dict(label), facts=told)


def find_label(row: Mapping[str, Any], column: str = "") -> Any:
    """The label in a row of a data set: in `column`, else in the first of COLUMNS there is, else
    None. Raises KeyError for a column that is not there."""
    if column and column not in row:
        raise KeyError(f"no column {column!r}; there are {sorted(row)}")
    return next((row[name] for name in ((column,) if column else COLUMNS) if name in row), None)


def _plain(label: Any) -> Any:
    """Arrays as lists, and JSON text of an object that names a verifier as that object."""
    if hasattr(label, "tolist"):
        label = label.tolist()
    if isinstance(label, str) and label.lstrip().startswith("{"):
        try:
            found = json.loads(label)
        except ValueError:
            return label
        return found if isinstance(found, dict) and "verifier" in found else label
    return label


def _only_own(label: Mapping[str, Any]) -> None:
    for key in label:
        if key not in _OWN:
            raise ValueError(f"a label has no key {key!r}; known: {', '.join(sorted(_OWN))}")


def _single(label: Any, verifier: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not keys:
        return {}  # the label is for whoever else judges the row
    if isinstance(label, list) and len(label) == 1:
        label = label[0]
    if len(keys) != 1:
        raise ValueError(
            f"the reference of {verifier!r} has the keys {list(keys)}, so a label must be an "
            f"object with them, got {_shown(label)}"
        )
    if label is None:
        raise ValueError(f"verifier {verifier!r} needs a label, got None")
    return {keys[0]: label}


def _shown(label: Any) -> str:
    text = repr(label)
    return text if len(text) <= 80 else f"{text[:80]}..."
