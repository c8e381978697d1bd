"""Maps the columns of a data set to questions, verifiers and references."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

Row = Mapping[str, Any]
Kind = Literal["problems", "labelled", "preferences", "sft"]

_COLUMN = re.compile(r"\{([^{}]+)\}")


class UnusableRow(ValueError):  # noqa: N818  a reason to skip a row; counted, not shown as an error
    """A row without a usable problem; the message is the reason it is counted under."""


class WrongColumnsError(ValueError):
    """A row lacks the column that its layout names."""

    def __init__(self, column: str, row: Row) -> None:
        close = get_close_matches(column, row, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"no column {column!r}.{hint} The rows have {', '.join(row)}")
        self.reason = f"no column {column}"  # it is counted under, beyond the first row


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the rows of a data set are read.

    A column is its name; `prompt.0.content` descends into structs and lists, and `a|b` is the
    first of these columns that is not empty. Texts are templates: `{column}` is filled in.
    """

    repo: str = ""  # on the hub; "": only given by a path
    config: str = ""  # configuration on the hub
    train: str = "train"  # training split
    test: str = ""  # held-out split; "": none
    kind: Kind = "problems"
    ask: tuple[str, ...] = ()  # paragraphs; after the first, those with an empty column are skipped
    strip: tuple[str, ...] = ()  # instructions about another answer format, removed from questions
    verifier: str = ""
    read: str = "text"  # name in veriloop.data.hub.reference_readers.READERS, for the reference
    reference: Mapping[str, str] = field(default_factory=dict)  # key: column
    fixed: Mapping[str, Any] = field(default_factory=dict)  # constant parts of the reference
    solution: str = ""  # column of a solution, or of several as a JSON list
    worked: str = ""  # name in reference_readers.WORKED_READERS, for the steps to the answer
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # column: accepted values
    facts: Mapping[str, str] = field(default_factory=dict)  # fact: column
    language: str = "en"  # of the questions, ISO 639-1
    script: bool = False  # the hub only has a loading script, which `datasets` no longer runs


def value(row: Row, column: str) -> Any:
    """The value of a column; of `a|b` the first that is neither null nor empty, else None.

    Raises WrongColumnsError if the row has none of the columns.
    """
    present = False
    for path in column.split("|"):
        exists, content = _resolve(row, path)
        present |= exists
        if content is not None and content not in ("", []):
            return content
    if not present:
        raise WrongColumnsError(column, row)
    return None


def _resolve(row: Row, path: str) -> tuple[bool, Any]:
    """(whether the outermost column exists, the value at the path or None)."""
    if path in row:
        return True, row[path]
    head, *rest = path.split(".")
    content: Any = row.get(head)
    for step in rest:
        if isinstance(content, Mapping):
            content = content.get(step)
        elif isinstance(content, list) and step.isdigit() and int(step) < len(content):
            content = content[int(step)]
        else:
            content = None
    return head in row, content


def text(row: Row, column: str) -> str:
    """A column as stripped text; finite numbers are converted, 3.0 to 3. Raises UnusableRow for
    anything else."""
    content = value(row, column)
    if isinstance(content, str):
        content = content.strip()
    elif isinstance(content, bool):
        pass
    elif isinstance(content, int | float) and math.isfinite(content):
        content = str(int(content) if content % 1 == 0 else content)
    if content in (None, ""):
        raise UnusableRow(f"no {column.split('|')[0]}")
    if not isinstance(content, str):
        raise UnusableRow(f"{column.split('|')[0]} is not text")
    return content


def require_json(content: Any, name: str) -> None:
    """Raise UnusableRow for a value that JSON cannot hold, as a date of Parquet."""
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UnusableRow(f"{name} is not a value of JSON") from None


def columns_named(template: str) -> list[str]:
    """The columns that a paragraph of a question names in braces."""
    return _COLUMN.findall(template)


def question(row: Row, layout: Layout) -> str:
    """The user's prompt. Raises UnusableRow if it is empty."""
    paragraphs = [
        _COLUMN.sub(lambda column: _shown(row, column.group(1)), template)
        for template in _templates(row, layout)
    ]
    prompt = _stripped("\n\n".join(paragraphs), layout)
    if not prompt:
        raise UnusableRow("no question")
    return prompt


def filled_in(row: Row, layout: Layout) -> str:
    """What the columns put into the prompt, without the template's own words."""
    shown = [
        _shown(row, column)
        for template in _templates(row, layout)
        for column in columns_named(template)
    ]
    return _stripped("\n\n".join(shown), layout)


def _templates(row: Row, layout: Layout) -> Iterator[str]:
    """The templates of the paragraphs that the prompt has."""
    for number, template in enumerate(layout.ask):
        columns = columns_named(template)
        if not number or not any(_is_blank(value(row, column)) for column in columns):
            yield template


def _stripped(prompt: str, layout: Layout) -> str:
    for words in layout.strip:
        prompt = prompt.replace(words, "")
    return prompt.strip()


def _shown(row: Row, column: str) -> str:
    content = value(row, column)
    return str(content) if isinstance(content, list) else text(row, column)


def _is_blank(content: Any) -> bool:
    return content is None or not str(content).strip()


def columns_of(layout: Layout) -> dict[str, str]:
    """A description of which column each part of a problem comes from."""
    columns = {"question": "; ".join(c for part in layout.ask for c in columns_named(part))}
    columns |= {f"reference.{key}": column for key, column in layout.reference.items()}
    columns |= {f"fact {key}": column for key, column in layout.facts.items()}
    columns["solution"] = layout.solution
    return {part: column for part, column in columns.items() if column}
