"""`veriloop doctor`: check this machine, and a model with --model."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import PluginOptions, parse_options

if TYPE_CHECKING:
    from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
    from veriloop.pipeline.doctor.finding import Check, Finding
    from veriloop.pipeline.doctor.machine_under_test import Machine

ROOT = Path(__file__).resolve().parents[2]
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}
NAME_WIDTH, LONGEST = 26, 400  # columns of a name; characters printed of a measurement


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    """Check this machine and, with --model, a checkpoint and its tokenizer."""

    model: str = ""  # folder of a Hugging Face checkpoint, or a name on the hub
    sampler: Literal["auto", "vllm", "torch"] = "auto"  # auto: vLLM if installed
    dtype: Literal["float32", "bfloat16"] = "float32"  # bfloat16: also compares in it
    recipe: str = "tiny/zero"  # recipe of RL whose lengths the model must support
    json: Annotated[str, tyro.conf.arg(help="also write the findings to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Print a line per check; 0 if none failed, else 1.

    Raises RecipeError for an unknown model and for a recipe without rollouts.
    """
    from veriloop.pipeline.doctor.finding import passed

    options = parse_options(Options, words)
    model = _model(options) if options.model else iter(())
    show, findings = _printer(), list["Finding"]()
    for finding in chain(_machine(options), model):
        findings.append(finding)
        show(finding)
    counts = Counter(finding.verdict for finding in findings)
    print(f"\n{', '.join(f'{counts[level]} {level}' for level in STYLES)}")
    if options.json:
        rows = [_flat(finding) for finding in findings]
        Path(options.json).write_text(json.dumps(rows, indent=1), "utf-8")
    return 0 if passed(findings) else 1


def _machine(options: Options) -> "Iterator[Finding]":
    from veriloop.pipeline.doctor.finding import run_checks
    from veriloop.pipeline.doctor.machine_checks import MACHINE

    return run_checks(MACHINE, machine(options))


def _model(options: Options) -> "Iterator[Finding]":
    """Findings about the model, lazily. User mistakes raise at once; a broken installation is a
    finding."""
    from veriloop.pipeline.doctor.finding import fail, first_line

    try:
        from veriloop.pipeline.doctor.model_checks import MODEL

        return _model_findings(_checkpoint(options), MODEL)
    except ImportError as broken:
        message = f"cannot be checked: {first_line(broken)}"
        return iter([fail("model", message, "fix the findings above")])


def _model_findings(
    checkpoint: "CheckpointUnderTest", checks: "Sequence[Check[CheckpointUnderTest]]"
) -> "Iterator[Finding]":
    from veriloop.pipeline.doctor.finding import run_checks

    try:
        yield from run_checks(checks, checkpoint)
    finally:
        checkpoint.close()


def _flat(finding: "Finding") -> dict[str, Any]:
    """The finding as a JSON object; JSON has no NaN."""
    row = dataclasses.asdict(finding)
    if finding.number is not None and not math.isfinite(finding.number):
        row["number"] = None
    return row


def machine(options: Options) -> "Machine":
    """This machine, with the folders and ports that the commands use by default."""
    from veriloop.pipeline.doctor.machine_under_test import Machine

    return Machine(root=ROOT, folders=_folders, ports=_ports, sampler=options.sampler)


def _folders() -> dict[str, Path]:
    from huggingface_hub.constants import HF_HUB_CACHE

    return {"runs": Path("outputs"), "model cache": Path(HF_HUB_CACHE)}


def _ports() -> dict[str, int]:
    from veriloop.stages.commands import sandbox as sandbox_command
    from veriloop.stages.commands import serve, serve_reward
    from veriloop.stages.commands import watch as watch_command

    return {
        "veriloop serve": serve.Options.port,
        "veriloop sandbox serve": sandbox_command.Serving.port,
        "veriloop serve-reward": serve_reward.Options.port,
        "veriloop watch": watch_command.Options.port,
    }


def _checkpoint(options: Options) -> "CheckpointUnderTest":
    from veriloop.pipeline.config.checkpoints import find_checkpoint
    from veriloop.pipeline.config.load import read
    from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest

    recipe = read(options.recipe)
    rollout = getattr(recipe, "rollout", None)
    if rollout is None:
        raise RecipeError(f"--recipe {options.recipe}: has no rollouts; give one like tiny/zero")
    return CheckpointUnderTest(
        find_checkpoint(options.model),
        engine=options.sampler,
        dtype=options.dtype,
        needed=rollout.max_prompt + rollout.max_tokens,
    )


def _printer() -> Callable[["Finding"], None]:
    """Function: print a finding with name, verdict, measurement and, below it, the fix.

    Findings quote text from untrusted checkpoints, so control characters are removed.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from veriloop.pipeline.runs.console import clip

    console = Console()

    def show(finding: "Finding") -> None:
        grid = Table.grid(padding=(0, 1))
        for width in (NAME_WIDTH, max(map(len, STYLES)), None):
            grid.add_column(width=width, overflow="fold")
        level = Text(finding.verdict, style=STYLES[finding.verdict])
        grid.add_row(Text(finding.name), level, Text(clip(finding.measured, LONGEST)))
        if finding.fix:
            grid.add_row("", "", Text(f"fix: {clip(finding.fix, LONGEST)}", style="cyan"))
        console.print(grid)

    return show
