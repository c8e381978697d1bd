"""What a run was: its identity, its recipes against the shipped ones, and where rows went."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.failures import RecipeError
from pipeline.recipes import flat, read
from pipeline.report.reading import Run, Stage

Row = Mapping[str, Any]
Difference = tuple[str, Any, Any]  # key, there, here


def facts(run: Run) -> list[tuple[str, str]]:
    """(name, text) of everything that a reader needs to find this run again."""
    told = run.manifest
    git, machine = told.get("git", {}), told.get("machine", {})
    dirty = {True: " and changes that no commit has", False: ""}.get(git.get("dirty", ""), "")
    versions = told.get("versions", {})
    seeds = {s.name: s.recipe["seed"] for s in run.stages if "seed" in s.recipe}
    gpus = machine.get("gpus") or []
    return [
        ("started", str(told.get("started", "unknown"))),
        ("command", str(told.get("command", "unknown"))),
        ("wall clock", seconds(told.get("seconds") or 0.0)),
        ("resumed", f"{len(told.get('resumed', []))} times"),
        ("commit", f"{git.get('commit', 'unknown')}{dirty}"),
        ("machine", f"{machine.get('cores', '?')} cores of {machine.get('cpu', '?')}, "
                    f"{machine.get('memory_gib', '?')} GiB, {', '.join(gpus) or 'no GPU'}"),
        ("system", str(machine.get("system", "unknown"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in seeds.items()) or "none recorded"),
        ("samplers", ", ".join(
            f"{s.name} {s.entry['sampler']}" for s in run.stages if s.entry.get("sampler")
        ) or "none"),
    ]  # fmt: skip


def verifiers(run: Run) -> list[tuple[str, str, str]]:
    """(name, version and fingerprint, stages) of every verifier that judged."""
    seen: dict[tuple[str, str], list[str]] = {}
    for stage in run.stages:
        told = stage.entry.get("lineage", {}).get("verifiers") or stage.versions.get("verifiers")
        for name, version in (told or {}).items():
            seen.setdefault((name, version), []).append(stage.name)
    return [(name, version, ", ".join(stages)) for (name, version), stages in sorted(seen.items())]


def seconds(value: float) -> str:
    """1:02:03, 2:03 or 3.4 s."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def against_shipped(stage: Stage) -> tuple[str, list[Difference]]:
    """The shipped recipe of that name, and what differs from it; the name is "" without one."""
    name = str(stage.recipe.get("name", ""))
    try:
        shipped = read(name).model_dump(mode="json")
    except (RecipeError, FileNotFoundError, OSError):
        return "", []
    if shipped.get("stage") != stage.recipe.get("stage"):
        return "", []
    return name, differences(shipped, stage.recipe)


def differences(there: Row, here: Row) -> list[Difference]:
    """Keys whose values differ, None for one that is on one side only."""
    old, new = dict(flat(dict(there))), dict(flat(dict(here)))
    keys = sorted(old.keys() | new.keys())
    return [(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)]


def made_from(stage: Stage, stages: Sequence[Stage]) -> list[tuple[str, str, str]]:
    """(input, the stage it comes from or its path, short hash) of what a stage read."""
    made = {
        one["path"]: f"{other.name}.{key}"
        for other in stages
        for key, one in other.entry.get("lineage", {}).get("outputs", {}).items()
    }
    found = list[tuple[str, str, str]]()
    for key, one in stage.entry.get("lineage", {}).get("inputs", {}).items():
        path = str(one["path"])
        found.append((str(key), made.get(path, path), str(one["sha256"])[:10]))
    return found


def outputs(stage: Stage) -> list[tuple[str, str]]:
    """(output, short hash) of what a stage made."""
    told = stage.entry.get("lineage", {}).get("outputs", {})
    return [(key, one["sha256"][:10]) for key, one in told.items()]


def rows_of(stage: Stage) -> tuple[int, int, dict[str, int]] | None:
    """(rows in, rows kept, dropped by reason): of a data card, or of the rows that a stage read."""
    card, made = stage.card, stage.entry.get("outputs", {})
    if "kept" in card:
        dropped = {str(reason): int(n) for reason, n in card.get("dropped", {}).items()}
        return int(card["kept"]) + sum(dropped.values()), int(card["kept"]), dropped
    rows = made.get("rows", made.get("examples"))
    if isinstance(rows, int):
        dropped = {"too long": made["too_long"]} if made.get("too_long") else {}
        held = {"held out": made["held_out"]} if made.get("held_out") else {}
        lost = dropped | held
        return rows + sum(lost.values()), rows, lost
    return None
