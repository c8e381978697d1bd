"""`veriloop lineage RUN`: inputs and outputs of every stage, and whether their files changed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.json_file import read_object
from veriloop.pipeline.runs.manifest import recorded
from veriloop.stages.commands.parse import parse_options
from veriloop.stages.moved_run import found_again

SHORT = 10  # digits shown of a hash


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print the stages of a run as a tree, from the last ones down to their inputs."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # print everything as JSON


def command(words: Sequence[str]) -> int:
    """0: all files are as recorded; 1: a file is changed or missing."""
    options = parse_options(Options, words)
    folder = Path(options.run)
    if not (folder / "run.json").is_file():
        raise RecipeError(f"{folder} holds no run: it has no run.json")
    stages = described(folder)
    print(json.dumps(stages, indent=1, ensure_ascii=False) if options.json else tree(stages))
    files = [
        file
        for stage in stages.values()
        for file in (*stage["inputs"].values(), *stage["outputs"].values())
    ]
    return 1 if any(file["state"] for file in files) else 0


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """Stages by name: their records, the stage that each input comes from, and the state of files.

    The state of a file is "" if it is as recorded, "missing", "changed", or "of an earlier run":
    the stage that wrote it has since been run again, with another outcome.
    """
    entries = found_again(recorded(folder / "run.json"), folder)
    sources = {
        file["path"]: (f"{name}.{output}", file["sha256"])
        for name, entry in entries.items()
        for output, file in _traced(entry, "outputs").items()
    }
    return {name: _stage(entry, sources) for name, entry in entries.items()}


def _stage(entry: Mapping[str, Any], sources: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    traced = entry.get("lineage", {})
    return {
        **{key: entry.get(key) for key in ("status", "started", "seconds", "goals")},
        "recipe": traced.get("recipe"),
        "code": traced.get("code"),
        "verifiers": traced.get("verifiers", {}),
        "sandbox": traced.get("sandbox", {}),
        "inputs": {key: _input(file, sources) for key, file in _traced(entry, "inputs").items()},
        "outputs": {
            key: file | {"state": lineage.state(file)} | _card(key, file)
            for key, file in _traced(entry, "outputs").items()
        },
    }


def _input(file: Mapping[str, str], sources: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    source, sha256 = sources.get(file["path"], ("", file["sha256"]))
    state = "of an earlier run" if sha256 != file["sha256"] else lineage.state(file)
    return {**file, "from": source, "state": state}


def _traced(entry: Mapping[str, Any], side: str) -> dict[str, dict[str, str]]:
    return entry.get("lineage", {}).get(side, {})


def _card(key: str, file: Mapping[str, str]) -> dict[str, Any]:
    """The row counts of a data card; empty for other files, and for one that cannot be read."""
    path = Path(file["path"])
    if key != "card" or not path.is_file():
        return {}
    try:
        card = read_object(path)
    except RecipeError:  # its state says that it has changed
        return {}
    return {"kept": card.get("kept"), "dropped": card.get("dropped", {})}


def tree(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """A block for each final stage, with its inputs indented below it."""
    inputs = [file for stage in stages.values() for file in stage["inputs"].values()]
    sources = {file["from"].partition(".")[0] for file in inputs}
    printed: set[str] = set()
    final = [name for name in stages if name not in sources]
    return "\n\n".join("\n".join(_block(name, stages, printed)) for name in reversed(final))


def _block(
    name: str, stages: Mapping[str, Mapping[str, Any]], printed: set[str], depth: str = ""
) -> Iterator[str]:
    stage = stages[name]
    if name in printed:
        yield f"{depth}{name}: see above"
        return
    printed.add(name)
    yield f"{depth}{name}: {_summary(stage)}"
    for output, file in stage["outputs"].items():
        yield f"{depth}  -> {output} {_file(file)}{_counts(file)}"
    for key, file in stage["inputs"].items():
        yield f"{depth}  <- {key} {_file(file)}"
        source = file["from"].partition(".")[0]
        if source:
            yield from _block(source, stages, printed, f"{depth}     ")


def _sandbox(facts: Mapping[str, Any]) -> str:
    return f"{facts['backend']} (tier {facts['tier']})" if facts["tier"] else facts["backend"]


def _summary(stage: Mapping[str, Any]) -> str:
    code = stage["code"] or {}
    verifiers = [f"{name} {version}" for name, version in stage["verifiers"].items()]
    commit = str(code.get("commit") or "unknown")[:SHORT]
    missed = [metric for metric, goal in (stage["goals"] or {}).items() if not goal["met"]]
    parts = [
        f"{stage['status']} in {stage['seconds']:.0f} s",
        f"recipe {stage['recipe'][:SHORT]}" if stage["recipe"] else "recipe not recorded",
        f"code {commit}{' and changes' if code.get('dirty') is True else ''}",
        *([f"judged by {' '.join(verifiers)}"] if verifiers else []),
        *([f"programs in {_sandbox(stage['sandbox'])}"] if stage["sandbox"] else []),
        *([f"MISSED {', '.join(missed)}"] if missed else []),
    ]
    return ", ".join(parts)


def _file(file: Mapping[str, Any]) -> str:
    mark = f"  {file['state'].upper()}" if file["state"] else ""
    return f"{file['sha256'][:SHORT]} {file['path']}{mark}"


def _counts(file: Mapping[str, Any]) -> str:
    if file.get("kept") is None:
        return ""
    dropped = ", ".join(f"{count} {reason}" for reason, count in file["dropped"].items())
    return f"  kept {file['kept']}, dropped {dropped or 'none'}"
