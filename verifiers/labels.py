"""Problems and responses from other frameworks' rows: labels and prompt-prefixed queries."""

import json
import re
from collections.abc import Mapping
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.boxes import boxed_run, run_answer
from veriloop.verifiers.registry import get

COLUMNS = ("answer", "ground_truth", "solution", "label", "target")  # tried in this order
_WORKED = "solution"  # of COLUMNS: the answer in some data sets, in others mostly the way to it
_OF_MATHS = frozenset({"math_answer", "math_verify", "number", "unit_chain"})
_AFTER_HASHES = re.compile(r"####[ \t]*(\S[^\n]*?)\s*\Z")  # the last line of GSM8K's answers
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")  # no command of LaTeX
_KEYS = frozenset({"verifier", "reference", "facts"})  # of a label that names its verifier
_TAIL_CHARS = 200  # of a prompt, by which the end of a truncated prompt is located in a query
_SPECIAL = re.compile(  # one token at the end; DeepSeek's have bars of full width (U+FF5C)
    r"(?:<\|[^<>|]{1,40}\|>|<\uff5c[^<>\uff5c]{1,40}\uff5c>|</s>|<eos>|<pad>|\[PAD\]|<end_of_turn>)\Z"
)
_LONGEST_SPECIAL = 44  # characters


def problem_for(
    label: Any, verifier: str = "", *, prompt: str = "", facts: Mapping[str, Any] | None = None
) -> Problem:
    """The problem described by a label.

    `{"verifier": ..., "reference": ..., "facts": ...}`, as an object or as JSON text, names its
    verifier. Any other object is the reference of `verifier`. Any other value becomes the only
    value of that reference. A prompt that ends with `<think>` sets the fact `prefilled_think`.
    Raises KeyError for an unknown verifier and ValueError for a label that does not fit.
    """
    label = _plain(label)
    merged_facts = dict(facts or {})
    if isinstance(label, Mapping) and "verifier" in label:
        _check_keys(label)
        verifier = label["verifier"]
        merged_facts |= label.get("facts") or {}
        label = label.get("reference", {})
    if not isinstance(verifier, str) or not verifier:
        raise ValueError(f"the label {_shown(label)} names no verifier, and no default is set")
    keys = tuple(get(verifier).example.reference)
    if not isinstance(label, Mapping):
        label = _single(label, verifier, keys)
    if prompt.rstrip().endswith("<think>"):
        merged_facts.setdefault("prefilled_think", True)
    return Problem(
        id="", prompt=prompt, verifier=verifier, reference=dict(label), facts=merged_facts
    )


def names_verifier(label: Any) -> bool:
    """Whether a label, as an object or as JSON text, names its verifier."""
    plain = _plain(label)
    return isinstance(plain, Mapping) and "verifier" in plain


def find_label(row: Mapping[str, Any], column: str = "", verifier: str = "") -> Any:
    """The label of a row: from `column`, else from the first of COLUMNS that exists, else None.

    A value may be a list, of one label for each sample. If `verifier` is one of mathematics, a text
    that works the answer out is reduced to its last box, or to what follows `####` at its end.
    Raises KeyError if `column` does not exist, and ValueError if none of COLUMNS exists and
    `verifier`, if one is given, reads a reference, or if a `solution` that `column` does not name
    has sentences but neither of both.
    """
    if column and column not in row:
        raise KeyError(f"no column {column!r}; the columns are {sorted(row)}")
    for name in (column,) if column else COLUMNS:
        if name in row:
            maths = verifier in _OF_MATHS
            return _answers(row[name], name, named=bool(column)) if maths else row[name]
    if verifier and get(verifier).example.reference:
        raise ValueError(
            f"verifier {verifier!r} needs a label, but the row has no column "
            f"{', '.join(COLUMNS[:-1])} or {COLUMNS[-1]}; its columns are {sorted(row)}: "
            "name the one with the label by column="
        )
    return None


def _answers(label: Any, column: str, *, named: bool) -> Any:
    """The answer in a label, or in each of a list; what is no text is kept."""
    if isinstance(label, list | tuple):
        return [_answers(one, column, named=named) for one in label]
    if not isinstance(label, str):
        return label
    if marked := _AFTER_HASHES.search(label):
        return marked.group(1)
    worked = _in_sentences(label)
    split = boxed_run(label) if worked or column == _WORKED else None
    if split and split[1] and (answer := run_answer(label, split[1])):
        return answer
    if worked and column == _WORKED and not named:
        raise ValueError(
            f"the column {column!r} holds {_shown(label)}, a text with neither a box nor #### "
            "before its answer: name the column with the answer by column="
        )
    return label


def _in_sentences(text: str) -> bool:
    """Whether a text is likely to be more than an answer."""
    words = _WORD.findall(text)
    if len(words) > 8 or "\n" in text.strip():
        return True
    ends = text.rstrip().endswith((".", "!", "?"))
    opens = _WORD.match(text.lstrip()) is not None
    return (ends and len(words) > 2) or ("=" in text and opens and len(words) > 1)


def response_of(query: str, prompt: str) -> str:
    """The response in a query: without the prompt and without special tokens at the end.

    The query may begin with the end of a truncated prompt. Raises ValueError if it begins with
    neither the prompt nor its end.
    """
    if query.startswith(prompt):
        rest = query[len(prompt) :]
    else:
        tail = prompt[-_TAIL_CHARS:]
        at = query.find(tail, 0, len(prompt))
        if at < 0:
            raise ValueError("the query begins with neither the prompt nor the end of it")
        rest = query[at + len(tail) :]
    return without_special_tokens(rest)


def without_special_tokens(response: str) -> str:
    """The response without special tokens at its end, and without the white space around them.

    Trainers that decode with special tokens leave the end of the turn and padding there.
    """
    kept = len(response)
    while True:
        end = kept
        while end and response[end - 1].isspace():
            end -= 1
        token = _SPECIAL.search(response, max(0, end - _LONGEST_SPECIAL), end)
        if token is None:
            return response[: end if kept < len(response) else kept]
        kept = token.start()


def _plain(label: Any) -> Any:
    """The label with arrays as lists and JSON text that names a verifier parsed."""
    if hasattr(label, "tolist"):
        label = label.tolist()
    if isinstance(label, str) and label.lstrip().startswith("{"):
        try:
            parsed = json.loads(label)
        except ValueError:
            return label
        except RecursionError as deep:
            raise ValueError(f"the label {_shown(label)} nests too deeply") from deep
        return parsed if isinstance(parsed, dict) and "verifier" in parsed else label
    return label


def _check_keys(label: Mapping[str, Any]) -> None:
    for key in label:
        if key not in _KEYS:
            raise ValueError(f"unknown label key {key!r}; known: {', '.join(sorted(_KEYS))}")


def _single(label: Any, verifier: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not keys:
        return {}  # the verifier reads no reference
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
