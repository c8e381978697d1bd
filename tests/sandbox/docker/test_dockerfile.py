"""The image of the whole package, built from the committed Dockerfile and used.

Its base has this machine's Python and the packages of the core, so that nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from docker.errors import BuildError, ContainerError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from veriloop.sandbox.docker import rootfs
from veriloop.stages.commands.sandbox import SUITE

ROOT = Path(__file__).parents[3]
PACKAGES = "/packages"  # in the base
OFFLINE = "--no-index --no-deps --no-build-isolation"
WRITE = "import sys; from veriloop.sandbox.docker import rootfs; rootfs.write(sys.stdout.buffer)"
pytestmark = [pytest.mark.docker, pytest.mark.slow]


def core_distributions():
    """What the core depends on, and what builds its wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo, known = ["pip", "setuptools", *project["dependencies"]], {}
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        here = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if here and name not in known:
            known[name] = metadata.distribution(name)
            todo += known[name].requires or []
    assert "torch" not in known and len(known) > 20
    return known.values()


def add_packages(tar):
    """Add the packages, and the libraries of their modules."""
    modules, present = [], set(tar.getnames())
    for distribution in core_distributions():
        for file in distribution.files or []:
            path = str(distribution.locate_file(file))
            if ".." not in file.parts and "__pycache__" not in file.parts:
                tar.add(path, f"{PACKAGES[1:]}/{file}")
                modules += [path] if ".so" in path else []
    site = os.path.realpath(sysconfig.get_path("purelib"))  # whose own are among the files
    libraries = {path for path in rootfs._libraries(modules) if not path.startswith(site)}
    for library in sorted(libraries - {f"/{name}" for name in present}):
        tar.add(library, library[1:])


@pytest.fixture
def base(engine, tmp_path):
    """An image with python3, pip, a shell and the packages."""
    tag, python = f"veriloop-base:of-test-{os.getpid()}", os.path.realpath(sys.executable)
    path = tmp_path / "base.tar"
    environment = os.environ | {"VERILOOP_SANDBOX_PYTHON": python}
    with path.open("wb") as file:
        subprocess.run([sys.executable, "-c", WRITE], stdout=file, env=environment, check=True)
    with tarfile.open(path, "a", dereference=True) as tar:
        tar.add(os.path.realpath("/bin/sh"), "usr/bin/sh")
        link = tarfile.TarInfo("usr/local/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, python
        tar.addfile(link)
        add_packages(tar)
    repository, _, name = tag.partition(":")
    changes = [f"ENV PYTHONPATH={PACKAGES}"]
    engine.api.import_image_from_file(str(path), repository=repository, tag=name, changes=changes)
    path.unlink()
    yield tag
    engine.images.remove(tag, force=True)


def built(engine, base, tag, **arguments):
    arguments = {"BASE": base, "EXTRAS": "", "PIP_FLAGS": OFFLINE, **arguments}
    engine.images.build(
        path=str(ROOT), tag=tag, buildargs=arguments, rm=True, forcerm=True, network_mode="none"
    )


@pytest.fixture
def veriloop(engine, base):
    """Function: what a command prints in a container of the image."""
    tag = f"veriloop:of-test-{os.getpid()}"
    built(engine, base, tag)

    def run(*words, **options):
        return engine.containers.run(
            tag, list(words), remove=True, network_mode="none", stderr=True, **options
        ).decode()

    yield run
    engine.images.remove(tag, force=True)


@pytest.fixture
def mounted(tmp_path):
    """A small part of the suite, and responses, where a container reads them."""
    suite = shutil.copytree(SUITE, tmp_path / "work/suite")
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = (suite / name).read_text().splitlines(keepends=True)
        single = [row for row in rows if "run_after" not in row and "run_beside" not in row]
        (suite / name).write_text("".join(single[::30]))
    (tmp_path / "work/rows.jsonl").write_text('{"response": "\\\\boxed{5}", "gold": "5"}\n')
    return {str(tmp_path / "work"): {"bind": "/work", "mode": "ro"}}


def refuses_another_engine(engine, base):
    with pytest.raises(BuildError) as failed:
        built(engine, base, "veriloop:never", ENGINE="gpu")
    log = "".join(line.get("stream", "") for line in failed.value.build_log)
    assert "ENGINE=gpu: must be none, cpu or cuda" in log


def has_its_commands(veriloop, mounted):
    assert "veriloop [-h] [--version] COMMAND" in veriloop()
    assert veriloop("--version").startswith("veriloop ")


def verifies_responses(veriloop, mounted):
    told = veriloop("verify", "rows.jsonl", "--verifier", "math_answer", volumes=mounted)
    assert '"score": 1.0' in told


def plans_a_stage(veriloop, mounted):
    told = veriloop("zero", "tiny/zero", "--dry-run")
    assert "40 prompts x 16 responses = 640" in told and "run folder" in told


def holds_the_sandbox_where_it_may_have_namespaces(veriloop, mounted):
    words = ["sandbox", "check", "--suite", "suite", "--backend", "namespace"]
    told = veriloop(*words, volumes=mounted, security_opt=["seccomp=unconfined"])
    assert "sandbox: tier 1" in told and "honest programs: " in told


def says_why_where_it_may_not(veriloop, mounted):
    words = ["sandbox", "check", "--suite", "suite"]
    with pytest.raises(ContainerError, match="--security-opt seccomp=unconfined"):
        veriloop(*words, volumes=mounted)
    told = veriloop(*words, "--backend", "reduced", volumes=mounted)
    assert "sandbox: tier 2" in told and "honest programs: " in told


def holds_only_what_the_package_is_built_from(veriloop, mounted):
    code = "import os; print(os.listdir('/usr/src/veriloop'))"
    told = veriloop("-c", code, entrypoint="python3")
    assert "pyproject.toml" in told and "'docs'" not in told and "'.git'" not in told


def test_the_committed_dockerfile_builds_an_image_that_works(engine, base, veriloop, mounted):
    """One test, as building takes most of the time and test processes would each build."""
    refuses_another_engine(engine, base)
    has_its_commands(veriloop, mounted)
    verifies_responses(veriloop, mounted)
    plans_a_stage(veriloop, mounted)
    holds_the_sandbox_where_it_may_have_namespaces(veriloop, mounted)
    says_why_where_it_may_not(veriloop, mounted)
    holds_only_what_the_package_is_built_from(veriloop, mounted)
