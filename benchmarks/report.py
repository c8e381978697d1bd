"""A report: seconds, megabytes, memory, and the first paint in a headless Chromium.

    python benchmarks/report.py [--run FOLDER] [--quick] [--json FILE]

Of a run in FOLDER, and of a made-up one of 100 MB (`--quick`: 3 MB). Where no Chromium is installed
the paint is not measured, and the result says so.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from chromium import Chromium, find_chromium
from publish import ROOT, arguments, publish, table

from data.problem import Problem
from pipeline.record import StageRecord
from pipeline.records import Graded, Rollout
from pipeline.run_json import RunManifest
from pipeline.token_trace import SeenTokens
from verifiers.verdict import Verdict

BARS = {"run": {"seconds": 5.0}, "made up": {"seconds": 30.0, "peak_mib": 1024.0}}
PAGE_MB, PAINT_MS = 10.0, 1500.0
ASKED = """
import re, sys, time
from stages.command import main
main(sys.argv[1:])
# what getrusage tells would begin at the size of the process that started this one
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(time.process_time(), peak)
"""
TOKENS, GROUPS, EACH = 600, 8, 8  # of the made-up run


def main() -> int:
    options = arguments(__doc__ or "", run={"type": Path, "help": "a run folder to report too"})
    work = Path(tempfile.mkdtemp(prefix="report-"))
    runs = {"run": options.run} if options.run else {}
    runs["made up"] = made_up(work / "made-up", 3 if options.quick else 100)
    results = {name: measured(folder, work / name) for name, folder in runs.items()}
    failed = [line for name, one in results.items() for line in shortfalls(name, one)]
    head = ["run", *next(iter(results.values()))]
    rows = [
        [name, *("-" if v is None else v for v in one.values())] for name, one in results.items()
    ]
    return publish(options, table(head, rows), results, failed=failed)


def measured(folder: Path, into: Path) -> dict[str, Any]:
    words = [sys.executable, "-c", ASKED, "report", str(folder), "--into", str(into)]
    began = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    cpu_s, peak_kib = map(float, done.stdout.splitlines()[-1].split())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "run_mb": size / 1e6,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_mib": peak_kib / 1024,
        "page_mb": (into / "report.html").stat().st_size / 1e6,
    } | in_browser(into / "report.html")


def in_browser(page: Path) -> dict[str, float | None]:
    """First paint, all of the page's script, and messages of errors."""
    if find_chromium() is None:
        return {"first_paint_ms": None, "ready_ms": None, "console_errors": None}
    with Chromium() as browser:
        browser.open(page.as_uri())
        paint = browser.value("performance.getEntriesByType('paint')[0].startTime")
        ready = browser.value(
            "performance.timing.loadEventEnd - performance.timing.navigationStart"
        )
        return {"first_paint_ms": paint, "ready_ms": ready, "console_errors": len(browser.errors)}


def shortfalls(name: str, one: dict[str, Any]) -> list[str]:
    bars = {
        **BARS.get(name, {}),
        "page_mb": PAGE_MB,
        "first_paint_ms": PAINT_MS,
        "console_errors": 0,
    }
    return [
        f"{name}: {key} is {one[key]:.4g}, at most {bar:g}"
        for key, bar in bars.items()
        if one[key] is not None and one[key] > bar
    ]


def made_up(folder: Path, megabytes: int) -> Path:
    """A run folder of about that size: random tokens, which nothing compresses."""
    random = Random(0)
    manifest = RunManifest(folder / "run.json", command=["made", "up"])
    manifest.begin_stage("zero", {"recipe": {"stage": "zero", "name": "made/up", "seed": 0}})
    record = StageRecord(folder / "zero", tensorboard=False)
    size, step = 0, 0
    while size < megabytes * 1e6:
        step += 1
        graded, seen = rollouts(random, step)
        path = record.write_rollouts(step, graded, [g.reward for g in graded], seen)
        numbers = {"reward": step / (step + 9), "grad_norm": 1.0, "entropy": 0.3}
        record.write_metrics(step, numbers | {f"time/part_{i}": 0.1 for i in range(40)})
        size += path.stat().st_size
    manifest.end_stage("zero", 1.0, "none", {}, {}, {})
    return folder


def rollouts(random: Random, step: int) -> tuple[list[Graded], dict[int, SeenTokens]]:
    import torch

    words = [f"word{n}" for n in range(5_000)]
    graded, seen = list[Graded](), dict[int, SeenTokens]()
    for place in range(GROUPS * EACH):
        ids = tuple(random.randrange(30_000) for _ in range(TOKENS))
        logp = torch.rand(TOKENS).neg()
        right = random.random() < 0.5
        problem = Problem(
            id=f"made/rl/{step * GROUPS + place // EACH}", prompt="What is it?" * 20,
            verifier="number", reference={"value": "1"},
        )  # fmt: skip
        rollout = Rollout(
            group=f"{step}/{place // EACH}", problem=problem, prompt_ids=ids[:50],
            response_ids=ids, logp=tuple(logp.tolist()),
            response=" ".join(random.choices(words, k=TOKENS)),
            finish="stop", temperature=1.0, policy_version=step,
        )  # fmt: skip
        verdict = Verdict(score=float(right), answer="1", exec_s=random.random())
        graded.append(Graded(rollout=rollout, verdicts={"accuracy": verdict}, reward=float(right)))
        seen[place] = SeenTokens(
            logp_T=logp + 0.01 * torch.randn(TOKENS), entropy_T=torch.rand(TOKENS),
            advantage_T=torch.full((TOKENS,), float(right)),
            clipped_T=torch.zeros(TOKENS, dtype=torch.int8),
        )  # fmt: skip
    return graded, seen


if __name__ == "__main__":
    sys.exit(main())
