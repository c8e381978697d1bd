"""The wheel, installed into an environment of its own and used from an empty folder."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from functools import cache
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import core_alone
from veriloop.pipeline.config.load import FOLDER, read, shipped
from veriloop.pipeline.runs.record import StageRecord

ROOT = Path(__file__).parents[1]
PACKAGED_TESTS = ("veriloop/attack_suite/",)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Path of the wheel, built from a copy so that no earlier build/ folder gets into it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src")
    stale = source / "src/veriloop/attack_suite/__pycache__"
    stale.mkdir(exist_ok=True)
    (stale / "stale.cpython-311.pyc").write_bytes(b"")
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(source / "dist"), "."]
    subprocess.run([sys.executable, "-m", "pip", *words], cwd=source, check=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


def install(wheel, home):
    """Makes an environment with the wheel alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    words = ["--python", str(home / "bin/python"), "install", "-q", "--no-deps", str(wheel)]
    # With src/ on its path pip would find the editable install and leave the wheel out.
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env=outside())


def outside():
    """The environment variables of a shell that knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"OMP_NUM_THREADS": "1"}


def sampled(suite, folder):
    """A copy of a suite of the sandbox with every twentieth of its programs."""
    suite = shutil.copytree(suite, folder / "suite")
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = (suite / name).read_text().splitlines(keepends=True)
        single = [row for row in rows if "run_after" not in row and "run_beside" not in row]
        (suite / name).write_text("".join(single[::20]))
    return suite


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment: `run(*words)` runs a program of it in an empty folder, without PYTHONPATH.

    Dependencies are those of this environment. A .pth file names its site-packages; .pth files in
    there, and with them editable installs, are not followed.
    """
    home = tmp_path_factory.mktemp("installed")
    install(wheel, home / "env")
    site = next((home / "env/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    here = home / "empty"
    here.mkdir()

    def start(program, *words, cwd=here):
        return subprocess.Popen(
            [home / "env/bin" / program, *words],
            cwd=cwd,
            env=outside(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(program, *words, cwd=here, codes=(0,)):
        process = start(program, *words, cwd=cwd)
        out, err = process.communicate(timeout=300)
        assert process.returncode in codes and "Traceback" not in err, err
        return out

    return SimpleNamespace(run=run, start=start, site=site, here=here)


def test_the_wheel_holds_no_tests_and_no_bytecode(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "veriloop/py.typed" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    parts = [Path(name) for name in names if not name.startswith(PACKAGED_TESTS)]
    assert not [path for path in parts if path.name.startswith(("test_", "conftest"))]
    assert {path.parts[0] for path in parts} == {"veriloop", "veriloop-0.1.0.dist-info"}


def test_it_is_the_installed_copy_that_is_imported(installed):
    out = installed.run("python", "-c", "import veriloop; print(veriloop.__file__)")
    assert Path(out.strip()).is_relative_to(installed.site)


def test_all_recipes_are_there_and_one_dry_runs(installed, tmp_path):
    names = [line.split()[0] for line in installed.run("veriloop", "recipes", "ls").splitlines()]
    assert names == [p.relative_to(FOLDER).with_suffix("").as_posix() for p in shipped()]
    assert "run folder" in installed.run("veriloop", "zero", "tiny/zero", "--dry-run")
    mine = shutil.copy(FOLDER / "tiny/zero.yaml", tmp_path / "mine.yaml")
    assert "run folder" in installed.run("veriloop", "zero", str(mine), "--dry-run")
    assert list(installed.here.iterdir()) == []


def test_the_service_starts_answers_and_stops(installed):
    process = installed.start("veriloop", "serve", "--port", "0", "--verifiers", "number")
    try:
        url = process.stdout.readline().partition(": ")[0]
        with urlopen(f"{url}/healthz", timeout=60) as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in err, err
    finally:
        process.kill()
        process.communicate()


def test_a_recorded_run_gets_its_report(installed, tmp_path):
    with StageRecord(tmp_path / "zero", tensorboard=False) as record:
        for step in range(1, 6):
            record.write_metrics(step, {"reward": 1.0 + step / 40, "grad_norm": 1.0})
    recipe = read("tiny/zero").model_dump(mode="json")
    stage = {"name": "zero", "status": "done", "seconds": 1.0, "before": {}, "after": {}}
    stage |= {"sampler": "torch", "inputs": {"recipe": recipe}, "outputs": {}}
    run = {"name": "run", "stages": [stage], "resumed": []}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert "report.html" in installed.run("veriloop", "report", str(tmp_path))
    assert "plotly" in (tmp_path / "report.html").read_text().lower()


def test_the_doctor_checks_the_machine(installed):
    out = installed.run("veriloop", "doctor", codes=(0, 1))
    assert " ok, " in out and " fail" in out


def required(lines):
    """{canonical name: distribution} of what requirement lines install, to the last one."""
    waiting, seen, needed = [(Requirement(line), {""}) for line in lines], set(), {}
    while waiting:
        requirement, extras = waiting.pop()
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name, asked = canonicalize_name(requirement.name), {"", *requirement.extras}
        if (name, frozenset(asked)) not in seen:
            seen.add((name, frozenset(asked)))
            needed[name] = distribution(name)
            waiting += [(Requirement(line), asked) for line in needed[name].requires or ()]
    return needed


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory):
    """Function: the folder of programs of an environment with the wheel and nothing that it, with
    these extras, does not require."""

    @cache
    def make(*extras):
        home = tmp_path_factory.mktemp("alone")
        install(wheel, home)
        site = next(home.glob("lib/python*/site-packages"))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        optional = project["optional-dependencies"]
        lines = project["dependencies"] + [line for extra in extras for line in optional[extra]]
        for package in required(lines).values():
            parts = {Path(file).parts[0] for file in package.files} - {"..", "__pycache__"}
            for part in parts - {path.name for path in site.iterdir()}:
                (site / part).symlink_to(package.locate_file(part))
        return home / "bin"

    return make


@pytest.fixture
def run_in(tmp_path):
    """Function: run a program of such a folder in an empty folder; returns what it prints."""

    def run(programs, program, *words, code=0):
        done = subprocess.run(
            [programs / program, *map(str, words)],
            cwd=tmp_path,
            env=outside(),
            text=True,
            capture_output=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_the_core_does_all_that_it_promises_without_any_other_package(alone, run_in, tmp_path):
    done = run_in(alone(), "python", ROOT / "scripts/core_alone.py", tmp_path)
    assert done.splitlines()[-1] == f"{len(core_alone.PROMISES)} of {len(core_alone.PROMISES)} hold"
    code = "from veriloop.stages.commands.sandbox import SUITE; print(SUITE)"
    suite = sampled(Path(run_in(alone(), "python", "-c", code).strip()), tmp_path)
    out = run_in(alone(), "veriloop", "sandbox", "check", "--suite", suite, "--allow-reduced")
    assert "honest programs: " in out


def test_a_command_that_needs_more_than_the_core_names_the_extra(alone, run_in):
    (message,) = run_in(alone(), "veriloop", "zero", "tiny/zero", code=2).splitlines()[-1:]
    assert message.endswith("install it with pip install 'veriloop[train]'")


def test_the_extra_train_trains_and_reports_without_any_other_package(
    alone, run_in, tmp_path, tiny_checkpoint
):
    words = ["--start", tiny_checkpoint(), "--output", "out", "--steps", 1]
    words += ["--rollout.prompts", 4, "--rollout.per-prompt", 4, "--rollout.max-tokens", 8]
    words += ["--evaluation.problems", 2, "--evaluation.samples", 1]
    said = run_in(alone("train"), "veriloop", "zero", "tiny/zero", *words)
    assert "checkpoint: out/zero/checkpoints/step_000001" in said
    assert (tmp_path / "out/report.html").is_file()
    (entry,) = json.loads((tmp_path / "out/run.json").read_text())["stages"]
    assert (entry["status"], entry["sampler"]) == ("done", "torch")


def test_the_core_requires_no_training_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {
        "train",
        "vllm",
        "ray",
        "trackers",
        "gym",
        "ifeval",
        "math-verify",
        "docs",
    }
    core = {Requirement(line).name for line in project["dependencies"]}
    assert not core & {"torch", "transformers", "datasets", "numpy", "tokenizers", "pyarrow"}


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {Requirement(line).name for line in lines} | {"yaml", "pydantic_core", "veriloop"}
    imported = {
        name.split(".")[0]
        for folder in ("data", "sandbox", "verifiers", "pipeline", "stages")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in named(node)
    }
    assert {"torch", "starlette", "huggingface_hub"} <= imported
    known = {name.replace("-", "_") for name in declared} | sys.stdlib_module_names
    assert not imported - known


def named(node):
    """The modules that a statement imports by an absolute name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module]
    return []


def test_modules_of_the_user_and_other_distributions_keep_their_names(installed, tmp_path):
    for name in ("data", "sandbox", "stages"):
        (tmp_path / f"{name}.py").write_text(f"OWNER = 'user: {name}'\n")
    package = installed.site / "verifiers"
    package.mkdir()
    (package / "__init__.py").write_text("OWNER = 'distribution: verifiers'\n")
    info = installed.site / "verifiers-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verifiers\nVersion: 9.9\n")
    (tmp_path / "script.py").write_text(
        "import data, sandbox, stages, verifiers\n"
        "import veriloop.data.problem, veriloop.verifiers.registry as registry\n"
        "print(*(module.OWNER for module in (data, sandbox, stages, verifiers)), sep='; ')\n"
        "problem = registry.get('number').problem({'value': '2'})\n"
        "print(registry.judge(problem, '<answer>2</answer>').score)\n"
    )
    out = installed.run("python", "script.py", cwd=tmp_path)
    assert out == "user: data; user: sandbox; user: stages; distribution: verifiers\n1.0\n"
