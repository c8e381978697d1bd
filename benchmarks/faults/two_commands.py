"""Start a second command on the folder of a running one, at many offsets: it must be refused.

    python benchmarks/faults/two_commands.py [--offsets N] [--stages A,B] [--quick] [--json FILE]

Of the two commands one ends with exit code 2 and names the other, by its process id; the other
ends well, and its result is that of an undisturbed run bit for bit. Either may be the refused one
where both start at once.
"""

import json
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from publish import arguments, publish, table
from tiny_stages import differences, models, preload, recipe, result, stage_command

OPTIONS: dict[str, dict[str, Any]] = {
    "offsets": {"type": int, "default": 20, "help": "offsets of each stage"},
    "stages": {"default": "zero,sft", "help": "the stages to run, with commas"},
    "folder": {"type": Path, "help": "where runs are kept; default: a new folder"},
}
STEP = re.compile(r"\b\d+/\d+\b")  # in the output of a command that trains
WITHIN = 0.9  # share of the duration of a run that offsets cover


@dataclass(kw_only=True)
class Pair:
    """Two commands on one folder."""

    stage: str
    offset_s: float
    codes: list[int | None] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def met(pair: Pair, folder: Path, values: dict[str, Any], expected: dict[str, Any]) -> None:
    """Start both; fills in how they ended and what is wrong with it.

    A run that has ended before its second command takes the lock, which then has nothing to do, is
    repeated with a smaller offset.
    """
    commands = [stage_command(pair.stage, folder, values) for _ in range(2)]
    for command, name in zip(commands, ("first.log", "second.log"), strict=True):
        command.name = name
    commands[0].start()
    time.sleep(pair.offset_s)
    late = not commands[0].runs
    if not late:
        commands[1].start()
    pair.codes = [command.ended() for command in commands[: 1 if late else 2]]
    if late or (pair.codes == [0, 0] and not STEP.search(commands[1].said)):
        shutil.rmtree(folder)
        pair.offset_s *= 0.8
        return met(pair, folder, values, expected)
    if sorted(pair.codes, key=str) != [0, 2]:
        pair.wrong.append(f"exit codes {pair.codes}: {[c.said[-300:] for c in commands]}")
        return None
    refused, winner = (commands[pair.codes.index(code)] for code in (2, 0))
    if f"process {winner.pid} on " not in refused.said or "since" not in refused.said:
        pair.wrong.append(f"the refusal does not name the other: {refused.said[-300:]!r}")
    if json.loads((folder / "run" / "run.json").read_text())["resumed"]:
        pair.wrong.append("the refused command is in run.json")
    pair.wrong += differences(result(folder), expected)
    return None


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="two-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    stages = ["sft"] if options.quick else options.stages.split(",")
    paths = models(folder / "models", stages)
    count = 3 if options.quick else options.offsets
    pairs: list[Pair] = []
    for stage in stages:
        began, values = time.monotonic(), recipe(stage, paths)
        command = stage_command(stage, folder / "whole" / stage, values).start()
        if command.ended() != 0:
            raise SystemExit(f"the undisturbed run of {stage} failed: {command.said[-2000:]}")
        duration_s, expected = time.monotonic() - began, result(command.folder)
        for number in range(count):
            pair = Pair(stage=stage, offset_s=WITHIN * duration_s * number / count)
            met(pair, folder / f"{stage}-{number}", values, expected)
            pairs.append(pair)
    failed = [f"{p.stage} after {p.offset_s:.2f} s: {line}" for p in pairs for line in p.wrong]
    rows = [
        [stage, str(len(own)), str(sum(not p.wrong for p in own))]
        for stage in dict.fromkeys(p.stage for p in pairs)
        if (own := [p for p in pairs if p.stage == stage])
    ]
    text = table(["stage", "offsets", "one refused, the other whole"], rows)
    return publish(options, text, [asdict(pair) for pair in pairs], failed=failed)


if __name__ == "__main__":
    sys.exit(main())
