"""`veriloop data`: show, check, decontaminate or export a data set."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from veriloop.data.counts import counted
from veriloop.data.hub.layout import Layout, columns_of
from veriloop.data.hub.load import Entry, ProblemReader
from veriloop.data.hub.sets import SETS
from veriloop.data.problem import Problem
from veriloop.data.template import R1_ZERO
from veriloop.pipeline.config.fields import Count, Positive, Whole
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands import data_export
from veriloop.stages.commands.data_rows import Rows, Tokens, open_rows, tokens_of
from veriloop.stages.commands.parse import Verbs, run_verb

if TYPE_CHECKING:
    from veriloop.stages.commands.data_check import Checked

SHOWN = 5  # ids printed of each list


@dataclass(frozen=True, kw_only=True)
class Show(Rows):
    """Print the columns of a set and its first rows as problems, or list all known sets."""

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="SET", help="a known set, a file or a folder; empty: list them"),
    ] = ""
    rows: Whole = 3  # rows to print
    tokenizer: str = ""  # folder or name; also prints the length of every prompt in tokens


@dataclass(frozen=True, kw_only=True)
class Check(Rows):
    """Verify every answer of a set with the set's verifier, and answers of other problems."""

    rows: Whole = 0  # check only the first rows; 0: all
    response: str = ""  # column of a right response, or of several as a list; empty: the reference
    solutions: Count = 1  # programs, or responses, to judge per problem
    workers: Count = 1  # verifier processes
    limit_s: Positive = 5.0  # seconds per verification
    tokenizer: str = ""  # folder or name; checks the length of prompts
    max_prompt: Count = 256  # tokens of a prompt in R1-Zero's template, checked with --tokenizer
    json: Annotated[str, tyro.conf.arg(help="also write the findings to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Run one verb; 1 when `check` finds a set unsound. Raises RecipeError for user mistakes."""
    try:
        return run_verb(words, VERBS, "Show, check, decontaminate or export a data set.")
    except ValueError as mistake:
        raise RecipeError(str(mistake)) from mistake


def known_sets() -> str:
    """A line for each known set: name, verifier, repository on the hub."""
    return "\n".join(
        f"{name:<24}{layout.verifier or layout.kind:<14}{layout.repo}"
        f"{f' ({layout.config})' if layout.config else ''}"
        for name, layout in SETS.items()
    )


def _show(options: Show) -> int:
    if not options.name:
        print(known_sets())
        return 0
    reading = open_rows(options)
    print(f"{reading.name}, split {reading.split}: {_layout_summary(reading.layout)}")
    for field, column in columns_of(reading.layout).items():
        print(f"  {field:<22}{column}")
    tokens = tokens_of(options.tokenizer) if options.tokenizer else None
    for entry in islice(iter(reading), options.rows):
        print(f"\n{shown(entry, tokens)}")
    for reason, count in reading.dropped.most_common():
        print(f"\nnot used: {count:,} {reason}")
    if options.rows and not reading.rows:
        raise ValueError(f"{reading.name}, split {reading.split}: it holds no rows")
    return 0


def shown(entry: Any, tokens: Tokens | None) -> str:
    """A problem, or a row that is no problem, as text."""
    if not isinstance(entry, Entry):
        return json.dumps(entry, ensure_ascii=False, indent=1)
    problem = entry.problem
    length = f"  [{tokens(problem.prompt):,} tokens]" if tokens else ""
    reference = json.dumps(problem.reference, ensure_ascii=False)
    if len(reference) >= 400:
        reference = f"{reference[:400]}... ({len(reference):,} characters)"
    return "\n".join(
        [
            f"{problem.id}  {problem.verifier}{length}",
            problem.prompt,
            f"reference: {reference}",
            f"facts: {json.dumps(problem.facts, ensure_ascii=False)}",
        ]
        + ([f"solutions: {len(entry.solutions)}"] if entry.solutions else [])
    )


def _layout_summary(layout: Layout) -> str:
    kind = layout.verifier or ("as labelled" if layout.kind == "labelled" else layout.kind)
    return f"{kind}{f', from {layout.repo}' if layout.repo else ''}, read as {layout.read}"


def _check(options: Check) -> int:
    from veriloop.stages.commands.data_check import check
    from veriloop.verifiers.pool import VerifierPool

    output = Path(options.json) if options.json else None
    reading = open_rows(options, limit=options.rows)
    if options.response:
        reading.layout = replace(reading.layout, solution=options.response)
    entries = [*_problems(reading)]
    tokens = tokens_of(options.tokenizer) if options.tokenizer else None

    def fits(problem: Problem) -> bool:
        prompt = R1_ZERO.format(prompt=problem.prompt)
        return tokens is None or tokens(prompt) <= options.max_prompt

    with VerifierPool(options.workers, options.limit_s) as pool:
        checked = check(entries, pool, fits, options.solutions, given=bool(options.response))
    _report(reading, checked)
    if not checked.answers:
        print("no answer was judged: the set is not known to be sound")
    if output is not None:
        counts = asdict(checked) | {"rows": reading.rows, "dropped": dict(reading.dropped)}
        output.write_text(json.dumps(counts, indent=1), encoding="utf-8")
    return 0 if checked.sound else 1


def _report(reading: ProblemReader, checked: "Checked") -> None:
    """Print every count, and the first ids of each list."""
    lists = {
        "own answer refused": checked.refused,
        "verifier failed": checked.failed,
        "another's answer accepted": checked.mistaken,
        "duplicate": checked.duplicates,
        "prompt too long": checked.too_long,
    }
    print(f"{reading.name}, split {reading.split}: {counted(reading.rows, 'row')}")
    for label, count in [
        ("problems", checked.problems),
        *((f"not used: {reason}", count) for reason, count in reading.dropped.most_common()),
        ("without an own answer", checked.unanswered),
        ("own answers judged", checked.answers),
        ("others' answers judged", checked.strangers),
        *((label, len(ids)) for label, ids in lists.items()),
    ]:
        print(f"  {label:<40}{count:>9,}")
    for label, ids in lists.items():
        for line in ids[:SHOWN]:
            print(f"{label}: {line}")


def _problems(reading: ProblemReader) -> Iterator[Entry]:
    for entry in reading:
        if not isinstance(entry, Entry):
            raise RecipeError(f"{reading.name}: {reading.layout.kind} rows have no right answers")
        yield entry


VERBS: Verbs = {
    "show": (Show, _show),
    "check": (Check, _check),
    "decontaminate": (data_export.Decontaminate, data_export.decontaminate),
    "export": (data_export.Export, data_export.export),
}
