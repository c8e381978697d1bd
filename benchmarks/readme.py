"""Write the tables of README and docs/ from the committed results: no figure is typed by hand.

    python benchmarks/readme.py [--quick] [--json FILE]

`--quick` only compares and fails when a page is not what the results say.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import learning_tables
import peer_tables
import recipe_tables
import speed_tables
from algorithms import TO_REACH
from learning_tables import line
from publish import ROOT, arguments, publish

RESULTS = ROOT / "benchmarks" / "results"
CHECKED = ("aha", "aha_control")
SPEED = {name: ("docs/speed.md", lines) for name, lines in speed_tables.TABLES.items()}
BEGIN, END = "<!-- results: written by benchmarks/readme.py -->", "<!-- end of results -->"


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def machine(result: dict[str, Any]) -> str:
    told = result["machine"]
    cores = f"{told['cores']} core" + "s" * (told["cores"] != 1)
    return f"{cores} of {told['cpu']}, {told['memory_gib']:.0f} GiB, no GPU"


def proofs() -> list[tuple[str, str, str]]:
    """(what, measured, the script that printed it)."""
    sync, resume = (load(n)["results"] for n in ("sync", "resume"))
    faults, mutation = load("faults")["results"], load("mutation")["results"]
    startup = load("startup")["results"]["veriloop --help"]["median_s"]
    widest = max(max(r["fresh_max"], r["batch_max"]) for r in sync)
    mean = max(max(r["fresh_mean"], r["batch_mean"]) for r in sync)
    lost = min(r["moved_least"] for r in sync)
    planted = [r for r in faults if r["wanted"]]
    found = sum(r["caught"] == r["wanted"] for r in planted)
    same = [r["engine"] for r in resume if r["metrics_identical"] and r["weights_identical"]]
    return [
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
            "mutants of losses, packing, assembly, update and the judging of code killed",
            f"{mutation['killed']} of {mutation['mutants']}, in {len(mutation['per_file'])} files",
            "mutation",
        ),
        ("`veriloop --help`", f"{startup:.2f} s", "startup"),
    ]


def printed_by(name: str) -> str:
    """The script and its flags, and the commit that it measured where the result says."""
    result = load(name)
    commit = result.get("git", {}).get("commit", "")[:7]
    command = result["command"].removeprefix("python ").split(" --json")[0]
    return f"`{command}`" + (f" at {commit}" if commit else "")


def sandbox_proofs() -> list[tuple[str, str, str]]:
    """The same for the sandbox."""
    suite, speed, soaked = (load(f"sandbox_{n}")["results"] for n in ("suite", "speed", "soak"))
    docker, busy = load("sandbox_docker")["results"], load("sandbox_load")["results"]
    effects = sum(len(r["effects"]) for r in suite)
    refused = sum(len(r["refused"]) for r in suite)
    most = max(r["attacks"] for r in suite)
    who = "; ".join(dict.fromkeys(f"{r['who']} in tier {r['tier']}" for r in suite))
    seen = sum(len(r["marks_seen"]) + len(r["zygotes"]["hits"]) for r in soaked)
    return [
        (
            f"attacks with any effect; honest programs refused ({who})",
            f"{effects} of up to {most}; {refused}",
            "sandbox_suite",
        ),
        (
            "executions against a bare `python -I -c pass`: one worker, two; p99 over p50",
            f"{speed['times_faster_alone']:.1f} ×, {speed['times_faster_together']:.1f} ×; "
            f"{speed['worst_over_median']:.1f}",
            "sandbox_speed",
        ),
        (
            "ten cases of one program against one: 50 lines, two lines "
            "(ten bare forks, no isolation)",
            f"{speed['ten_cases_over_one']:.1f} ×, {speed['ten_small_cases_over_one']:.1f} × "
            f"({speed['ten_bare_forks_over_one']:.1f} ×, "
            f"{speed['ten_small_bare_forks_over_one']:.1f} ×)",
            "sandbox_speed",
        ),
        (
            "inside warm containers, of the embedded rate",
            f"{docker['rate_over_embedded']:.2f}",
            "sandbox_docker",
        ),
        (
            "runs in a row, one in five hostile: marks of one seen by another",
            f"{seen} in {sum(r['runs'] for r in soaked):,}; nothing grows",
            "sandbox_soak",
        ),
        (
            f"honest programs refused beside {busy['loops']} busy loops",
            f"{busy['refused']} of {busy['honest']}; on wall time alone "
            f"{busy['refused_by_wall_of_cpu_limit']}",
            "sandbox_load",
        ),
    ]


def verifier_proofs() -> list[tuple[str, str, str]]:
    """The same for the verifiers and the reward service."""
    right, speed = load("verify_accuracy")["results"], load("verify_speed")["results"]
    hostile, service = load("verify_hostile")["results"], load("service_speed")["results"]
    language, tasks = load("verify_language")["results"], load("verify_reasoning_gym")["results"]
    widest = max(group["mean_abs_error"] for group in language["groups"])
    faster = [speed[name]["times_faster"] for name in ("MATH-like", "GSM8K-like")]
    inputs = [row for row in hostile["rows"] if not row["name"].startswith("afterwards")]
    answered = sum(row["status"] in ("graded", "no_answer") for row in inputs)
    hedges = sum(len(v) for k, v in tasks["earned"].items() if k not in ("own answer", "padded"))
    return [
        (
            "`math_answer` on labelled answers of our own; hacks paid; documented equalities",
            f"{right['own']['accuracy']:.3f} of {right['own']['lines']}; "
            f"{right['own']['hacks_paid']}; "
            f"{right['equalities']['agreement']:.3f} of {right['equalities']['pairs']}",
            "verify_accuracy",
        ),
        (
            "pairs per CPU second against math-verify: MATH-like, GSM8K-like",
            f"{faster[0]:.0f} ×, {faster[1]:.0f} ×",
            "verify_speed",
        ),
        (
            "towers, factorials, a million digits: answered within their limits; peak memory",
            f"{answered} of {len(inputs)}; {hostile['peak_mb']:.0f} MB",
            "verify_hostile",
        ),
        (
            "share of a language, mean error of the worst group; documents per CPU second",
            f"{widest:.4f}; {language['documents_per_cpu_second']:,.0f}",
            "verify_language",
        ),
        (
            "reasoning-gym: own answers accepted, padded ones, hedges that earn",
            f"{len(tasks['earned']['own answer'])} and {len(tasks['earned']['padded'])} of "
            f"{tasks['tasks']}; {hedges}",
            "verify_reasoning_gym",
        ),
        (
            "reward service, batches of 8: verdicts per second, p99 at half of that, p99 of a 429",
            f"{service['full']['per_s']:,.0f}; {service['half']['p99_ms']:.0f} ms; "
            f"{service['overload']['p99_ms']:.0f} ms",
            "service_speed",
        ),
    ]


def learning_proofs() -> list[tuple[str, str, str]]:
    """The same for algorithms and preference losses; docs/ has the tables."""
    runs, liked = load("algorithms")["results"], load("preferences")["results"]
    reached = [r["after"]["pass@1"] for r in runs if r["preset"] in TO_REACH]
    wins = [r["win_rate"] for own in liked["runs"].values() for r in own]
    held = {claim: cells for claim, cells in load("kl_placement")["results"]["claims"]}
    return [
        (
            f"held-out pass@1 of {', '.join(TO_REACH)} (three seeds each; "
            "[all presets](docs/algorithms.md#compared))",
            f"{min(reached):.3f} to {max(reached):.3f}",
            "algorithms",
        ),
        (
            f"answers that beat the start's, {len(liked['runs'])} preference losses, three seeds "
            "each ([table](docs/preferences.md#compared))",
            f"{min(wins):.2f} to {max(wins):.2f}",
            "preferences",
        ),
        (
            "published claims on where a KL belongs, in how many settings each held "
            "([table](docs/algorithms.md#where-a-kl-belongs))",
            "; ".join(f"{claim}: {cells}" for claim, cells in held.items()),
            "kl_placement",
        ),
        learning_tables.rise(load("aha")["results"]),
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
    told = {
        path.stem: json.loads(path.read_text()).get("results") for path in RESULTS.glob("*.json")
    }
    found = [*recipe_tables.proofs(told), *speed_tables.proofs(told)]
    found += [*proofs(), *learning_proofs(), *sandbox_proofs()]
    found += [*verifier_proofs(), peer_tables.proof(load("peers")["results"])]
    table += [line([what, told, printed_by(name)]) for what, told, name in found]
    return "\n".join(
        [
            BEGIN,
            f"R1-Zero on the tiny base: 50 steps, {count} held-out problems, before → after. Each",
            f"seed has a base model, problems and samples of its own. {machine(zero)};",
            f"vLLM rollouts; printed by `{zero['command']}` at {zero['git']['commit'][:7]}.",
            "",
            *recipe_tables.zero(zero["results"]),
            "",
            *table,
            *(["", "Not shown yet, though set out for:", "", *missed] if missed else []),
            END,
        ]
    )


def page(name: str, lines: Sequence[str]) -> str:
    """A table with what printed it, between the markers."""
    told = f"{machine(load(name))}; printed by {printed_by(name)}."
    return "\n".join([f"<!-- {name}: written by benchmarks/readme.py -->", told, "", *lines, END])


def pages() -> dict[tuple[str, str], str]:
    """(file, the marker its section begins with) -> the section."""
    runs, places, liked = (
        load(name)["results"] for name in ("algorithms", "kl_placement", "preferences")
    )
    sections = {
        ("docs/algorithms.md", "algorithms"): learning_tables.algorithms(runs),
        ("docs/algorithms.md", "kl_placement"): learning_tables.kl_places(places),
        ("docs/preferences.md", "preferences"): learning_tables.preferences(liked),
        **{("docs/aha.md", name): learning_tables.aha(load(name)["results"]) for name in CHECKED},
        **{
            (file, name): lines(load(name)["results"])
            for name, (file, lines) in {
                **recipe_tables.TABLES,
                **SPEED,
                **peer_tables.TABLES,
            }.items()
            if (RESULTS / f"{name}.json").is_file()
        },
    }
    made = {(file, name): page(name, lines) for (file, name), lines in sections.items()}
    return {("README.md", "results"): section(), **made}


def renewed(text: str, name: str, fresh: str) -> str:
    """The page with the section `name` in its place."""
    begin = f"<!-- {name}: written by benchmarks/readme.py -->"
    if text.count(begin) != 1:
        raise SystemExit(f"a page lacks the place of the table of {name}: {begin}")
    before, rest = text.split(begin)
    _, after = rest.split(END, 1)
    return before + fresh + after


def main() -> int:
    options = arguments(__doc__ or "")
    stale: set[str] = set()
    for (file, name), fresh in pages().items():
        text = (ROOT / file).read_text()
        made = renewed(text, name, fresh)
        stale |= {file} if made != text else set()
        if not options.quick:
            (ROOT / file).write_text(made)
    failed = [f"{file} does not say what the results say" for file in sorted(stale)]
    return publish(options, section(), {"stale": sorted(stale)}, failed=failed * options.quick)


if __name__ == "__main__":
    sys.exit(main())
