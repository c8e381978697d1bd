"""Which targets published results miss by the bars that their scripts have today, in sentences."""

import ast
import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
MISSED = {  # result: [(what a benchmark reports of a missed target, the sentence about it)]
    "faults/trainer_soak": [
        (
            r"(\w+) MiB grows by ([\d.]+) from a mean of ([\d.]+)",
            r"The memory of the \1 grew by \2 MiB from a mean of \3 MiB; it should not grow.",
        )
    ],
    "rlhf": [
        (
            r"the reward in the further steps: (\S+) ± (\S+)",
            r"While PPO over-optimises, the reward should rise by more than its 95 % interval; it "
            r"rose by \1 ± \2.",
        )
    ],
    "against_trl": [
        (
            r"(\w+): ([\d.]+) x TRL at its best in (\w+), wanted ([\d.]+)",
            r"A GRPO step of a model of \1 has \2 times the tokens per second of TRL at its best "
            r"settings in \3; the target is \4.",
        )
    ],
    "gpu": [
        (
            r"update of (\S+): mfu ([\d.]+), aim ([\d.]+)",
            r"An update of a model of \1 reaches \2 of the GPU's dense bfloat16 peak; the target "
            r"is \3.",
        )
    ],
    "published_gains": [
        (
            r"(\S+)/(\w+): GRPO less further SFT (\S+), (\S+) to (\S+) \(95 %\)",
            r"On `\2` the \1 accuracy after GRPO should exceed that after further SFT. The "
            r"difference is \3 (\4 to \5, 95 %).",
        ),
    ],
    "published_trl": [
        (
            r"([\d.]+) x the time of TRL, wanted ([\d.]+)",
            r"GRPO of SmolLM2-135M takes \1 times the wall time of TRL with searched settings to "
            r"the same reward; the target is \2.",
        ),
    ],
    "whole": [
        (
            r"seed (\d+): seconds: ([\d.]+) > (\d+)",
            r"With seed \1 the whole recipe took \2 s; the target is \3 s.",
        ),
        (
            r"seed (\d+), busy: seconds: ([\d.]+) > (\d+)",
            r"With seed \1 the whole recipe took \2 s beside a busy process; the target is \3 s.",
        ),
    ],
    "overlap": [
        (
            r"pass@1, ahead minus in turn: (\S+) ± (\S+) \(95 %\) is not within ±(\S+)",
            r"Sampling a step ahead should change pass@1 by less than \3; it changed by \1 ± \2 "
            r"(95 %).",
        )
    ],
    "staleness": [
        (
            r"pass@1, S = 4 corrected minus in turn: (\S+) ± (\S+) \(95 %\) is not within ±(\S+)",
            r"Sampling four steps ahead, corrected, should change pass@1 by less than \3; it "
            r"changed by \1 ± \2 (95 %).",
        )
    ],
    "published_whole": [
        (r"ended with (\d+)", r"The list of stages did not run to its end (exit code \1)."),
        (r"(\w+): no goal is a gain", r"No gain of the stage `\1` was measured."),
        (r"(\w+): misses (\S+)", r"The stage `\1` misses its goal for \2."),
        (r"took (\d+) s, more than (\d+)", r"The list of stages took \1 s; the target is \2 s."),
        (r"held (\S+) GiB, more than (\S+)", r"It held \1 GiB at its peak; the target is \2 GiB."),
    ],
    "sandbox_speed": [
        (
            r"(\d+) cases over one, (.+): ([\d.]+), wanted ([\d.]+)",
            r"\1 cases of a program of \2 take \3 times as long as one case; the target is \4.",
        )
    ],
    "tuning_speed": [
        (
            rf"{task}: ([\d.]+) x TRL at its best, wanted ([\d.]+); with its matrix products alone "
            r"it would be ([\d.]+) x",
            rf"{step} has \1 times the tokens per second of TRL at its best settings; the target "
            r"is \2. Its matrix products alone would have \3 times.",
        )
        for task, step in (("sft", "An SFT step"), ("dpo", "A DPO step"))
    ],
    "verify_language": [
        (
            r"(\d+) documents per CPU second, fewer than (\d+)",
            r"The language share is computed for \1 documents in a CPU second; the target is \2.",
        )
    ],
}
MOVED = re.compile(r"(\w+)-(\d+): (\S+) moved from ([\d.]+) to ([\d.]+), out of the noise")
CONTROLS = {"random": "random rewards", "shuffled_groups": "shuffled groups"}


def missed(name: str, published: Mapping[str, Any]) -> list[str]:
    """Of the result `name`.json: what `shortfalls(results)` of its script returns for it. A script
    whose targets need more than the results has none; its result tells what was missed when it was
    measured."""
    if not _checks_results(BENCHMARKS / f"{name}.py"):
        return published.get("failed", [])
    return importlib.import_module(name).shortfalls(published["results"])


@cache
def _checks_results(script: Path) -> bool:
    if not script.is_file():
        return False
    functions = (
        node for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)
    )
    return any(node.name == "shortfalls" and len(node.args.args) == 1 for node in functions)


def sentences(name: str, failed: Sequence[str]) -> list[str]:
    """What the page says of the missed targets of a result; of an unknown one what was reported."""
    changes: dict[str, list[str]] = {}
    others: list[str] = []
    for failure in failed:
        if name == "zero_seeds" and (match := MOVED.fullmatch(failure)):
            control, seed, metric, before, after = match.groups()
            run = f"{CONTROLS.get(control, control)}, seed {seed}"
            changes.setdefault(run, []).append(f"{metric} {before} → {after}")
            continue
        for pattern, sentence in MISSED.get(name, ()):
            if match := re.fullmatch(pattern, failure):
                others.append(match.expand(sentence))
                break
        else:
            others.append(failure)
    if changes:
        runs = "; ".join(f"{run} ({', '.join(moved)})" for run, moved in changes.items())
        others.append(
            "Rewards that do not depend on the responses should not change the accuracy. The 95 % "
            f"intervals before and after do not overlap for {runs}."
        )
    return others
