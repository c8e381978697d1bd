"""Console output of a run: a progress bar, or plain lines in a log, and a line on what the run is
doing, with the time left, whenever nothing was printed for a while."""

import math
import os
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from veriloop.pipeline.types import Graded

PERIOD = 8.0  # seconds without a line after which one is printed
WIDTH = 100  # columns, at most
KEY_METRICS = (
    "loss",
    "reward",
    "rewards/accuracy/mean",
    "reward_std",
    "completions/mean_length",
    "entropy",
    "kl",
    "kl_to_teacher",
    "grad_norm",
)
SHOWN_AS = {"rewards/accuracy/mean": "accuracy"}  # shorter names of metrics
LOG = "console.log"  # the console's text, in the folder of the stage
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])"  # titles, links, device strings:
    r"[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"  # up to their end, when they have one
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # by Unicode category


class Activity:
    """A part of a run with a known or unknown (0) number of units; `start` were done before."""

    def __init__(self, label: str, total: int = 0, start: int = 0) -> None:
        self.label, self.total, self.start, self.done = label, total, start, start
        self._began = time.monotonic()

    def advance(self, count: int = 1) -> None:
        """Count `count` more units as done."""
        self.done += count

    def line(self) -> str:
        """`label: done/total, time, eta time`; without units only the time."""
        seconds = time.monotonic() - self._began
        if not self.total:
            return f"{self.label}: {_clock(seconds)}"
        fresh = self.done - self.start
        left = max(self.total - self.done, 0)
        eta = _clock(left * seconds / fresh) if fresh > 0 else "unknown"
        return f"{self.label}: {self.done:,}/{self.total:,}, {_clock(seconds)}, eta {eta}"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class _Board:
    """The activities of this process, innermost last, and where their lines are printed."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []
        self.outputs: list[Callable[[str], None]] = [_to_stderr]
        self.printed = time.monotonic()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_board = _Board()


def touch() -> None:
    """Note that a line has just been printed."""
    _board.printed = time.monotonic()


def say(line: str) -> None:
    """Print a line on stdout."""
    print(line, flush=True)
    touch()


def current() -> Activity | None:
    """The innermost activity."""
    return next(reversed(_board.activities), None)


@contextmanager
def activity(label: str, total: int = 0, start: int = 0) -> Iterator[Activity]:
    """Report a part of the run until the block ends; its `advance` counts units of `total`.

    A line is printed when nothing was printed for PERIOD seconds, for the innermost activity only.
    """
    part = Activity(label, total, start)
    _board.activities.append(part)
    try:
        with _Heartbeat(part):
            yield part
    finally:
        _board.activities.remove(part)


@contextmanager
def output(show: Callable[[str], None]) -> Iterator[None]:
    """Print the lines of activities with `show` until the block ends; the default is stderr."""
    _board.outputs.append(show)
    try:
        yield
    finally:
        _board.outputs.remove(show)


class _Heartbeat:
    """A thread that prints the line of an activity while it is the innermost one."""

    def __init__(self, part: Activity) -> None:
        self._part, self._ended = part, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(max(_board.printed + PERIOD - time.monotonic(), PERIOD / 100)):
            if current() is self._part and time.monotonic() - _board.printed >= PERIOD:
                touch()
                with suppress(OSError):  # a full disk; the next step of the run reports it
                    _board.outputs[-1](self._part.line())


class StageConsole:
    """A progress bar with the time left, a line of key metrics, and tables of samples.

    Without a terminal it prints one plain line per step and no tables. While it is open, lines of
    `activity` are shown here too, so that it is never silent for long. Steps and notes are appended
    to `log`. Any string may come from a model, so none is parsed as markup and control characters
    are removed from all.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        *,
        done: int = 0,  # steps before the run was resumed
        file: TextIO | None = None,  # default: standard output
        key_metrics: Sequence[str] = KEY_METRICS,
        log: Path | None = None,
    ) -> None:
        self._log, self._open, self._done = log, ExitStack(), done
        self._running: Activity | None = None
        self._file = sys.stdout if file is None else file
        self._title, self._steps, self._keys = plain(title), steps, tuple(key_metrics)
        self._numbers = Text()
        self._encoding = getattr(self._file, "encoding", None) or "utf-8"
        unicode = self._encoding.lower().startswith("utf") and os.environ.get("TERM") != "dumb"
        live = unicode and self._file.isatty()
        self._console = Console(file=self._file, markup=False, emoji=False, highlight=False)
        self._console.width = min(self._console.width, WIDTH)
        self._bar = _bar(self._console)
        self._task = self._bar.add_task(self._title, total=steps, completed=done)
        self._live = Live(get_renderable=self._frame, console=self._console) if live else None

    def __enter__(self) -> Self:
        self._running = self._open.enter_context(activity(self._title, self._steps, self._done))
        show = self._print if self._live is None else self._keep
        self._open.enter_context(output(show))
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._open.close()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show that `step` of `steps` is done, and its key metrics."""
        numbers = "  ".join(
            f"{plain(SHOWN_AS.get(k, k))} {_number(metrics[k])}" for k in self._keys if k in metrics
        )
        if self._running is not None:
            self._running.done = step
        line = f"{self._title} {step}/{self._steps}  {numbers}".rstrip()
        if self._live is None:
            self._print(line)
            return
        self._keep(line)
        self._numbers = Text(numbers, style="dim")
        self._bar.update(self._task, completed=step)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        if self._live is None:
            self._print(plain(text))
        else:
            self._keep(plain(text))
            self._console.print(Text(plain(text)))

    def samples(self, graded: "Sequence[Graded]", limit: int = 3) -> None:
        """Print a table of the first `limit` completions and their scores, on a terminal only."""
        if self._live is None or not graded:
            return
        table = Table(box=box.SIMPLE_HEAD, show_lines=True, width=self._console.width)
        table.add_column("prompt", ratio=3)
        table.add_column("completion", ratio=5)
        table.add_column("reward", justify="right", ratio=2)
        for sample in graded[:limit]:
            prompt, response = sample.rollout.problem.prompt, sample.rollout.response
            table.add_row(Text(clip(prompt, 160)), Text(clip(response, 320)), Text(_scores(sample)))
        self._console.print(table)

    def _print(self, line: str) -> None:
        self._keep(line)
        encodable = line.encode(self._encoding, "replace").decode(self._encoding)
        print(encodable, file=self._file, flush=True)
        touch()

    def _keep(self, line: str) -> None:
        """Append a line to the log."""
        if self._log is not None:
            with self._log.open("a", encoding="utf-8", errors="replace") as log:
                log.write(f"{line}\n")

    def _frame(self) -> Group:
        part = current()
        inner = "" if part is None or part is self._running else part.line()
        return Group(self._bar, *([Text(plain(inner))] if inner else []), self._numbers)


def plain(text: str) -> str:
    """`text` on one line without escape sequences, control characters or bidi marks.

    Line ends become ⏎ and other invisible characters a replacement mark.
    """
    lines = re.sub(r"\r\n?|\u2028|\u2029", "\n", _ESCAPE.sub("�", text))
    line = lines.replace("\n", " ⏎ ").replace("\t", " ")
    return "".join("�" if unicodedata.category(c) in _INVISIBLE else c for c in line).strip()


def clip(text: str, limit: int) -> str:
    """`plain(text)` in at most `limit` characters: two thirds from the start, then its end."""
    if len(text) > 8 * limit:  # no need to clean all of a very long text
        text = f"{text[: 4 * limit]} … {text[-4 * limit :]}"
    clean = plain(text)
    if len(clean) <= limit:
        return clean
    front = (limit - 3) * 2 // 3
    return f"{clean[:front]} … {clean[front + 3 - limit :]}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _scores(graded: "Graded") -> str:
    total = "error" if graded.reward is None else f"{graded.reward:.3g}"
    parts = [
        f"{plain(name)} {verdict.status if verdict.score is None else f'{verdict.score:.3g}'}"
        for name, verdict in graded.verdicts.items()
    ]
    return "\n".join([total, *parts])


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("eta", markup=False),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        expand=True,
    )
