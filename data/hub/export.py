"""Exports a data set in the format of another trainer; `load` can read each file back."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from veriloop.data.card import require_unicode, write_data
from veriloop.data.hub import trainer_formats
from veriloop.data.hub.load import ChatRowReader, Entry, ProblemReader
from veriloop.data.hub.reference_answers import reference_answers

ExportFormat = Literal["trl", "trl-completion", "verl", "openrlhf", "mot"]
ENDINGS: dict[ExportFormat, tuple[str, ...]] = {
    "trl": (".jsonl", ".parquet"),
    "trl-completion": (".jsonl", ".parquet"),
    "verl": (".parquet",),
    "openrlhf": (".jsonl",),
    "mot": (".jsonl", ".parquet"),
}
CHAT_FORMATS = {"preferences": ("trl",), "sft": ("trl", "mot")}  # by the kind of rows
UNANSWERED = "no reference answer"
TokenCounter = Callable[[str], int]


class Exporter:
    """Iterating yields rows; afterwards `dropped` counts the skipped ones by reason."""

    def __init__(
        self, reader: ProblemReader, to: ExportFormat, count_tokens: TokenCounter | None = None
    ) -> None:
        """Raises ValueError for an unknown format, or rows that the format cannot hold."""
        if to not in get_args(ExportFormat):
            raise ValueError(f"to={to!r} is not one of {', '.join(get_args(ExportFormat))}")
        kind, is_chat = reader.layout.kind, isinstance(reader, ChatRowReader)
        if is_chat and to not in CHAT_FORMATS[kind]:
            raise ValueError(
                f"{reader.name}: {kind} rows are exported to {' or '.join(CHAT_FORMATS[kind])}, "
                f"not to {to}"
            )
        if to == "mot" and count_tokens is None and not is_chat:
            raise ValueError("mot: its column num_tokens needs a tokenizer")
        self.reader, self.to, self._count_tokens = reader, to, count_tokens
        self.dropped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for entry in self.reader:
            if not isinstance(entry, Entry):
                yield entry
            elif (row := self._row(entry)) is not None:
                yield row
            else:
                self.dropped[UNANSWERED] += 1
        self.dropped.update(self.reader.dropped)

    def _row(self, entry: Entry) -> dict[str, Any] | None:
        if self.to in trainer_formats.PROMPT_ONLY:
            return trainer_formats.PROMPT_ONLY[self.to](entry.problem)
        answers = reference_answers(entry)
        if not answers:
            return None
        answer = answers[0]
        if self.to == "trl-completion":
            return trainer_formats.trl_completion(entry.problem, answer)
        assert self._count_tokens is not None, "required by __init__"
        tokens = self._count_tokens(answer)
        return trainer_formats.mixture_of_thoughts(entry.problem, answer, tokens)


def require_writable(path: Path, to: ExportFormat | None = None) -> None:
    """Raise ValueError for an ending that the trainer does not read, or for an existing file.
    Without a trainer the file is JSONL."""
    endings, of = (ENDINGS[to], f"a file for {to}") if to else ((".jsonl",), "the file")
    if path.suffix not in endings:
        raise ValueError(f"{path}: {of} ends in {' or '.join(endings)}")
    if path.exists():
        raise ValueError(f"{path} exists already; nothing was written")


def write(path: Path, exporter: Exporter) -> int:
    """Write every row, JSONL with a data card. Returns the number of rows.

    Raises ValueError, and writes nothing, if no row can be exported.
    """
    rows, reader = list(exporter), exporter.reader
    if not rows:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in exporter.dropped.most_common())
        raise ValueError(
            f"{reader.name}: no row can be written for {exporter.to}: {reasons or 'no rows'}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(name for row in rows for name in row))  # not of the first alone
        columns = {name: [row.get(name) for row in rows] for name in names}
        whole = path.with_name(f".{path.name}.part")
        try:
            pq.write_table(pa.table(columns), whole)
        except UnicodeEncodeError:
            require_unicode(rows)
            raise
        whole.replace(path)
        return len(rows)
    facts = {
        "set": reader.name,
        "split": reader.split,
        "layout": exporter.to,
        "read": reader.rows,
        "dropped": dict(exporter.dropped),
    }
    write_data(path, rows, facts)
    return len(rows)
