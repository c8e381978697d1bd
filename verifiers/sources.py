"""Which files decide a verifier's verdicts: its own, and whatever of ours they import."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_OURS = "verifiers."
_DECIDES_NOTHING = {"verifiers.registry"}  # it only finds verifiers


def source_files(modules: Iterable[str]) -> list[Path]:
    """The files of these modules and packages, and of all they import from `verifiers`.

    Imports inside functions count as well. Raises ValueError for a module without a source file.
    """
    waiting, found = list(modules), dict[Path, None]()
    while waiting:
        for path in _files(waiting.pop()):
            if path not in found:
                found[path] = None
                waiting += _imported(path)
    return sorted(found)


def _files(name: str) -> list[Path]:
    if name not in sys.modules:
        importlib.import_module(name)
    source = getattr(sys.modules[name], "__file__", None)
    if source is None:
        raise ValueError(f"module {name!r} has no source file to take a fingerprint of")
    path = Path(source)
    return sorted(path.parent.glob("*.py")) if path.stem == "__init__" else [path]


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if _is_module(name))


def _is_module(name: str) -> bool:
    if not name.startswith(_OURS) or name in _DECIDES_NOTHING:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a name in a module, and no module in a package
        return False
