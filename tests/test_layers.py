"""The rules of the house that a machine can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "sandbox": set(),
    "data": set(),
    "verifiers": {"sandbox", "data"},
    "pipeline": {"sandbox", "data", "verifiers"},
    "stages": {"sandbox", "data", "verifiers", "pipeline"},
}
MAX_LINES = 300
FORBIDDEN_TEXT = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")
FORBIDDEN_NAMES = {"manager", "helper", "helpers", "util", "utils", "common", "base", "misc"}
NAMED_BY_DESIGN = {"stages/base.py"}

folders = pytest.mark.parametrize("folder", MAY_IMPORT)


def modules(folder):
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder}/ has no Python file"
    return found


def here(path):
    return path.relative_to(ROOT).as_posix()


def imported(path):
    """Absolute dotted names a file imports anywhere, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{here(path)} has a relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@folders
def test_imports_point_down(folder):
    for path in modules(folder):
        ours = {name.split(".")[0] for name in imported(path)} & set(MAY_IMPORT)
        upward = ours - MAY_IMPORT[folder] - {folder}
        assert not upward, f"{here(path)} imports {sorted(upward)}, which is not below {folder}/"


@folders
def test_no_two_files_import_each_other(folder):
    reach = {dotted(path): imported(path) for path in modules(folder)}
    for one, targets in reach.items():
        for other in targets & set(reach) - {one}:
            assert one not in reach[other], f"{one} and {other} import each other"


@pytest.mark.parametrize("folder", ["sandbox", "verifiers", "data"])
def test_below_the_pipeline_nothing_imports_torch(folder):
    for path in modules(folder):
        roots = {name.split(".")[0] for name in imported(path)}
        assert "torch" not in roots, f"{here(path)} imports torch"


def test_finding_every_verifier_loads_neither_torch_nor_computer_algebra():
    code = (
        "import sys, verifiers.registry as r; assert len(r.all_verifiers()) > 2; "
        "print(sorted({'torch', 'transformers', 'sympy', 'math_verify'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert ran.stdout.strip() == "[]"


@folders
def test_files_stay_short(folder):
    for path in modules(folder):
        lines = len(path.read_text().splitlines())
        assert lines <= MAX_LINES, f"{here(path)} has {lines} lines: split it by idea, not by size"


@folders
def test_every_file_says_what_it_is_for(folder):
    for path in modules(folder):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), f"{here(path)} has no docstring"


@folders
def test_everything_is_annotated(folder):
    for path in modules(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert not bare(node), f"{here(path)}:{node.lineno} {node.name}: {bare(node)}"


def bare(function):
    """What of a function's signature has no annotation."""
    spec = function.args
    extra = [arg for arg in (spec.vararg, spec.kwarg) if arg is not None]
    arguments = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *extra]
    named = [arg.arg for arg in arguments if arg.annotation is None]
    missing = [name for name in named if name not in ("self", "cls")]
    return missing + (["return"] if function.returns is None else [])


@folders
def test_nothing_is_left_for_later(folder):
    for path in modules(folder):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            assert not FORBIDDEN_TEXT.search(line), f"{here(path)}:{number} {line.strip()}"


@folders
def test_names_say_what_a_file_does(folder):
    for path in modules(folder):
        vague = FORBIDDEN_NAMES & set(path.stem.lower().split("_"))
        assert not vague or here(path) in NAMED_BY_DESIGN, f"{here(path)}: {sorted(vague)}"


def test_the_checks_see_what_they_forbid(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import pipeline.update\ndef f(a, *b, c: int = 1): pass\n")
    assert "pipeline.update" in imported(path)
    assert bare(ast.parse(path.read_text()).body[1]) == ["a", "b", "return"]
    assert FORBIDDEN_TEXT.search("# TO" + "DO later")


def test_tests_are_no_packages():
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize(("part", "folder"), [("docker", "sandbox"), ("vllm", "pipeline")])
def test_what_needs_a_part_of_its_own_stands_where_make_test_looks_for_it(part, folder):
    marked = re.compile(rf"pytest\.mark\.{part}\b")
    for path in (ROOT / "tests").rglob("test_*.py"):
        within = path.is_relative_to(ROOT / "tests" / folder)
        assert within or not marked.search(path.read_text()), f"{here(path)} is never run"
    recipe = rf"-m {part} tests/{folder}$"
    assert re.search(recipe, (ROOT / "Makefile").read_text(), re.MULTILINE)
