"""Kill runs at random moments and resume them: the result must be that of an undisturbed run.

    python benchmarks/faults/kills.py [--kills N] [--seed N] [--stages A,B] [--quick] [--json FILE]

SIGKILL, SIGINT and SIGTERM go to the command, its process group, the engine or a verifier worker.
Compared bit for bit: weights, optimizer, metrics, evaluations, rollouts and the manifest.
"""

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from publish import arguments, publish, table
from tiny_stages import (
    STAGES,
    Command,
    differences,
    models,
    preload,
    recipe,
    result,
    stage_command,
)

OPTIONS: dict[str, dict[str, Any]] = {
    "kills": {"type": int, "default": 200, "help": "signals to send"},
    "seed": {"type": int, "default": 0, "help": "of the moments, signals and targets"},
    "stages": {"default": ",".join(STAGES), "help": "the stages to run, with commas"},
    "folder": {"type": Path, "help": "where runs are kept; default: a new folder"},
}
SIGNALS = ("KILL", "INT", "TERM")
TARGETS = ("main", "group", "engine", "worker")
PARTS = {"engine": "engine_process", "worker": "spawn_main"}  # of their command lines
ENDS_S = 60.0  # for the processes of a run after its end
STOPPED, FAILED = 130, 1
RETRY = 0.25  # share of the runs whose resumption is killed too


@dataclass(kw_only=True)
class Kill:
    """One signal and the outcome of the run."""

    stage: str
    signal: str
    target: str
    at_s: float
    code: int | None = None
    differences: list[str] = field(default_factory=list)


def descendants(pid: int) -> dict[int, str]:
    """Process ids and command lines of all descendants of a process."""
    commands: dict[int, str] = {}
    for task in Path("/proc").glob(f"{pid}/task/*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                commands[child] = Path(f"/proc/{child}/cmdline").read_text()
                commands |= descendants(child)
    return commands


def strike(command: Command, kill: Kill) -> None:
    """Send the signal; a target that is not there is replaced by the command."""
    number = getattr(signal, f"SIG{kill.signal}")
    part = PARTS.get(kill.target)
    pids = [pid for pid, line in descendants(command.pid).items() if part and part in line]
    if part and not pids:
        kill.target = "main"
    with suppress(ProcessLookupError):
        if kill.target == "group":
            os.killpg(command.pid, number)
        else:
            os.kill(pids[0] if pids else command.pid, number)


def allowed(kill: Kill) -> set[int]:
    """Exit codes that a run may end with; it may also have been done before the signal."""
    if kill.target in PARTS:
        return {0, FAILED} if kill.signal == "KILL" else {0}
    number = getattr(signal, f"SIG{kill.signal}")
    return {0, -number} if kill.signal == "KILL" else {0, STOPPED, -number}


def disturbed(command: Command, kill: Kill) -> list[str]:
    """Run until the signal ends it; returns what is wrong with its end."""
    command.start()
    time.sleep(kill.at_s)
    left = descendants(command.pid)
    strike(command, kill)
    kill.code = command.ended()
    wrong = [] if kill.code in allowed(kill) else [f"exit code {kill.code}"]
    if "Traceback" in command.said:
        wrong.append("a traceback")
    until = time.monotonic() + ENDS_S
    while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < until:
        time.sleep(0.02)
    survivors = [line for pid, line in left.items() if Path(f"/proc/{pid}").exists()]
    return wrong + [f"still running: {line[:60]!r}" for line in survivors]


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="kills-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    stages = ["sft"] if options.quick else options.stages.split(",")
    paths = models(folder / "models", stages)
    count = 3 if options.quick else options.kills
    draw, whole, durations = random.Random(options.seed), {}, {}
    for stage in stages:
        began = time.monotonic()
        command = stage_command(stage, folder / "whole" / stage, recipe(stage, paths)).start()
        if command.ended() != 0:
            raise SystemExit(f"the undisturbed run of {stage} failed: {command.said[-2000:]}")
        durations[stage], whole[stage] = time.monotonic() - began, result(command.folder)
    kills: list[Kill] = []
    while len(kills) < count:
        stage = stages[len(kills) % len(stages)]
        run_folder = folder / f"{len(kills):04d}"
        kills += killed(
            stage, run_folder, recipe(stage, paths), draw, durations[stage], whole[stage]
        )
        print(f"{len(kills)}/{count}: {kills[-1]}", file=sys.stderr, flush=True)
    failed = [
        f"{k.stage}, SIG{k.signal} to {k.target} after {k.at_s:.2f} s: {d}"
        for k in kills
        for d in k.differences
    ]
    rows = [
        [stage, str(len(own)), str(sum(bool(k.differences) for k in own))]
        for stage in stages
        if (own := [k for k in kills if k.stage == stage])
    ]
    text = table(["stage", "kills", "with a difference"], rows)
    return publish(options, text, [asdict(k) for k in kills], failed=failed)


def killed(
    stage: str,
    run_folder: Path,
    values: dict[str, Any],
    draw: random.Random,
    duration_s: float,
    expected: dict[str, Any],
) -> list[Kill]:
    """Kill a run, maybe twice, and resume it; the last kill has the differences."""
    kills = []
    while not kills or draw.random() < RETRY:
        kill = Kill(
            stage=stage,
            signal=draw.choice(SIGNALS),
            target=draw.choice(TARGETS),
            at_s=draw.uniform(0, duration_s),
        )
        kill.differences = disturbed(stage_command(stage, run_folder, values), kill)
        kills.append(kill)
    command = stage_command(stage, run_folder, values).start()
    code = command.ended()
    if code != 0:
        kills[-1].differences.append(f"the resumed run ends with {code}: {command.said[-300:]!r}")
    else:
        kills[-1].differences += differences(result(run_folder), expected)
    return kills


if __name__ == "__main__":
    sys.exit(main())
