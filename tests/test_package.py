"""The wheel, installed into an environment of its own and used from an empty folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement

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


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment: `run(*words)` runs a program of it in an empty folder, without PYTHONPATH.

    Dependencies are those of this environment. A .pth file names its site-packages; .pth files in
    there, and with them editable installs, are not followed.
    """
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    python = home / "env/bin/python"
    words = ["--python", str(python), "install", "-q", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    site = next((home / "env/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    here = home / "empty"
    here.mkdir()
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1"}

    def start(program, *words, cwd=here):
        return subprocess.Popen(
            [home / "env/bin" / program, *words],
            cwd=cwd,
            env=environment,
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


def test_the_sandbox_is_checked_with_the_packaged_suite(installed, tmp_path):
    code = "from veriloop.stages.commands.sandbox import SUITE; print(SUITE)"
    packaged = Path(installed.run("python", "-c", code).strip())
    assert packaged.is_relative_to(installed.site)
    suite = shutil.copytree(packaged, tmp_path / "suite")
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = (suite / name).read_text().splitlines(keepends=True)
        single = [row for row in rows if "run_after" not in row and "run_beside" not in row]
        (suite / name).write_text("".join(single[::20]))
    out = installed.run("veriloop", "sandbox", "check", "--suite", str(suite), "--allow-reduced")
    assert "honest programs: " in out


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


BLOCKER = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
TRAINING_MODULES = [  # what the extra `train` installs, and numpy's and pyarrow's users
    "datasets", "huggingface_hub", "jinja2", "pandas", "plotly", "pyarrow", "safetensors",
    "tensorboard", "tokenizers", "torch", "transformers", "trl", "vllm",
]  # fmt: skip


@pytest.fixture
def core(installed, tmp_path):
    """The installed environment without the packages of the extra `train`: `run(*words)`."""
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(BLOCKER.format(blocked=TRAINING_MODULES))

    def run(program, *words, cwd=tmp_path, code=0):
        done = subprocess.run(
            [installed.site.parents[2] / "bin" / program, *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(blocker)},
            text=True,
            capture_output=True,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_the_core_verifies_checks_and_lists_without_torch(core, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"response": "\\\\boxed{5}", "gold": "5"}\n')
    assert '"score": 1.0' in core("veriloop", "verify", "rows.jsonl", "--verifier", "math_answer")
    core("veriloop", "verifier", "new", "parity")
    assert "latency" in core("veriloop", "verifier", "check", "parity", "--plugin", "parity.py")
    assert "tiny/zero" in core("veriloop", "recipes", "ls")
    assert "run folder" in core("veriloop", "zero", "tiny/zero", "--dry-run")
    adapters = "trl", "verl", "openrlhf", "nemo_rl", "areal", "skyrl"
    core("python", "-c", "".join(f"import veriloop.verifiers.adapters.{a};" for a in adapters))
    core("python", "-c", "import veriloop.verifiers.service.server, veriloop.sandbox.backends")


def test_a_command_that_needs_more_than_the_core_names_the_extra(core):
    (message,) = core("veriloop", "zero", "tiny/zero", code=2).splitlines()[-1:]
    assert message.endswith("install it with pip install 'veriloop[train]'")


def test_the_core_requires_no_training_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {
        "train",
        "vllm",
        "trackers",
        "gym",
        "ifeval",
        "math-verify",
        "docs",
    }
    core = {Requirement(line).name for line in project["dependencies"]}
    assert not core & {"torch", "transformers", "datasets", "numpy", "tokenizers", "pyarrow"}


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
