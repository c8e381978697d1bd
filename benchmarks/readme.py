"""Write README's tables from the committed results, so that no figure is typed by hand.

    python benchmarks/readme.py [--quick] [--json FILE]

`--quick` only compares and fails when README is not what the results say.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish

RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: written by benchmarks/readme.py -->", "<!-- end of results -->"


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def machine(result: dict[str, Any]) -> str:
    told = result["machine"]
    cores = f"{told['cores']} core" + "s" * (told["cores"] != 1)
    return f"{cores} of {told['cpu']}, {told['memory_gib']:.0f} GiB, no GPU"


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def zero_table(result: dict[str, Any]) -> list[str]:
    """One row a run: each figure before and after."""
    names = {"random": "control: random rewards", "shuffled_groups": "control: shuffled groups"}
    digits = {"pass@1": 3, "greedy": 3, "maj@4": 3, "format": 3, "mean_length": 1}
    header = ["run", "pass@1, T=1", "95 % after", "greedy", "maj@4", "format", "mean length", "s"]
    rows = [line(header), line(["---"] * len(header))]
    for run in result["results"]:
        before, after = run["before"], run["after"]
        low, high = after["pass@1 95%"]
        change = [f"{before[k]:.{d}f} → {after[k]:.{d}f}" for k, d in digits.items()]
        name = names.get(run["name"], run["name"].replace("-", " "))
        seconds = f"{run['seconds']:.0f}"
        rows.append(line([name, change[0], f"{low:.3f} to {high:.3f}", *change[1:], seconds]))
    return rows


def proofs() -> list[tuple[str, str, str]]:
    """(what, measured, the script that printed it)."""
    demo, sync, resume = (load(n)["results"] for n in ("demo", "sync", "resume"))
    faults, mutation = load("faults")["results"], load("mutation")
    startup = load("startup")["results"]["veriloop --help"]["median_s"]
    widest = max(max(r["fresh_max"], r["batch_max"]) for r in sync)
    mean = max(max(r["fresh_mean"], r["batch_mean"]) for r in sync)
    lost = min(r["moved_least"] for r in sync)
    planted = [r for r in faults if r["wanted"]]
    found = sum(r["caught"] == r["wanted"] for r in planted)
    same = [r["engine"] for r in resume if r["metrics_identical"] and r["weights_identical"]]
    return [
        (
            "`make demo`, environment installed",
            f"{demo['seconds']:.0f} s: base {demo['base']:.0f} s, R1-Zero {demo['zero']:.0f} s; "
            f"peak {demo['peak_gib']:.1f} GiB",
            "demo",
        ),
        (
            "sampler against trainer at every step; torch and vLLM, tied and untied",
            f"at most {widest:.1e} nats, {mean:.1e} on average (a lost sync: {lost:.0e} or more)",
            "sync",
        ),
        (
            "killed twice with SIGKILL and resumed, against a run left alone",
            f"metrics and weights identical bit for bit: {', '.join(same)}",
            "resume",
        ),
        ("planted faults caught by their own check", f"{found} of {len(planted)}", "faults"),
        (
            "mutants of losses, packing, assembly and update killed",
            f"{mutation['killed']} of {mutation['mutants']}",
            "mutation",
        ),
        ("`veriloop --help`", f"{startup:.2f} s", "startup"),
    ]


def shortfalls() -> list[str]:
    """What a benchmark set out to show and did not, in its own words."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    return [
        f"- `benchmarks/{name}.py`: {told}"
        for name, result in results.items()
        for told in result.get("failed", [])
    ]


def section() -> str:
    zero, missed = load("zero_seeds"), shortfalls()
    count = zero["results"][0]["after"]["problems"]
    table = [line(["what", "measured", "printed by"]), line(["---"] * 3)]
    table += [line([what, told, f"`benchmarks/{name}.py`"]) for what, told, name in proofs()]
    return "\n".join(
        [
            BEGIN,
            f"R1-Zero on the tiny base: 50 steps, {count} held-out problems, before → after. Each",
            f"seed has a base model, problems and samples of its own. {machine(zero)};",
            f"vLLM rollouts; printed by `{zero['command']}`.",
            "",
            *zero_table(zero),
            "",
            *table,
            *(["", "Not shown yet, though set out for:", "", *missed] if missed else []),
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
