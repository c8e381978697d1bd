"""Write README's tables from the committed results, so that no figure is typed by hand.

    python benchmarks/readme.py [--quick] [--json FILE]

`--quick` only compares and fails when README is not what the results say.
"""

import json
import sys
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish

RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: written by benchmarks/readme.py -->", "<!-- end of results -->"


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def machine(result: dict[str, Any]) -> str:
    told = result["machine"]
    return f"{told['cores']} cores of {told['cpu']}, {told['memory_gib']:.0f} GiB, no GPU"


def zero_rows(result: dict[str, Any]) -> list[str]:
    names = {"random": "control: random rewards", "shuffled_groups": "control: shuffled groups"}
    rows = [
        "| run | pass@1, T=1 | 95 % after | greedy | maj@4 | format | mean length | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in result["results"]:
        before, after = run["before"], run["after"]
        low, high = after["pass@1 95%"]
        change = [
            f"{before[k]:.{d}f} → {after[k]:.{d}f}"
            for k, d in (("pass@1", 3), ("greedy", 3), ("maj@4", 3), ("format", 3), ("mean_length", 1))
        ]  # fmt: skip
        name = names.get(run["name"], run["name"].replace("-", " "))
        rows.append(
            f"| {name} | {change[0]} | {low:.3f} to {high:.3f} | {change[1]} | {change[2]} | "
            f"{change[3]} | {change[4]} | {run['seconds']:.0f} |"
        )
    return rows


def proof_rows() -> list[str]:
    sync, resume, faults = load("sync"), load("resume"), load("faults")
    mutation, startup, demo = load("mutation"), load("startup"), load("demo")
    widest = max(max(r["fresh_max"], r["batch_max"]) for r in sync["results"])
    lost = min(r["moved_least"] for r in sync["results"])
    caught = [r for r in faults["results"] if r["wanted"]]
    resumed = ", ".join(
        f"{r['engine']}: metrics {'identical' if r['metrics_identical'] else 'differ'}, weights "
        f"{'identical' if r['weights_identical'] else 'differ'}"
        for r in resume["results"]
    )
    seconds = demo["results"]
    return [
        "| what | measured | printed by |",
        "| --- | --- | --- |",
        f"| `make demo`, environment installed | {seconds['seconds']:.0f} s, base {seconds['base']:.0f} s "
        f"and R1-Zero {seconds['zero']:.0f} s of it, peak {seconds['peak_gib']:.1f} GiB | "
        "`benchmarks/demo.py` |",
        f"| sampler against trainer, every step, torch and vLLM, tied and untied | at most {widest:.1e} "
        f"nats; a lost sync would differ by {lost:.0e} on average or more | `benchmarks/sync.py` |",
        f"| killed twice with SIGKILL and resumed | {resumed} | `benchmarks/resume.py` |",
        f"| planted faults caught by their check | {sum(r['caught'] == r['wanted'] for r in caught)} "
        f"of {len(caught)} | `benchmarks/faults.py` |",
        f"| mutants of losses, packing, assembly and update killed | {mutation['killed']} of "
        f"{mutation['mutants']} | `benchmarks/mutation.py` |",
        f"| `veriloop --help` | {startup['results']['veriloop --help']['median_s']:.2f} s | `benchmarks/startup.py` |",
    ]


def section() -> str:
    zero = load("zero_seeds")
    count = zero["results"][0]["after"]["problems"]
    return "\n".join(
        [
            BEGIN,
            f"R1-Zero on the tiny base, 50 steps, {count} held-out problems, before → after. Each seed has a",
            f"base model, problems and samples of its own. Measured on {machine(zero)},",
            f"vLLM rollouts, by `{zero['command']}`:",
            "",
            *zero_rows(zero),
            "",
            *proof_rows(),
            END,
        ]
    )


def main() -> int:
    options = arguments(__doc__ or "")
    path = ROOT / "README.md"
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = before + section() + after
    stale = fresh != text
    if options.quick:
        failed = ["README.md does not say what the results say"] if stale else []
        return publish(options, section(), {"stale": stale}, failed=failed)
    Path(path).write_text(fresh)
    return publish(options, section(), {"stale": stale})


if __name__ == "__main__":
    sys.exit(main())
