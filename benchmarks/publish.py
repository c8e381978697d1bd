"""What every benchmark shares: `--json FILE`, `--quick`, a table, and a record of the machine."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
# children import the checkout that this file lies in, whatever is installed
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])

from veriloop.pipeline.runs.provenance import identity  # noqa: E402

ELSEWHERE = ("folder", "image", "jobs")  # flags of where things go, and how many at a time


def arguments(description: str, **extra: Mapping[str, Any]) -> argparse.Namespace:
    """Parse `--json`, `--quick` and the `extra` flags. `asked` holds the words that define the
    measurement: all but those of `ELSEWHERE`; of a path only its name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--quick", action="store_true", help="a small run that proves it works")
    for name, options in extra.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    options = parser.parse_args()
    options.asked = ["--quick"] if options.quick else []
    for name, settings in extra.items():
        given = getattr(options, name)
        if given == settings.get("default") or name in ELSEWHERE:
            continue
        words = given if isinstance(given, list) else [given]
        values = [word.name if isinstance(word, Path) else str(word) for word in words]
        options.asked += [f"--{name.replace('_', '-')}", *values]
    return options


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A text table; numbers have four digits."""
    cells = [[c if isinstance(c, str) else f"{c:.4g}" for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    lines = [list(header), ["-" * w for w in widths], *cells]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def publish(
    options: argparse.Namespace,
    text: str,
    results: Any,
    *,
    failed: Sequence[str] = (),
    added: tuple[str, Mapping[str, Any]] | None = None,
) -> int:
    """Print the table and the failures, write the JSON, and return the exit code. `added`: a name
    and the older result that this one adds a part to; then the command, versions, machine and
    commit are those of the older one, and those of this one stand under the name."""
    print(text)
    for line in failed:
        print(f"FAILED: {line}")
    if options.json:
        script = Path(sys.argv[0]).resolve().relative_to(ROOT)
        command = shlex.join(["python", str(script), *options.asked])
        source = {"command": command, **identity()}
        if added:
            name, older = added
            source = {**older, name: source}
        content = {**source, "results": results, "failed": list(failed)}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(laid_out(json.loads(json.dumps(content))) + "\n")
    return 1 if failed else 0


def laid_out(content: Any, indent: str = "") -> str:
    """JSON values as text, indented, lists and objects of plain values on one line each."""
    inside = list(content.values() if isinstance(content, dict) else content)
    if not any(isinstance(element, dict | list | tuple) for element in inside):
        return json.dumps(content)
    deeper = indent + " "
    parts = [
        laid_out(element, deeper)
        if isinstance(element, dict | list | tuple)
        else json.dumps(element)
        for element in inside
    ]
    if isinstance(content, dict):
        parts = [f"{json.dumps(key)}: {value}" for key, value in zip(content, parts, strict=True)]
    opening, closing = "{}" if isinstance(content, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{closing}"
