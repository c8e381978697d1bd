"""`veriloop report RUN [RUN2]`: what happened in a run, as a page, as text and for machines."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write report.html, report.md and report.json into the run folder."""

    run: Annotated[str, tyro.conf.Positional]  # a run folder, with its run.json
    beside: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN2", help="a run to compare it with")
    ] = ""
    into: Annotated[str, tyro.conf.arg(help="another folder to write into")] = ""
    strict: Annotated[
        bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help="exit with 1 where a check is bad")
    ] = False


def command(words: Sequence[str]) -> int:
    """0: written; 1: with --strict, where a health check is bad."""
    from pipeline.report.write import write_report  # and with it pyarrow

    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop report")
    other = Path(options.beside) if options.beside else None
    into = Path(options.into) if options.into else None
    made = write_report(Path(options.run), other, into=into)
    for check in made.checks:
        told = f"{check.number}  ({check.stage})" if check.stage else check.number
        print(f"{check.level:<8}{check.question.asks:<32}{told}")
    print(f"\n{made.page}")
    return 1 if options.strict and any(check.level == "bad" for check in made.checks) else 0


LARGEST = 2**30  # bytes of rollouts that the end of a run waits for


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Write the report of the run in `folder` when what is inside ends, however it ends.

    A report that fails, or that would take minutes, is told of on stderr, and never fails the run.
    """
    try:
        yield
    finally:
        if (folder / "run.json").is_file():
            try:
                _report(folder)
            except Exception as failure:  # noqa: BLE001  the run counts, not its report
                print(f"no report: {type(failure).__name__}: {failure}", file=sys.stderr)


def _report(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*/rollouts/*.parquet"))
    if size > LARGEST:
        told = f"{size / 2**30:.1f} GiB of rollouts; to make one: veriloop report {folder}"
        print(f"no report: {told}", file=sys.stderr)
        return
    from pipeline.report.write import write_report

    print(f"report: {write_report(folder).page}", flush=True)


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["report", *sys.argv[1:]]))
