"""`veriloop data decontaminate` and `veriloop data export`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from veriloop.data.card import write_data
from veriloop.data.counts import counted
from veriloop.data.decontaminate import SIZE, Overlap, texts_of
from veriloop.data.hub import trainer_formats
from veriloop.data.hub.export import Exporter, ExportFormat, require_writable, write
from veriloop.data.hub.load import Entry, ProblemReader
from veriloop.data.hub.sets import SETS
from veriloop.pipeline.config.fields import Count
from veriloop.stages.commands.data_rows import Rows, is_path, open_rows, tokens_of

SPOKEN = ("messages", "prompt", "chosen", "rejected", "ranked")  # columns of conversations
SHOWN = 5  # contaminated rows printed


@dataclass(frozen=True, kw_only=True)
class Decontaminate(Rows):
    """Remove the rows that share an n-gram with other sets."""

    against: list[str] = field(default_factory=list)  # known sets, NAME=PATH, or exported files
    size: Count = SIZE  # words per n-gram
    output: str = ""  # file for the remaining rows, in TRL's layout; empty: only report


@dataclass(frozen=True, kw_only=True)
class Export(Rows):
    """Write a set as a file in the format of another trainer."""

    to: str = "trl"  # trl, trl-completion, verl, openrlhf or mot
    output: str  # file to write
    tokenizer: str = ""  # folder or name, for the column num_tokens of mot


def decontaminate(options: Decontaminate) -> int:
    """Report the rows that overlap with the other sets; write the others to `output`."""
    if not options.against:
        raise ValueError("--against: name at least one set")
    output = Path(options.output) if options.output else None
    if output is not None:
        require_writable(output)
    exams = {name: _exam(name) for name in options.against}
    held_out = {name: Overlap(_texts(exam), options.size) for name, exam in exams.items()}
    reading = open_rows(options)
    contaminated: Counter[str] = Counter()  # rows by the set they share a text with, or by several
    shared = Counter[str]()  # a row that shows two sets is in both counts
    clean: list[dict[str, Any]] = []
    lines: list[str] = []
    for entry in reading:
        grams = {name: gram for name, texts in held_out.items() if (gram := _shared(entry, texts))}
        shared.update(grams.keys())
        if grams:
            contaminated[", ".join(sorted(grams))] += 1
            lines += [f"{_id(entry)} shows {name}: {gram}" for name, gram in grams.items()]
        else:
            clean.append(trainer_formats.trl(entry.problem) if isinstance(entry, Entry) else entry)
    used = reading.rows - reading.dropped.total()
    print(
        f"{reading.name}, split {reading.split}: {counted(used, 'row')}, "
        f"{len(clean):,} of them clean"
    )
    for name, overlap in held_out.items():
        of = f"split {exams[name].split}, {overlap.texts:,} texts"
        texts = f"{options.size} words or a formula with {name} ({of})"
        print(f"  {shared[name]:,} share {texts}")
    print("".join(f"{line}\n" for line in lines[:SHOWN]), end="")
    if output is not None:
        _write_clean(output, clean, reading, contaminated, options.size)
    return 0


def export(options: Export) -> int:
    """Write the file and print how many rows it has."""
    output = Path(options.output)
    tokens = tokens_of(options.tokenizer) if options.tokenizer else None
    # Exporter checks the name.
    to: ExportFormat = options.to  # type: ignore[assignment]
    rows = Exporter(open_rows(options), to, tokens)
    require_writable(output, to)
    count = write(output, rows)
    print(f"{output}: {counted(count, 'row')} for {to}")
    for reason, dropped in rows.dropped.most_common():
        print(f"not used: {dropped:,} {reason}")
    return 0


def _exam(name: str) -> ProblemReader:
    try:
        return open_rows(_named(name))
    except trainer_formats.UnlabelledError as unlabelled:
        raise ValueError(f"--against {unlabelled.export_first(name)}") from unlabelled


def _named(name: str) -> Rows:
    """The rows of an evaluation set: of a known one its held-out split, if it has one."""
    known, equals, path = name.partition("=")
    if known not in SETS or (not equals and is_path(name)):
        return Rows(name=name)
    return Rows(name=known, path=path, split=SETS[known].test)


def _texts(exam: ProblemReader) -> Iterable[str]:
    """Texts of an evaluation set: questions and their solutions."""
    for entry in exam:
        yield from _words(entry)


def _words(entry: Any) -> Iterable[str]:
    if isinstance(entry, Entry):
        return (entry.problem.prompt, *entry.solutions)
    return chain.from_iterable(texts_of(entry[name]) for name in SPOKEN if name in entry)


def _shared(entry: Any, held_out: Overlap) -> str:
    """What an entry shares with the evaluation texts, the words of its template apart."""
    texts = list(_words(entry))
    if isinstance(entry, Entry):
        prompt, texts = entry.problem.prompt, list(entry.solutions)
        if gram := held_out.shared(entry.filled or prompt, prompt):
            return gram
    return next((gram for text in texts if (gram := held_out.shared(text))), "")


def _id(entry: Any) -> str:
    return entry.problem.id if isinstance(entry, Entry) else next(iter(_words(entry)), "")[:60]


def _write_clean(
    output: Path,
    rows: list[dict[str, Any]],
    reading: ProblemReader,
    contaminated: Counter[str],
    size: int,
) -> None:
    facts = {
        "set": reading.name,
        "split": reading.split,
        "read": reading.rows,
        "dropped": {**reading.dropped, **{f"shows {name}": n for name, n in contaminated.items()}},
        "ngram": size,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    write_data(output, rows, facts)
    print(f"{output}: {counted(len(rows), 'row')}")
