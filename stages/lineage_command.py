"""`veriloop lineage RUN`: from what each stage of a run came, and whether that still stands."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from pipeline import lineage
from pipeline.failures import RecipeError
from pipeline.run_json import recorded

SHORT = 10  # digits shown of a hash


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print the stages of a run as a tree, the last ones first, down to what they came from."""

    run: Annotated[str, tyro.conf.Positional]  # a run folder, with its run.json
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # everything, for programs


def command(words: Sequence[str]) -> int:
    """0: everything on disk is as it was recorded; 1: something is changed or missing."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop lineage")
    folder = Path(options.run)
    if not (folder / "run.json").is_file():
        raise RecipeError(f"{folder} holds no run: no run.json in it")
    stages = described(folder)
    print(json.dumps(stages, indent=1, ensure_ascii=False) if options.json else tree(stages))
    return 1 if any(one["state"] for stage in stages.values() for one in _files(stage)) else 0


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """Stages by name: what is recorded of each, where its inputs come from, and their state.

    The state of a file is "" where it stands, "missing", "changed", or "of an earlier run": its
    stage has been done again since, with another outcome.
    """
    entries = recorded(folder / "run.json")
    made = {
        one["path"]: (f"{name}.{output}", one["sha256"])
        for name, entry in entries.items()
        for output, one in _traced(entry, "outputs").items()
    }
    return {name: _stage(entry, made) for name, entry in entries.items()}


def _stage(entry: Mapping[str, Any], made: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    traced = entry.get("lineage", {})
    return {
        **{key: entry.get(key) for key in ("status", "started", "seconds", "goals")},
        "recipe": traced.get("recipe"),
        "code": traced.get("code"),
        "verifiers": traced.get("verifiers", {}),
        "inputs": {key: _input(one, made) for key, one in _traced(entry, "inputs").items()},
        "outputs": {
            key: one | {"state": lineage.state(one)} | _card(key, one)
            for key, one in _traced(entry, "outputs").items()
        },
    }


def _input(one: Mapping[str, str], made: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    source, sha256 = made.get(one["path"], ("", one["sha256"]))
    replaced = sha256 != one["sha256"]
    return {**one, "from": source, "state": "of an earlier run" if replaced else lineage.state(one)}


def _traced(entry: Mapping[str, Any], side: str) -> dict[str, dict[str, str]]:
    return entry.get("lineage", {}).get(side, {})


def _card(key: str, one: Mapping[str, str]) -> dict[str, Any]:
    """What a data card counted."""
    path = Path(one["path"])
    if key != "card" or not path.is_file():
        return {}
    told = json.loads(path.read_text(encoding="utf-8"))
    return {"kept": told.get("kept"), "dropped": told.get("dropped", {})}


def _files(stage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*stage["inputs"].values(), *stage["outputs"].values()]


def tree(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """One block a stage that no other reads from, what it came from indented below it."""
    read = {one["from"].partition(".")[0] for s in stages.values() for one in s["inputs"].values()}
    shown: set[str] = set()
    ends = [name for name in stages if name not in read]
    return "\n\n".join("\n".join(_block(name, stages, shown)) for name in reversed(ends))


def _block(
    name: str, stages: Mapping[str, Mapping[str, Any]], shown: set[str], depth: str = ""
) -> Iterator[str]:
    stage = stages[name]
    if name in shown:
        yield f"{depth}{name}: see above"
        return
    shown.add(name)
    yield f"{depth}{name}: {_told(stage)}"
    for output, one in stage["outputs"].items():
        yield f"{depth}  -> {output} {_file(one)}{_counts(one)}"
    for key, one in stage["inputs"].items():
        yield f"{depth}  <- {key} {_file(one)}"
        source = one["from"].partition(".")[0]
        if source:
            yield from _block(source, stages, shown, f"{depth}     ")


def _told(stage: Mapping[str, Any]) -> str:
    code = stage["code"] or {}
    commit = str(code.get("commit") or "unknown")[:SHORT]
    missed = [figure for figure, one in (stage["goals"] or {}).items() if not one["met"]]
    parts = [
        f"{stage['status']} in {stage['seconds']:.0f} s",
        f"recipe {stage['recipe'][:SHORT]}" if stage["recipe"] else "recipe not recorded",
        f"code {commit}{' and changes' if code.get('dirty') is True else ''}",
        *([f"judged by {_judges(stage['verifiers'])}"] if stage["verifiers"] else []),
        *([f"MISSED {', '.join(missed)}"] if missed else []),
    ]
    return ", ".join(parts)


def _judges(verifiers: Mapping[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in verifiers.items())


def _file(one: Mapping[str, Any]) -> str:
    mark = f"  {one['state'].upper()}" if one["state"] else ""
    return f"{one['sha256'][:SHORT]} {one['path']}{mark}"


def _counts(one: Mapping[str, Any]) -> str:
    if one.get("kept") is None:
        return ""
    dropped = ", ".join(f"{count} {reason}" for reason, count in one["dropped"].items())
    return f"  kept {one['kept']}, dropped {dropped or 'none'}"


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["lineage", *sys.argv[1:]]))
