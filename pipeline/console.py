"""What a stage says while it runs: a bar and its numbers, or one plain line a step in a log."""

import math
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
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
    from pipeline.records import Graded

WIDTH = 100  # columns, at most
KEY_METRICS = (
    "loss",
    "reward",
    "reward_std",
    "completions/mean_length",
    "entropy",
    "kl",
    "kl_to_teacher",
    "grad_norm",
)
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])"  # titles, links, device strings:
    r"[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"  # up to their end, when they have one
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, bidi marks, surrogates


class StageConsole:
    """A progress bar with the time left, a line of key metrics under it, and sample tables.

    On anything but a terminal it is quiet: one plain line a step and no tables. Every string it
    is given may come from a model, so none is read as markup and none reaches the terminal with
    a control character in it.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        *,
        done: int = 0,  # steps a resumed run took before
        file: TextIO | None = None,  # default: standard output
        key_metrics: Sequence[str] = KEY_METRICS,
    ) -> None:
        self._file = sys.stdout if file is None else file
        self._title, self._steps, self._keys = plain(title), steps, tuple(key_metrics)
        self._numbers = Text()
        self._encoding = getattr(self._file, "encoding", None) or "utf-8"
        able = self._encoding.lower().startswith("utf") and os.environ.get("TERM") != "dumb"
        live = able and self._file.isatty()
        self._console = Console(file=self._file, markup=False, emoji=False, highlight=False)
        self._console.width = min(self._console.width, WIDTH)
        self._bar = _bar(self._console)
        self._task = self._bar.add_task(self._title, total=steps, completed=done)
        self._live = Live(get_renderable=self._frame, console=self._console) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show that `step` of `steps` is done, with the key metrics it has, in their order."""
        numbers = "  ".join(f"{plain(k)} {_number(metrics[k])}" for k in self._keys if k in metrics)
        if self._live is None:
            self._print(f"{self._title} {step}/{self._steps}  {numbers}".rstrip())
            return
        self._numbers = Text(numbers, style="dim")
        self._bar.update(self._task, completed=step)

    def note(self, text: str) -> None:
        """One line above the bar."""
        if self._live is None:
            self._print(plain(text))
        else:
            self._console.print(Text(plain(text)))

    def samples(self, graded: "Sequence[Graded]", limit: int = 3) -> None:
        """A table of the first `limit` completions and their scores; nothing without a terminal."""
        if self._live is None or not graded:
            return
        table = Table(box=box.SIMPLE_HEAD, show_lines=True, width=self._console.width)
        table.add_column("prompt", ratio=3)
        table.add_column("completion", ratio=5)
        table.add_column("reward", justify="right", ratio=2)
        for one in graded[:limit]:
            prompt, response = one.rollout.problem.prompt, one.rollout.response
            table.add_row(Text(clip(prompt, 160)), Text(clip(response, 320)), Text(_scores(one)))
        self._console.print(table)

    def _print(self, line: str) -> None:
        said = line.encode(self._encoding, "replace").decode(self._encoding)
        print(said, file=self._file, flush=True)

    def _frame(self) -> Group:
        return Group(self._bar, self._numbers)


def plain(text: str) -> str:
    """`text` on one line, safe on a terminal: no escape sequences, controls or bidi marks.

    Line ends become ⏎, other unseen characters a replacement mark, so that what was there shows.
    """
    lines = re.sub(r"\r\n?|\u2028|\u2029", "\n", _ESCAPE.sub("�", text))
    seen = lines.replace("\n", " ⏎ ").replace("\t", " ")
    return "".join("�" if unicodedata.category(c) in _UNSEEN else c for c in seen).strip()


def clip(text: str, limit: int) -> str:
    """`plain(text)` in at most `limit` characters: two thirds from its start, the rest its end."""
    if len(text) > 8 * limit:  # a flood need not be cleaned whole
        text = f"{text[: 4 * limit]} … {text[-4 * limit :]}"
    clean = plain(text)
    if len(clean) <= limit:
        return clean
    front = (limit - 3) * 2 // 3
    return f"{clean[:front]} … {clean[front + 3 - limit :]}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _scores(one: "Graded") -> str:
    total = "error" if one.reward is None else f"{one.reward:.3g}"
    parts = [
        f"{plain(name)} {verdict.status if verdict.score is None else f'{verdict.score:.3g}'}"
        for name, verdict in one.verdicts.items()
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
