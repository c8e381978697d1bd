"""Which targets published results miss by the bars that their scripts have today."""

import ast
import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent


def missed(name: str, published: Mapping[str, Any]) -> list[str]:
    """Of the result `name`.json: what `shortfalls(results)` of its script returns for it. A script
    whose targets need more than the results has none; its result tells what was missed when it was
    measured."""
    if not _checks_results(BENCHMARKS / f"{name}.py"):
        return published.get("failed", [])
    return importlib.import_module(name).shortfalls(published["results"])


@cache
def _checks_results(script: Path) -> bool:
    if not script.is_file():
        return False
    functions = (
        node for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)
    )
    return any(node.name == "shortfalls" and len(node.args.args) == 1 for node in functions)
