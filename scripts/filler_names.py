"""Count names that say nothing (`found`, `told`, `one`) among all names that the product binds.

    python scripts/filler_names.py [--files N] [PATH ...]

A bound name is a parameter or the target of an assignment, counted at every binding. The default
is every product folder; with --files the N files with most filler names are listed.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("data", "sandbox", "verifiers", "pipeline", "stages")
FILLER = frozenset({"asked", "found", "here", "made", "one", "place", "said", "told"})
SCALE = 10_000


def bound_names(source: str) -> Iterator[str]:
    """Every parameter and every assigned name of a module, once for each binding."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def count(paths: Sequence[Path]) -> dict[Path, Counter[str]]:
    """Bound names of each Python file below `paths`, with how often each is bound."""
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return {file: Counter(bound_names(file.read_text(encoding="utf-8"))) for file in sorted(files)}


def summary(counts: dict[Path, Counter[str]], worst: int) -> str:
    """The rate for each folder, for all of them, and for each filler name; then the worst files."""
    lines: list[str] = []
    groups: dict[str, Counter[str]] = {}
    for file, names in counts.items():
        folder = file.parent.relative_to(ROOT) if file.is_relative_to(ROOT) else file.parent
        groups.setdefault("/".join(folder.parts[:2]), Counter()).update(names)
    total = sum(groups.values(), Counter())
    for label, names in [*groups.items(), ("all", total)]:
        filler = sum(names[name] for name in FILLER)
        rate = SCALE * filler / max(1, names.total())
        lines.append(f"{label:<28}{filler:>6} of {names.total():>6}   {rate:>5.0f} per {SCALE:,}")
    lines.append(", ".join(f"{name} {total[name]}" for name in sorted(FILLER)))
    if worst:
        rank = {file: sum(names[name] for name in FILLER) for file, names in counts.items()}
        for file, filler in sorted(rank.items(), key=lambda entry: -entry[1])[:worst]:
            used = {name: counts[file][name] for name in sorted(FILLER) if counts[file][name]}
            lines.append(f"{filler:>5}  {file}  {used}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders")
    parser.add_argument("--files", type=int, default=0, help="list this many of the worst files")
    options = parser.parse_args()
    paths = [path.resolve() for path in options.paths] or [ROOT / name for name in FOLDERS]
    print(summary(count(paths), options.files))


if __name__ == "__main__":
    main()
