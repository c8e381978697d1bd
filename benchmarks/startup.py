"""How long the command line takes to answer: a user who asks for help should not wait for torch.

    python benchmarks/startup.py [--quick] [--json FILE]

Each command runs in a fresh process, one after the other; the first run of each is not counted.
"""

import statistics
import subprocess
import sys
import time
from typing import Any

from publish import ROOT, arguments, publish, table

COMMANDS = {
    "veriloop --help": ["--help"],
    "veriloop recipes ls": ["recipes", "ls"],
    "veriloop zero --help": ["zero", "--help"],
    "veriloop zero tiny/zero --dry-run": ["zero", "tiny/zero", "--dry-run"],
}
RUNS, QUICK = 15, 3
HELP_LIMIT_S = 0.4  # for `veriloop --help`


def seconds(words: list[str]) -> float:
    """Wall time of one run, interpreter start included. Raises when the command fails."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "stages.command", *words],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def measured(words: list[str], runs: int) -> dict[str, Any]:
    """Median, fastest and slowest of `runs` runs, in seconds, after one to fill the file cache."""
    seconds(words)
    taken = [seconds(words) for _ in range(runs)]
    return {
        "median_s": statistics.median(taken),
        "min_s": min(taken),
        "max_s": max(taken),
        "runs": runs,
    }


def main() -> int:
    options = arguments("Measure how long the command line takes to answer.")
    runs = QUICK if options.quick else RUNS
    results = {name: measured(words, runs) for name, words in COMMANDS.items()}
    rows = [[name, r["median_s"], r["min_s"], r["max_s"], str(runs)] for name, r in results.items()]
    help_s = results["veriloop --help"]["median_s"]
    slow = [f"veriloop --help takes {help_s:.2f} s; the limit is {HELP_LIMIT_S} s"]
    header = ["command", "median s", "fastest", "slowest", "runs"]
    return publish(
        options, table(header, rows), results, failed=slow if help_s > HELP_LIMIT_S else []
    )


if __name__ == "__main__":
    sys.exit(main())
