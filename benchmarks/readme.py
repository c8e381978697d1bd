"""Write the tables of README and docs/ from the committed results: no figure is typed by hand.

    python benchmarks/readme.py [--quick] [--json FILE]

`--quick` writes nothing and fails when a page differs from the results. How much of the code has
changed since a result was measured is that of the last time that the pages were written.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ages
import learning_tables
import peer_tables
import published_tables
import recipe_tables
import speed_tables
from algorithms import TO_REACH
from learning_tables import line
from publish import ROOT, arguments, publish
from targets import missed, sentences

from veriloop.pipeline.config.comparison import HEADER, rows
from veriloop.pipeline.config.presets import DISTILLATIONS, PREFERENCES, PRESETS

RESULTS = ROOT / "benchmarks" / "results"
CHECKED = ("aha", "aha_control")
CHOICES = {"algorithms": PRESETS, "preferences": PREFERENCES, "distillation": DISTILLATIONS}
SPEED = {name: ("docs/speed.md", lines) for name, lines in speed_tables.TABLES.items()}
SPEED |= {"gpu": ("docs/gpu.md", speed_tables.gpu)}
BEGIN, END = "<!-- results: written by benchmarks/readme.py -->", "<!-- end of results -->"


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def machine(result: dict[str, Any]) -> str:
    record = result["machine"]
    cores = f"{record['cores']} core" + "s" * (record["cores"] != 1)
    gpus = ", ".join(record.get("gpus", [])) or "no GPU"
    return f"{cores} of {record['cpu']}, {record['memory_gib']:.0f} GiB, {gpus}"


def proofs() -> list[tuple[str, str, str]]:
    """(what, measured, the script that printed it)."""
    sync, resume = (load(n)["results"] for n in ("sync", "resume"))
    planted, mutation = (load(n)["results"] for n in ("faults/planted", "mutation"))
    untestable = sum(entry["untestable"] for entry in mutation["excluded"])
    startup = load("startup")["results"]["veriloop --help"]["median_s"]
    widest = max(max(r["fresh_max"], r["batch_max"]) for r in sync)
    mean = max(max(r["fresh_mean"], r["batch_mean"]) for r in sync)
    lost = min(r["moved_least"] for r in sync)
    caught = [r["caught"] == r["wanted"] for r in planted if r["wanted"]]
    same = [r["engine"] for r in resume if r["metrics_identical"] and r["weights_identical"]]
    return [
        (
            "weight sync: sampler and trainer log-probs at every step; torch and vLLM, tied and "
            "untied head",
            f"maximum {widest:.1e} nats, mean {mean:.1e} (after a lost sync: {lost:.0e} or more)",
            "sync",
        ),
        (
            "a run killed twice by SIGKILL and resumed, compared with an uninterrupted run",
            f"metrics and weights are bit-identical: {', '.join(same)}",
            "resume",
        ),
        (
            "planted faults caught by the intended check, in the precisions of all recipes",
            f"{sum(caught)} of {len(caught)}",
            "faults/planted",
        ),
        (
            "single changes (mutants) of losses, updates, evaluation, checkpoints, data filters, "
            "code verifiers, `math_answer.py` and the pool that make a test fail; those left out "
            "as equivalent, and as untestable, each with its reason",
            f"{mutation['killed']:,} of {mutation['mutants']:,}, in {len(mutation['per_file'])} "
            f"files; {len(mutation['excluded']) - untestable}, {untestable}",
            "mutation",
        ),
        ("time of `veriloop --help`", f"{startup:.2f} s", "startup"),
    ]


def endured() -> list[tuple[str, str, str]]:
    """The same for signals, failing files, changed inputs and two commands at once."""
    kills, inputs, pairs = (
        load(f"faults/{name}")["results"] for name in ("kills", "inputs", "two_commands")
    )
    broken = load("faults/files")["results"]["faults"]
    equal = [sum(not event["differences"] for event in events) for events in (kills, broken)]
    soaked = load("faults/trainer_soak")
    soak, grown = soaked["results"], sum("grows by" in line for line in soaked["failed"])
    return [
        (
            "SIGKILL, SIGINT, SIGTERM at random moments of every stage to the command, its group, "
            "engine or workers, some in a run that was done: ended well and, resumed after one or "
            "more of them, equal to an undisturbed run bit for bit",
            f"{equal[0]} of {len(kills)}",
            "faults/kills",
        ),
        cluster_endured(),
        (
            "full, failing and read-only disks, torn writes, clock jumps in every stage: the same",
            f"{equal[1]} of {len(broken)}",
            "faults/files",
        ),
        (
            "changed recipes, data, commands, plugins, checkpoints and records: tracebacks, hangs "
            "or silent acceptance of what is certainly wrong",
            f"{len(inputs['bad'])} of {inputs['cases']:,}",
            "faults/inputs",
        ),
        (
            "a second command on the folder of a running one: one refused, the other whole",
            f"{sum(not pair['wrong'] for pair in pairs)} of {len(pairs)}",
            "faults/two_commands",
        ),
        *(service_endured(name) for name in ("services", "sandbox_services")),
        (
            f"{soak['steps']:,} GRPO steps with vLLM: quantities that grow; by how much of its "
            "mean each may have grown after the first fifth (upper ends of 95 %); files of the run "
            "with a secret of its environment",
            f"{grown} of {len(soak['fits'])}; {may_have_grown(soak['fits'])}; "
            f"{len(soak['leaks'])} of {soak['searched']:,}",
            "faults/trainer_soak",
        ),
    ]


def cluster_endured() -> tuple[str, str, str]:
    """The row of the kills of a run on two ranks, without those that came too late."""
    kills = [k for k in load("faults/cluster_kills")["results"] if k["code"] is not None]
    counts = Counter(kill["part"] for kill in kills)
    equal = sum(not kill["differences"] for kill in kills)
    parts = ", ".join(f"{count} of {part}" for part, count in counts.items())
    return (
        f"SIGKILL at random moments to parts of a run on two ranks ({parts}): the "
        "same ([more](cluster.md#what-was-tested))",
        f"{equal} of {len(kills)}",
        "faults/cluster_kills",
    )


def may_have_grown(fits: Mapping[str, Mapping[str, float]]) -> str:
    """The upper end of each growth; 0 where even that is none."""
    return ", ".join(
        f"{name} {max(fit['at_most'], 0) / fit['mean']:.1%}" for name, fit in fits.items()
    )


def service_endured(name: str) -> tuple[str, str, str]:
    """The row of a service under more than it can do."""
    result = load(f"faults/{name}")["results"]
    service = {"services": "reward", "sandbox_services": "sandbox"}[name]
    times = result["offered_per_s"] / result["capacity_per_s"]
    return (
        f"{service} service at {times:.0f} times its capacity, with hostile items and "
        f"{result['restarts']} restarts: wrong or lost responses; p99 of `/healthz` while it "
        "answers; growth of memory between two restarts",
        f"{len(result['problems'])} of {result['sent']:,}; {result['health_p99_s']:.2f} s; "
        f"{result['growth_mib']:.0f} MiB",
        f"faults/{name}",
    )


def grown_memory(soaked: Sequence[Mapping[str, Any]]) -> str:
    """By how much the sandbox's own memory grew in each tier."""
    grown = ((r["after"]["own_kb"] - r["before"]["own_kb"]) / 1024 for r in soaked)
    return ", ".join(f"{mib:+.1f} MiB" for mib in grown)


def printed_by(name: str) -> str:
    """The script with its flags, the measured commit, and whether the tree was clean."""
    return _printed_by(load(name))


def _printed_by(record: Mapping[str, Any]) -> str:
    commit = record.get("git", {}).get("commit", "")[:7]
    command = record["command"].removeprefix("python ").split(" --json")[0]
    dirty = " with uncommitted changes" if record.get("git", {}).get("dirty") is True else ""
    return f"`{command}`" + (f" at {commit}{dirty}" if commit else "")


def age(name: str) -> ages.Age:
    """The age of a result. Mutants are of the files that it lists."""
    result = load(name)
    listed = tuple(result["results"]["per_file"]) if name == "mutation" else ()
    return _age(result, listed)


def _age(record: Mapping[str, Any], listed: tuple[str, ...] = ()) -> ages.Age:
    script = record["command"].removeprefix("python benchmarks/").split(".py")[0]
    return ages.age(ROOT, record["git"]["commit"], (*listed, *ages.measured(script)))


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
            f"sandbox attacks with any effect; honest programs refused ({who})",
            f"{effects} of up to {most}; {refused}",
            "sandbox_suite",
        ),
        (
            "sandbox executions per second relative to a bare `python -I -c pass`: one worker, "
            "two; p99 over p50",
            f"{speed['times_faster_alone']:.1f} ×, {speed['times_faster_together']:.1f} ×; "
            f"{speed['worst_over_median']:.1f}",
            "sandbox_speed",
        ),
        (
            "time of ten cases of a program relative to one case: 50 lines, two lines "
            "(ten bare forks without isolation)",
            f"{speed['ten_cases_over_one']:.1f} ×, {speed['ten_small_cases_over_one']:.1f} × "
            f"({speed['ten_bare_forks_over_one']:.1f} ×, "
            f"{speed['ten_small_bare_forks_over_one']:.1f} ×)",
            "sandbox_speed",
        ),
        (
            "executions per second in warm containers, relative to the embedded sandbox",
            f"{docker['rate_over_embedded']:.2f}",
            "sandbox_docker",
        ),
        (
            "soak test, one run in five hostile: runs that saw traces of another run; growth of "
            "the sandbox's own memory",
            f"{seen} of {sum(r['runs'] for r in soaked):,}; {grown_memory(soaked)}",
            "sandbox_soak",
        ),
        (
            f"honest programs refused while {busy['loops']} busy loops run",
            f"{busy['refused']} of {busy['honest']}; with a wall-time limit alone "
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
    faster = {
        way: " and ".join(f"{speed[f'{kind}{way}']['times_faster']:.3g} ×"
                          for kind in ("MATH-like", "GSM8K-like") if f"{kind}{way}" in speed)
        for way in ("", ", worked")
    }  # fmt: skip
    inputs = [row for row in hostile["rows"] if not row["name"].startswith("afterwards")]
    answered = sum(row["status"] in ("graded", "no_answer") for row in inputs)
    hedges = sum(len(v) for k, v in tasks["earned"].items() if k not in ("own answer", "padded"))
    return [
        (
            "`math_answer` on our labelled answers; hacks accepted; documented equalities",
            f"{right['own']['accuracy']:.3f} of {right['own']['lines']}; "
            f"{right['own']['hacks_paid']}; "
            f"{right['equalities']['agreement']:.3f} of {right['equalities']['pairs']}",
            "verify_accuracy",
        ),
        (
            "answer pairs per CPU second relative to math-verify, golds parsed beforehand, "
            "MATH-like and GSM8K-like: responses of one sentence; of several lines of work",
            f"{faster['']}; {faster[', worked'] or 'not measured'}",
            "verify_speed",
        ),
        (
            "power towers, factorials, million-digit numbers: judged within limits; peak memory",
            f"{answered} of {len(inputs)}; {hostile['peak_mb']:.0f} MB",
            "verify_hostile",
        ),
        (
            "language share of a text, mean error of the worst group; documents per CPU second",
            f"{widest:.4f}; {language['documents_per_cpu_second']:,.0f}",
            "verify_language",
        ),
        (
            "reasoning-gym: reference answers, padded answers, hedges accepted",
            f"{len(tasks['earned']['own answer'])} and {len(tasks['earned']['padded'])} of "
            f"{tasks['tasks']}; {hedges}",
            "verify_reasoning_gym",
        ),
        (
            "reward service, batches of 8: verdicts per second; p99 at half load; p99 of a 429",
            f"{service['full']['per_s']:,.0f}; {service['half']['p99_ms']:.0f} ms; "
            f"{service['overload']['p99_ms']:.0f} ms",
            "service_speed",
        ),
    ]


def preset_runs() -> dict[str, list[Any]]:
    """The runs of the presets with several updates for each rollout, and with one, by result."""
    runs, once = (load(name)["results"] for name in ("algorithms", "algorithms_one_update"))
    return {"algorithms": learning_tables.others(runs, once), "algorithms_one_update": once}


def _reached(name: str, runs: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    presets = [name for name in TO_REACH if any(run["preset"] == name for run in runs)]
    reached = [run["after"]["pass@1"] for run in runs if run["preset"] in presets]
    return (
        f"held-out pass@1 of {', '.join(presets)} (three seeds each; "
        "[all presets](algorithms.md#compared))",
        f"{min(reached):.3f} to {max(reached):.3f}",
        name,
    )


def learning_proofs() -> list[tuple[str, str, str]]:
    """The same for algorithms and preference losses; docs/ has the tables."""
    liked = load("preferences")["results"]
    wins = [r["win_rate"] for own in liked["runs"].values() for r in own]
    held = {claim: cells for claim, cells in load("kl_placement")["results"]["claims"]}
    return [
        *(_reached(name, runs) for name, runs in preset_runs().items()),
        (
            f"win rate over the start, {len(liked['runs'])} preference losses, three seeds each "
            "([table](preferences.md#compared))",
            f"{min(wins):.2f} to {max(wins):.2f}",
            "preferences",
        ),
        (
            "published claims on KL placement: in how many settings each held "
            "([table](algorithms.md#where-a-kl-belongs))",
            "; ".join(f"{claim}: {cells}" for claim, cells in held.items()),
            "kl_placement",
        ),
        learning_tables.rise(load("aha")["results"]),
    ]


def shortfalls() -> list[str]:
    """A line for each target that a benchmark missed."""
    results = {
        path.relative_to(RESULTS).with_suffix("").as_posix(): json.loads(path.read_text())
        for path in sorted(RESULTS.rglob("*.json"))
    }
    return [
        f"- `benchmarks/{name}.py`: {sentence}"
        for name, result in results.items()
        for sentence in sentences(name, missed(name, result))
    ]


def section() -> str:
    zero, targets = load("zero_seeds"), shortfalls()
    count = zero["results"][0]["after"]["problems"]
    header = ["quantity", "measured", "printed by", *ages.HEADER]
    table = [line(header), line(["---"] * len(header))]
    results = {
        path.stem: json.loads(path.read_text()).get("results") for path in RESULTS.glob("*.json")
    }
    rows = [*recipe_tables.proofs(results), *published_tables.proofs(results)]
    rows += [*speed_tables.proofs(results), *proofs(), *endured(), *learning_proofs()]
    rows += [*sandbox_proofs(), *verifier_proofs(), peer_tables.proof(load("peers")["results"])]
    for what, figure, name in rows:
        old = age(name)
        table.append(line([what, figure, printed_by(name), old.date, old.changed]))
    return "\n".join(
        [
            BEGIN,
            f"R1-Zero on the tiny base: 50 steps, {count} held-out problems, before → after. Each",
            "seed has its own base model, problems and samples; the rewards of the controls do not",
            f"depend on the responses. {machine(zero)};",
            f"vLLM rollouts; printed by {printed_by('zero_seeds')} ({age('zero_seeds')}).",
            "",
            *recipe_tables.zero(zero["results"]),
            "",
            *table,
            *(["", "## Targets not met", "", *targets] if targets else []),
            END,
        ]
    )


def highlights() -> str:
    """Five figures for README."""
    zero, whole = load("zero_seeds")["results"], recipe_tables.quiet(load("whole")["results"])
    suite, mutation = load("sandbox_suite")["results"], load("mutation")["results"]
    seeds = len({run["seed"] for run in zero})
    change, random = (
        " → ".join(
            _span([run[end]["pass@1"] for run in zero if run["control"] == control])
            for end in ("before", "after")
        )
        for control in ("none", "random")
    )
    attacks = max(run["attacks"] for run in suite)
    effects = sum(len(run["effects"]) for run in suite)
    killed = f"{mutation['killed']:,} of {mutation['mutants']:,}"
    (resumed,) = (value for _, value, name in proofs() if name == "resume")
    rows = [
        (
            f"R1-Zero, 50 steps, {seeds} seeds: held-out pass@1 (random rewards)",
            f"{change} ({random})",
            "zero_seeds",
        ),
        (
            f"the whole recipe, {len(whole)} seeds: longest run; peak memory",
            f"{max(run['seconds'] for run in whole) / 60:.0f} min; "
            f"{max(run['peak_gib'] for run in whole):.1f} GiB",
            "whole",
        ),
        ("killed twice and resumed, compared with an uninterrupted run", resumed, "resume"),
        ("sandbox attacks with any effect", f"{effects} of {attacks}", "sandbox_suite"),
        (
            "single changes of losses, updates, checkpoints and code verifiers that make a test "
            "fail",
            killed,
            "mutation",
        ),
    ]
    table = [line(["on a CPU", "measured", "printed by"]), line(["---"] * 3)]
    table += [line([what, value, printed_by(name)]) for what, value, name in rows]
    return "\n".join(["<!-- highlights: written by benchmarks/readme.py -->", *table, END])


def _span(values: Sequence[float]) -> str:
    return "–".join(dict.fromkeys((f"{min(values):.2f}", f"{max(values):.2f}")))


def page(name: str, lines: Sequence[str]) -> str:
    """A table with its source, between the markers. A part that was added to the result later, as
    the bounds of steps, has a source of its own."""
    note = f"{machine(load(name))}; printed by {printed_by(name)} ({age(name)})."
    if added := load(name).get("bounds"):
        note += f" Products alone: printed by {_printed_by(added)} ({_age(added)})."
    return "\n".join([f"<!-- {name}: written by benchmarks/readme.py -->", note, "", *lines, END])


def choices(names: Sequence[str]) -> str:
    """Needs, strengths, weaknesses and uses, as `veriloop algorithms --compare` prints them."""
    lines = [line(HEADER), line(["---"] * len(HEADER))]
    lines += [line([f"`{name}`", *words]) for name, *words in rows(names)]
    return "\n".join(["<!-- choices: written by benchmarks/readme.py -->", *lines, END])


def pages() -> dict[tuple[str, str], str]:
    """(file, the marker its section begins with) -> the section."""
    places, liked = (load(name)["results"] for name in ("kl_placement", "preferences"))
    tables = recipe_tables.TABLES | published_tables.TABLES | SPEED | peer_tables.TABLES
    sections = {
        **{
            ("docs/algorithms.md", name): learning_tables.algorithms(runs)
            for name, runs in preset_runs().items()
        },
        ("docs/algorithms.md", "kl_placement"): learning_tables.kl_places(places),
        ("docs/preferences.md", "preferences"): learning_tables.preferences(liked),
        **{("docs/aha.md", name): learning_tables.aha(load(name)["results"]) for name in CHECKED},
        **{
            (file, name): lines(load(name)["results"])
            for name, (file, lines) in tables.items()
            if (RESULTS / f"{name}.json").is_file()
        },
    }
    texts = {(file, name): page(name, lines) for (file, name), lines in sections.items()}
    return {
        ("README.md", "highlights"): highlights(),
        ("docs/results.md", "results"): section(),
        **{(f"docs/{p}.md", "choices"): choices(list(group)) for p, group in CHOICES.items()},
        **texts,
    }


def renewed(text: str, name: str, fresh: str) -> str:
    """The page with the section `name` in its place."""
    begin = f"<!-- {name}: written by benchmarks/readme.py -->"
    if text.count(begin) != 1:
        raise SystemExit(f"a page must have the marker of table {name!r} exactly once: {begin}")
    before, rest = text.split(begin)
    _, after = rest.split(END, 1)
    return before + fresh + after


def main() -> int:
    options = arguments(__doc__ or "")
    stale: set[str] = set()
    for (file, name), fresh in pages().items():
        text = (ROOT / file).read_text()
        updated = renewed(text, name, fresh)
        stale |= set() if ages.agrees(text, updated) else {file}
        if not options.quick:
            (ROOT / file).write_text(updated)
    failed = [f"{file} differs from the results" for file in sorted(stale)]
    return publish(options, section(), {"stale": sorted(stale)}, failed=failed * options.quick)


if __name__ == "__main__":
    sys.exit(main())
