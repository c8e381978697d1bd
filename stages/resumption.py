"""What must not change between the runs of a stage that is resumed, besides its recipe.

A changed verifier, start checkpoint or file that the recipe names is refused unless the command
allows it. An allowed change is recorded beside what the stage began with, with which later runs
are compared too: neither that nor what was allowed is refused again.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.manifest import write_versions

Change = Mapping[str, str]

# verifier: of plugins too; file: functions, templates, data, teachers
Kind = Literal["verifier", "start", "file"]
KINDS: tuple[str, ...] = get_args(Kind)
DIGITS = 12  # of a hash in a message

_allowed: ContextVar[frozenset[str]] = ContextVar("allowed", default=frozenset())


@contextmanager
def allowing(kinds: Collection[str]) -> Iterator[None]:
    """Inside the block a stage is resumed in spite of changes of these kinds."""
    token = _allowed.set(frozenset(kinds))
    try:
        yield
    finally:
        _allowed.reset(token)


def changed_inputs(entry: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]) -> list[Change]:
    """The allowed changes of this run.json entry, and those of its inputs since then.

    Raises RecipeError for one that is not allowed.
    """
    before = entry.get("lineage", {}).get("inputs", {})
    changes = [
        {"kind": _kind(key), "name": key, "path": old["path"],
         "before": old["sha256"], "now": now.get(key, {}).get("sha256", "missing")}
        for key, old in before.items()
        if old["sha256"] != now.get(key, {}).get("sha256")
    ]  # fmt: skip
    return _with_allowed(entry.get("allowed_changes", ()), changes)


def _kind(key: str) -> Kind:
    if key.startswith("plugins."):
        return "verifier"
    return "start" if key == "start" else "file"


def changed_content(
    kind: Kind,
    before: Mapping[str, str],
    now: Mapping[str, str],
    earlier: Collection[Change] = (),
) -> list[Change]:
    """The changes that were allowed `earlier`, and the names whose hash or fingerprint differs.

    Raises RecipeError for one that is not allowed.
    """
    changes = [
        {"kind": kind, "name": name, "before": before[name], "now": now[name]}
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]
    return _with_allowed(earlier, changes)


def changed_verifiers(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[Change]:
    """`changed_content` of the verifiers in a result of `lineage.judges`."""
    earlier = recorded.get("allowed_changes", ())
    return changed_content("verifier", recorded["verifiers"], now, earlier)


def note_verifiers(
    directory: Path, now: Mapping[str, str], sandbox: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Write the fingerprints to the stage's versions.json, where those it began with stay.

    Raises RecipeError for a change that the command does not allow.
    """
    recorded = lineage.judges(directory)
    changes = changed_verifiers(recorded, now)
    verifiers = {**now, **recorded["verifiers"]}
    sandbox = sandbox or recorded.get("sandbox", {})
    write_versions(directory / lineage.VERSIONS, verifiers, sandbox, changes)


def _with_allowed(earlier: Collection[Change], changes: Collection[Change]) -> list[Change]:
    """Both; raises RecipeError for a change that neither was allowed earlier nor is now."""
    new = [change for change in changes if change not in earlier]
    refused = [change for change in new if change["kind"] not in _allowed.get()]
    if not refused:
        return [*earlier, *new]
    texts = [
        f"{change['kind']} {_name(change)}: {_short(change['before'])} -> {_short(change['now'])}"
        for change in refused
    ]
    kinds = " ".join(f"--allow-changed {kind}" for kind in sorted({c["kind"] for c in refused}))
    raise RecipeError(
        f"cannot resume, what the stage began with has changed ({', '.join(texts)}); restore it, "
        f"go on in spite of it with {kinds}, or start a new run with another --output"
    )


def _name(change: Mapping[str, str]) -> str:
    return f"{change['name']} = {change['path']}" if "path" in change else change["name"]


def _short(fingerprint: str) -> str:
    version, plus, digest = fingerprint.rpartition("+")
    return f"{version}{plus}{digest[:DIGITS]}" if "," not in digest else fingerprint
