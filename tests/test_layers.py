"""Structure rules: which folders and rooms import which, file sizes, docstrings, annotations.

`python tests/test_layers.py` prints the size of the import graph of pipeline/.
"""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
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
# The rooms of pipeline/ (its folders, and three files) in floor order, and what each may import.
ROOMS = {
    "errors": "",
    "types": "",
    "config": "errors",
    "runs": "errors types config",
    "protocols": "types config",
    "model": "errors types config",
    "cluster": "errors types model",
    "training": "errors types config runs model cluster",
    "losses": "types model",
    "sampling": "errors types config runs model cluster training",
    "rollouts": "errors types protocols config runs model training losses sampling",
    "evaluation": "errors types config model sampling rollouts",
    "rl": (
        "errors types protocols config runs model cluster training losses sampling rollouts "
        "evaluation"
    ),
    "sft": "errors types config runs model cluster training sampling rollouts",
    "preference": (
        "errors types config runs model cluster training losses sampling rollouts evaluation"
    ),
    "distill": "errors types config runs model cluster training losses sampling rl sft",
    "dry_run": "errors config rollouts",
    "offline": "errors types config runs model training rollouts rl",
    "report": "errors config runs offline",
    "watch": "errors report",
    "doctor": "errors config runs model sampling",
}
FILES_OF_PIPELINE = {"__init__.py", "errors.py", "types.py", "protocols.py"}
MAX_ROOMS, MAX_ARROWS = 22, 110
FOREIGN = "verifiers.v1."  # a package of Prime Intellect, imported in benchmarks/inside
MAX_LINES = 500
FORBIDDEN_TEXT = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")
FORBIDDEN_NAMES = {"manager", "helper", "helpers", "util", "utils", "common", "base", "misc"}
NAMED_BY_DESIGN = {"stages/base.py"}

folders = pytest.mark.parametrize("folder", MAY_IMPORT)


@cache
def modules(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths, f"{folder}/ has no Python file"
    return paths


def here(path):
    return path.relative_to(ROOT).as_posix()


@cache
def nodes(path):
    """The module of a file, then every node in it."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path):
    """Absolute dotted names a file imports anywhere, inside functions too."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{here(path)} has a relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("veriloop", *(parts[:-1] if parts[-1] == "__init__" else parts)))


@folders
def test_imports_point_down(folder):
    for path in modules(folder):
        names = (name.split(".") for name in imported(path))
        ours = {name[1] for name in names if name[0] == "veriloop" and len(name) > 1}
        ours &= set(MAY_IMPORT)
        upward = ours - MAY_IMPORT[folder] - {folder}
        assert not upward, f"{here(path)} imports {sorted(upward)}, which is not below {folder}/"


@folders
def test_files_import_each_other_in_no_circle(folder):
    targets = {dotted(path): imported(path) for path in modules(folder)}
    pairs = [(name, target) for name, names in targets.items() for target in names & set(targets)]
    assert not cyclic(pairs)


def room_of(module):
    """The room of a dotted name in pipeline/, None for any other name."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["veriloop", "pipeline"] and len(parts) > 2 else None


def arrows():
    """{(room, imported room): files with such an import} of pipeline/."""
    files = {}
    for path in modules("pipeline"):
        room = room_of(dotted(path))
        # `from package import name` yields package.name too, which may name no module
        targets = {room_of(name) for name in imported(path)} & set(ROOMS)
        for target in targets - {room, None}:
            files.setdefault((room, target), []).append(here(path))
    return files


def cyclic(pairs):
    """The names in or between import circles, of pairs (name, imported name)."""
    left = {pair for pair in pairs if pair[0] != pair[1]}
    while True:
        # what imports nothing that is left, or is imported by nothing, is in no circle
        ends = {a for a, _ in left} ^ {b for _, b in left}
        if not ends:
            return sorted({name for pair in left for name in pair})
        left = {pair for pair in left if not ends & set(pair)}


def graph():
    """The size of the import graph of pipeline/; its floors are the order of ROOMS."""
    pairs, floor = arrows(), list(ROOMS)
    return {
        "rooms": len({room for pair in pairs for room in pair}),
        "arrows": len(pairs),
        "up": sum(floor.index(b) > floor.index(a) for a, b in pairs),
        "circles": len(cyclic(pairs)),
    }


def test_rooms_import_what_the_table_allows():
    for (room, target), files in arrows().items():
        assert target in ROOMS[room].split(), f"{room} may not import {target}: {files}"


def test_the_table_points_down():
    for floor, (room, targets) in enumerate(ROOMS.items()):
        above = set(targets.split()) - set(list(ROOMS)[:floor])
        assert not above, f"{room} is listed before {sorted(above)}, which it may import"


def test_the_graph_of_rooms_stays_small():
    size = graph()
    assert size["rooms"] <= MAX_ROOMS and size["arrows"] <= MAX_ARROWS, size
    assert (size["up"], size["circles"]) == (0, 0), size


def test_pipeline_has_no_new_flat_files_and_every_folder_is_in_the_table():
    folder = ROOT / "pipeline"
    assert {path.name for path in folder.glob("*.py")} == FILES_OF_PIPELINE
    folders = {path.name for path in folder.iterdir() if list(path.glob("*.py"))}
    assert folders == set(ROOMS) - {Path(name).stem for name in FILES_OF_PIPELINE}


TESTS = pytest.param("tests", marks=pytest.mark.slow)


@pytest.mark.parametrize("folder", [*MAY_IMPORT, TESTS, "benchmarks", "scripts"])
def test_our_own_code_is_imported_as_veriloop(folder):
    paths = modules(folder)
    if folder == "tests":  # other files are test data, some of them no Python
        paths = [path for path in paths if path.name.startswith(("test_", "conftest"))]
    for path in paths:
        for name in imported(path):
            foreign = f"{name}.".startswith(FOREIGN)
            bare = name.split(".")[0] in MAY_IMPORT and not foreign
            assert not bare, f"{here(path)} imports {name}: write veriloop.{name}"


def test_the_type_checker_reads_every_package():
    """It finds nothing behind links unless each is listed."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    assert set(config["include"]) == {f"src/veriloop/{folder}" for folder in MAY_IMPORT}


@pytest.mark.parametrize("folder", ["sandbox", "verifiers", "data"])
def test_below_the_pipeline_nothing_imports_torch(folder):
    for path in modules(folder):
        roots = {name.split(".")[0] for name in imported(path)}
        assert "torch" not in roots, f"{here(path)} imports torch"


def test_finding_every_verifier_loads_neither_torch_nor_computer_algebra():
    code = (
        "import sys, veriloop.verifiers.registry as r; assert len(r.all_verifiers()) > 2; "
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
        assert ast.get_docstring(nodes(path)[0]), f"{here(path)} has no docstring"


@folders
def test_everything_is_annotated(folder):
    for path in modules(folder):
        for node in nodes(path):
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
    circle = [("rl", "runs"), ("runs", "model"), ("model", "rl")]
    assert cyclic([*circle, ("sft", "rl")]) == ["model", "rl", "runs"]
    path = tmp_path / "bad.py"
    path.write_text("import veriloop.pipeline.rl.update\ndef f(a, *b, c: int = 1): pass\n")
    assert "veriloop.pipeline.rl.update" in imported(path)
    assert bare(ast.parse(path.read_text()).body[1]) == ["a", "b", "return"]
    assert FORBIDDEN_TEXT.search("# TO" + "DO later")


def test_tests_are_no_packages():
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_test_stops_the_clock_of_the_whole_process():
    """An event loop in another thread would sleep for as long as the clock seems to go back."""
    patched = re.compile(r"""setattr\([^)]*\btime(\.|, *)["']?(monotonic|time|perf_counter)\b""")
    assert patched.search('setattr(budget.time, "monotonic", f)')
    for path in (ROOT / "tests").rglob("*.py"):
        found = patched.search(path.read_text().replace('(budget.time, "monotonic", f)', ""))
        assert not found, f"{here(path)}: {found}; use tests/clock.py"


@pytest.mark.parametrize(("part", "folder"), [("docker", "sandbox"), ("vllm", "pipeline")])
def test_what_needs_an_optional_part_is_where_make_test_looks_for_it(part, folder):
    marked = re.compile(rf"pytest\.mark\.{part}\b")
    for path in (ROOT / "tests").rglob("test_*.py"):
        within = path.is_relative_to(ROOT / "tests" / folder)
        assert within or not marked.search(path.read_text()), f"{here(path)} is never run"
    recipe = rf"-m {part} tests/{folder}$"
    assert re.search(recipe, (ROOT / "Makefile").read_text(), re.MULTILINE)


if __name__ == "__main__":
    print(", ".join(f"{count} {name}" for name, count in graph().items()))
