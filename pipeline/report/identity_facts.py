"""What identifies a run: environment, verifiers, recipes, inputs, outputs and row counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from veriloop.pipeline.config.load import flat, read
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.read_run import Run, Stage

Row = Mapping[str, Any]
Difference = tuple[Any, ...]  # key, and its value in each recipe


def facts(run: Run) -> list[tuple[str, str]]:
    """(name, text) of the environment in which a run was made."""
    manifest = run.manifest
    git, machine = manifest.get("git", {}), manifest.get("machine", {})
    dirty = " and uncommitted changes" if git.get("dirty") is True else ""
    versions = manifest.get("versions", {})
    seeds = {s.name: s.recipe["seed"] for s in run.stages if "seed" in s.recipe}
    gpus = machine.get("gpus") or []
    return [
        ("started", str(manifest.get("started", "unknown"))),
        ("command", str(manifest.get("command", "unknown"))),
        ("wall clock", seconds(manifest.get("seconds") or 0.0)),
        ("resumed", f"{len(manifest.get('resumed', []))} times"),
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
    used: dict[tuple[str, str], list[str]] = {}
    for stage in run.stages:
        lineage = stage.entry.get("lineage", {})
        versions = lineage.get("verifiers") or stage.versions.get("verifiers") or {}
        for name, version in versions.items():
            used.setdefault((name, version), []).append(stage.name)
    return [(name, version, ", ".join(stages)) for (name, version), stages in sorted(used.items())]


def seconds(value: float) -> str:
    """1:02:03, 2:03 or 3.4 s."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def against_shipped(stage: Stage) -> tuple[str, list[Difference]]:
    """Name of the shipped recipe with the stage's recipe name, and the differences from it; the
    name is "" if there is none."""
    name = str(stage.recipe.get("name", ""))
    try:
        shipped = read(name).model_dump(mode="json")
    except (RecipeError, FileNotFoundError, OSError):
        return "", []
    if shipped.get("stage") != stage.recipe.get("stage"):
        return "", []
    return name, differences(shipped, stage.recipe)


def differences(*recipes: Row) -> list[Difference]:
    """(key, value in each recipe) of the keys whose values differ, with None for a missing key."""
    flattened = [dict(flat(dict(recipe))) for recipe in recipes]
    keys = sorted({key for recipe in flattened for key in recipe})
    rows = [(key, *(recipe.get(key) for recipe in flattened)) for key in keys]
    return [row for row in rows if any(value != row[1] for value in row[2:])]


def made_from(stage: Stage, stages: Sequence[Stage]) -> list[tuple[str, str, str]]:
    """(input, its source, short hash) of a stage's inputs. The source is STAGE.OUTPUT of the stage
    that wrote it, else its path."""
    sources = {
        output["path"]: f"{other.name}.{key}"
        for other in stages
        for key, output in other.entry.get("lineage", {}).get("outputs", {}).items()
    }
    inputs = stage.entry.get("lineage", {}).get("inputs", {})
    return [
        (str(key), sources.get(str(file["path"]), str(file["path"])), str(file["sha256"])[:10])
        for key, file in inputs.items()
    ]


def outputs(stage: Stage) -> list[tuple[str, str]]:
    """(output, short hash) of a stage."""
    lineage = stage.entry.get("lineage", {})
    return [(key, file["sha256"][:10]) for key, file in lineage.get("outputs", {}).items()]


def rows_of(stage: Stage) -> tuple[int, int, dict[str, int]] | None:
    """(rows in, rows learned from, left out by reason), from the data card and from the rows that
    the stage read, or kept so far if it has read none; None if the stage has neither, or samples
    what it learns from."""
    card, counts = stage.card, stage.entry.get("outputs", {})
    rows = counts.get("rows", counts.get("examples", card.get("rows", card.get("kept"))))
    sampled = rows == 0 and stage.learns_from_rewards  # its rows are those that are held out
    if sampled or not isinstance(rows, int):
        return None
    dropped = {str(reason): int(n) for reason, n in card.get("dropped", {}).items()}
    names = {"too_long": "too long", "held_out": "held out"}
    dropped |= {reason: counts[key] for key, reason in names.items() if counts.get(key)}
    return rows + sum(dropped.values()), rows, dropped
