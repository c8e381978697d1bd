"""How long the command line takes to answer, and how soon it trains.

    python benchmarks/startup.py [--quick] [--json FILE]

Each command runs in a fresh process, one after the other; the first run of each is not counted.
`--help` should not wait for torch. Training: `veriloop zero tiny/zero` with vLLM, from the command
until its first optimizer step is recorded. This includes imports, the engine, an evaluation of the
start (16 questions) and 640 sampled answers, but not pre-training: the base is in the cache.
`--quick` starts from a random model and samples less.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contenders import SIZES, model_of
from publish import ROOT, arguments, publish, table

COMMANDS = {
    "veriloop --help": ["--help"],
    "veriloop recipes ls": ["recipes", "ls"],
    "veriloop zero --help": ["zero", "--help"],
    "veriloop zero tiny/zero --dry-run": ["zero", "tiny/zero", "--dry-run"],
}
RUNS, QUICK = 15, 3
HELP_LIMIT_S = 0.4  # for `veriloop --help`
STEP_LIMIT_S = 12.0  # to the first optimizer step
TRAINS, QUICK_TRAINS = 5, 1
STEP = ["zero", "tiny/zero", "--steps", "1", "--sampler.engine", "vllm",
        "--evaluation.problems", "16"]  # fmt: skip
LESS = ["--rollout.prompts", "16", "--algorithm.minibatches", "1"]
WAYS = {"in this process": [], "apart": ["--sampler.apart"]}


def seconds(words: list[str]) -> float:
    """Wall time of one run, interpreter start included. Raises when the command fails."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "veriloop.stages.cli", *words],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def measured(words: list[str], runs: int) -> dict[str, Any]:
    """Median, minimum and maximum of `runs` runs in seconds, after one that fills the file
    cache."""
    seconds(words)
    return summary([seconds(words) for _ in range(runs)])


def summary(taken: list[float]) -> dict[str, Any]:
    return {
        "median_s": statistics.median(taken),
        "min_s": min(taken),
        "max_s": max(taken),
        "runs": len(taken),
    }


def to_a_step(words: list[str]) -> float:
    """Seconds until the line of the first step. Raises SystemExit if there is none."""
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        words_of_run = [*STEP, *words, "--output", f"{folder}/run"]
        began, log = time.perf_counter(), Path(folder) / "log"
        with log.open("w") as output:
            run = subprocess.Popen(
                [sys.executable, "-u", "-m", "veriloop.stages.cli", *words_of_run],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=output, text=True,
            )  # fmt: skip
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("zero 1/1 "):
                taken = time.perf_counter() - began
                run.communicate()
                return taken
        raise SystemExit(f"{words_of_run} took no step:\n{log.read_text()[-2000:]}")


def first_steps(*, quick: bool) -> dict[str, dict[str, Any]]:
    """As `measured`, for an engine in the training process and for a separate one, taking turns."""
    runs = QUICK_TRAINS if quick else TRAINS
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        start = [*LESS, "--start", str(model_of(Path(folder) / "1M", SIZES["1M"]))] if quick else []
        rounds = [{way: to_a_step([*words, *start]) for way, words in WAYS.items()}
                  for _ in range(runs + 1)][1:]  # fmt: skip
    return {f"to the first step, engine {way}": summary([times[way] for times in rounds])
            for way in WAYS}  # fmt: skip


def main() -> int:
    options = arguments("Measure how long the command line takes to answer.")
    runs = QUICK if options.quick else RUNS
    results = {name: measured(words, runs) for name, words in COMMANDS.items()}
    steps = first_steps(quick=options.quick)
    results |= steps
    rows = [[n, r["median_s"], r["min_s"], r["max_s"], str(r["runs"])] for n, r in results.items()]
    limits = {"veriloop --help": HELP_LIMIT_S} | dict.fromkeys(steps, STEP_LIMIT_S)
    slow = [
        f"{name}: {results[name]['median_s']:.2f} s; the limit is {limit} s"
        for name, limit in limits.items()
        if results[name]["median_s"] > limit
    ]
    header = ["command", "median s", "fastest", "slowest", "runs"]
    return publish(options, table(header, rows), results, failed=[] if options.quick else slow)


if __name__ == "__main__":
    sys.exit(main())
