"""What must not change between the runs of a stage that is resumed, besides its recipe.

A changed verifier, start checkpoint or file that the recipe names is refused unless the command
allows it; an allowed change is recorded.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, get_args

from veriloop.pipeline.errors import RecipeError

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


def changed_inputs(
    entry: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]
) -> list[dict[str, str]]:
    """The inputs whose content differs from that recorded in this run.json entry, all allowed.

    Raises RecipeError for one that is not.
    """
    before = entry.get("lineage", {}).get("inputs", {})
    changes = [
        {"kind": _kind(key), "name": key, "path": old["path"],
         "before": old["sha256"], "now": now.get(key, {}).get("sha256", "missing")}
        for key, old in before.items()
        if old["sha256"] != now.get(key, {}).get("sha256")
    ]  # fmt: skip
    _require_allowed(changes)
    return changes


def _kind(key: str) -> Kind:
    if key.startswith("plugins."):
        return "verifier"
    return "start" if key == "start" else "file"


def changed_verifiers(before: Mapping[str, str], now: Mapping[str, str]) -> list[dict[str, str]]:
    """The verifiers whose fingerprint differs, all allowed. Raises RecipeError as above."""
    changes = [
        {"kind": "verifier", "name": name, "before": before[name], "now": now[name]}
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]
    _require_allowed(changes)
    return changes


def _require_allowed(changes: Collection[Mapping[str, str]]) -> None:
    refused = [change for change in changes if change["kind"] not in _allowed.get()]
    if not refused:
        return
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
