"""`veriloop report RUN [RUN2 ...]`: a run as an HTML page, as Markdown and as JSON."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import parse_options


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write report.html, report.md and report.json of a run into its folder, beside other runs."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    beside: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="[RUN2 [RUN3 ...]]", help="runs to compare it with"),
    ] = ()
    into: Annotated[str, tyro.conf.arg(help="write to this folder instead")] = ""
    answers_mb: Annotated[float, tyro.conf.arg(help="MB of answers that the page includes")] = 5.6
    strict: Annotated[
        bool,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.arg(help="exit with 1 if a health check is bad"),
    ] = False


def command(words: Sequence[str]) -> int:
    """0: written; 1: with --strict, if a health check is bad."""
    from veriloop.pipeline.report.write import write_report

    options = parse_options(Options, words)
    into = Path(options.into) if options.into else None
    if not 0 <= options.answers_mb < inf:
        raise RecipeError(f"--answers-mb {options.answers_mb:g}: must be 0 or more, and finite")
    size = round(1e6 * options.answers_mb)
    report = write_report(
        Path(options.run), *map(Path, options.beside), into=into, answers_bytes=size
    )
    for check in report.checks:
        number = f"{check.number}  ({check.stage})" if check.stage else check.number
        print(f"{check.level:<8}{check.question.asks:<32}{number}")
    print(f"\n{report.page}")
    return 1 if options.strict and any(check.level == "bad" for check in report.checks) else 0


LARGEST = 2**30  # bytes of rollouts up to which a run writes its report by itself


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Write the report of the run in `folder` when the block ends, also after an exception.

    A report that fails, or that would take minutes, is mentioned on stderr and never fails a run.
    """
    try:
        yield
    finally:
        if (folder / "run.json").is_file():
            try:
                _report(folder)
            # The run is what matters, not its report.
            except Exception as failure:  # noqa: BLE001
                print(f"no report: {type(failure).__name__}: {failure}", file=sys.stderr)


def _report(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*/rollouts/*.parquet"))
    if size > LARGEST:
        reason = f"{size / 2**30:.1f} GiB of rollouts; to make one: veriloop report {folder}"
        print(f"no report: {reason}", file=sys.stderr)
        return
    from veriloop.pipeline.report.write import write_report

    print(f"report: {write_report(folder).page}", flush=True)
