"""A report: seconds, megabytes, memory, and the first paint in a headless Chromium; and how soon
`veriloop watch` shows a step.

    python benchmarks/report.py --run FOLDER [--quick] [--json FILE]

For a whole run in FOLDER, such as outputs/demo from `make demo`: at most 5 s, and a page of 10 MB.
For a synthetic run of 100 MB (`--quick`: 3 MB, and no FOLDER is needed): at most 30 s and 1 GiB.
The first paint of both pages takes at most 1.5 s, a new step is shown within 2 s, and no page logs
an error. What cannot be measured, for example without a Chromium, is a shortfall.
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

from veriloop.data.problem import Problem
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.types import Graded, Rollout, SeenTokens
from veriloop.verifiers.verdict import Verdict

BARS = {"run": {"seconds": 5.0}, "made up": {"seconds": 30.0, "peak_mib": 1024.0}}
EVERY = {"page_mb": 10.0, "first_paint_ms": 1500.0, "console_errors": 0}  # of each report
WATCH = {"seen_s": 2.0, "console_errors": 0}
ASKED = """
import re, sys, time
from veriloop.stages.cli import main
main(sys.argv[1:])
# what getrusage tells would begin at the size of the process that started this one
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(time.process_time(), peak)
"""
TOKENS, GROUPS, EACH = 600, 8, 8  # of the made-up run
GROWN = 10  # steps that are watched
LAST = "document.querySelector('#chart-reward .plot')?.data?.at(-1).x.at(-1)"
SHOWN = "document.querySelector('#step')?.previousSibling.data"


def main() -> int:
    options = arguments(__doc__ or "", run={"type": Path, "help": "the folder of a whole run"})
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        work = Path(folder)
        runs = {"run": options.run} if options.run else {}
        runs["made up"] = made_up(work / "made-up", 3 if options.quick else 100)
        reports = {name: measured(folder, work / name) for name, folder in runs.items()}
        seen = watched(work / "grows")
    failed = [
        line
        for name, measurement in reports.items()
        for line in shortfalls(name, measurement, BARS[name] | EVERY)
    ]
    failed += shortfalls("watch", seen, WATCH)
    if not options.run and not options.quick:
        failed.append("run: not measured; name the folder of a whole run with --run")
    text = f"{summary(reports)}\n\n{summary({'watch': seen})}"
    return publish(options, text, {**reports, "watch": seen}, failed=failed)


def summary(results: dict[str, dict[str, Any]]) -> str:
    """One row each, with the same columns."""
    head = ["", *next(iter(results.values()))]
    rows = [
        [name, *("-" if v is None else v for v in values.values())]
        for name, values in results.items()
    ]
    return table(head, rows)


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
    """First paint, script time and error messages of a page."""
    if find_chromium() is None:
        return {"first_paint_ms": None, "ready_ms": None, "console_errors": None}
    with Chromium() as browser:
        browser.open(page.as_uri())
        paint = browser.value("performance.getEntriesByType('paint')[0].startTime")
        ready = browser.value(
            "performance.timing.loadEventEnd - performance.timing.navigationStart"
        )
        return {"first_paint_ms": paint, "ready_ms": ready, "console_errors": len(browser.errors)}


def watched(folder: Path) -> dict[str, float | None]:
    """The longest delay from a new step's line on disk to the page of `veriloop watch`."""
    if find_chromium() is None:
        return {"steps": GROWN, "seen_s": None, "console_errors": None}
    random, (_, record) = Random(0), begun(folder)
    step_of(record, random, 1)
    words = [sys.executable, "-m", "veriloop.stages.cli", "watch", str(folder), "--port", "0"]
    with (
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server,
        Chromium() as browser,
    ):
        try:
            assert server.stdout is not None, "it is a pipe"
            browser.open(server.stdout.readline().split(": ")[0])
            browser.until(f"{LAST} === 1")
            took = [seen_after(browser, record, random, step) for step in range(2, GROWN + 2)]
        finally:
            server.terminate()
        return {"steps": GROWN, "seen_s": max(took), "console_errors": len(browser.errors)}


def seen_after(browser: Chromium, record: StageRecord, random: Random, step: int) -> float:
    """Seconds until the curve and the rollout browser show the step."""
    step_of(record, random, step)
    written = time.monotonic()
    browser.until(f"{LAST} === {step} && {SHOWN} === 'Step {step} '")
    return time.monotonic() - written


def shortfalls(name: str, values: dict[str, Any], bars: dict[str, float]) -> list[str]:
    return [
        f"{name}: {key} is not measured, asked is at most {bar:g}"
        if values[key] is None
        else f"{name}: {key} is {values[key]:.4g}, at most {bar:g}"
        for key, bar in bars.items()
        if values[key] is None or values[key] > bar
    ]


def made_up(folder: Path, megabytes: int) -> Path:
    """A run folder of about that size, with random, incompressible tokens."""
    random, (manifest, record) = Random(0), begun(folder)
    size, step = 0, 0
    while size < megabytes * 1e6:
        step += 1
        size += step_of(record, random, step)
    manifest.end_stage("zero", 1.0, "none", {}, {}, {})
    return folder


def begun(folder: Path) -> tuple[RunManifest, StageRecord]:
    manifest = RunManifest(folder / "run.json", command=["made", "up"])
    manifest.begin_stage("zero", {"recipe": {"stage": "zero", "name": "made/up", "seed": 0}})
    return manifest, StageRecord(folder / "zero", tensorboard=False)


def step_of(record: StageRecord, random: Random, step: int) -> int:
    """Write a step, its line of metrics last; returns the bytes of its rollouts."""
    graded, seen = rollouts(random, step)
    path = record.write_rollouts(step, graded, [g.reward for g in graded], seen)
    numbers = {"reward": step / (step + 9), "grad_norm": 1.0, "entropy": 0.3}
    record.write_metrics(step, numbers | {f"time/part_{i}": 0.1 for i in range(40)})
    return path.stat().st_size


def rollouts(random: Random, step: int) -> tuple[list[Graded], dict[int, SeenTokens]]:
    import torch

    words = [f"word{n}" for n in range(5_000)]
    graded, seen = list[Graded](), dict[int, SeenTokens]()
    for index in range(GROUPS * EACH):
        ids = tuple(random.randrange(30_000) for _ in range(TOKENS))
        logp = torch.rand(TOKENS).neg()
        right = random.random() < 0.5
        problem = Problem(
            id=f"made/rl/{step * GROUPS + index // EACH}", prompt="What is it?" * 20,
            verifier="number", reference={"value": "1"},
        )  # fmt: skip
        rollout = Rollout(
            group=f"{step}/{index // EACH}", problem=problem, prompt_ids=ids[:50],
            response_ids=ids, logp=tuple(logp.tolist()),
            response=" ".join(random.choices(words, k=TOKENS)),
            finish="stop", temperature=1.0, policy_version=step,
        )  # fmt: skip
        verdict = Verdict(score=float(right), answer="1", exec_s=random.random())
        graded.append(Graded(rollout=rollout, verdicts={"accuracy": verdict}, reward=float(right)))
        seen[index] = SeenTokens(
            logp_T=logp + 0.01 * torch.randn(TOKENS), entropy_T=torch.rand(TOKENS),
            advantage_T=torch.full((TOKENS,), float(right)),
            clipped_T=torch.zeros(TOKENS, dtype=torch.int8),
        )  # fmt: skip
    return graded, seen


if __name__ == "__main__":
    sys.exit(main())
