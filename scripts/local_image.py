"""Build the Dockerfile offline, from this machine's Python and this environment's packages.

    python scripts/local_image.py [--extras train] [--engine cpu] [--tag veriloop:local] [WORD ...]

The base image has the interpreter, its libraries and the installed packages that the build would
otherwise download; pip has no index, so that a requirement which is not met fails the build. Prints
seconds and sizes, and runs the command `veriloop WORD ...` in the image. Needs a Docker daemon.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "src"))

from packaging.requirements import Requirement  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402

from veriloop.sandbox.docker import rootfs  # noqa: E402
from veriloop.sandbox.docker.engine import connect  # noqa: E402

PACKAGES = "/packages"  # in the base
OFFLINE = "--no-index --no-build-isolation"
LOCKS = {"none": (), "cpu": ("locked", "engine-locked", "engine-cpu")}  # by engine
TOOLS = {"none": ("sh",), "cpu": ("sh", "lscpu")}  # vLLM asks the latter for the processors
WRITE = "import sys; from veriloop.sandbox.docker import rootfs; rootfs.write(sys.stdout.buffer)"
PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)
SPARE = 4  # free disk that a build needs, in sizes of its packages


def distributions(extras: Sequence[str] = (), engine: str = "none") -> list[metadata.Distribution]:
    """What the package and these extras depend on, what its wheel is built with, and the pins of
    the engine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [line for extra in extras for line in project["optional-dependencies"][extra]]
    todo: list[tuple[str, str]] = [
        (line, "") for line in ("pip", "setuptools", *project["dependencies"], *wanted)
    ]
    known: dict[tuple[str, str], metadata.Distribution] = {}
    while todo:
        line, extra = todo.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for part in ("", *requirement.extras):
            key = canonicalize_name(requirement.name), part
            if key not in known:
                known[key] = metadata.distribution(requirement.name)
                todo += [(line, part) for line in known[key].requires or []]
    locks = [(ROOT / f"requirements/{lock}.txt").read_text() for lock in LOCKS[engine]]
    pinned = {canonicalize_name(name) for text in locks for name in PINNED.findall(text)}
    needed = {name: package for (name, part), package in known.items() if not part}
    return [*needed.values(), *map(metadata.distribution, sorted(pinned - needed.keys()))]


def size_of(packages: Iterable[metadata.Distribution]) -> int:
    """Bytes of their files."""
    return sum(os.path.getsize(path) for package in packages for path, _ in _files(package))


@contextmanager
def base_image(
    engine: Any,
    tag: str,
    packages: Sequence[metadata.Distribution],
    tools: Sequence[str] = TOOLS["none"],
) -> Iterator[None]:
    """An image with python3, pip, these packages and tools while open.

    Raises OSError where Docker's disk has no room for it.
    """
    room, needed = os.statvfs(_docker_root(engine)), SPARE * size_of(packages)
    if (free := room.f_bavail * room.f_frsize) < needed:
        raise OSError(f"the image needs {needed >> 20} MiB of disk, {free >> 20} MiB are free")
    python = os.path.realpath(sys.executable)
    environment = os.environ | {"VERILOOP_SANDBOX_PYTHON": python}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.tar"
        with path.open("wb") as file:
            words = [sys.executable, "-c", WRITE]
            subprocess.run(words, stdout=file, env=environment, check=True)
        with tarfile.open(path, "a", dereference=True) as tar:
            programs = {tool: os.path.realpath(shutil.which(tool) or tool) for tool in tools}
            for tool, program in programs.items():
                tar.add(program, f"usr/bin/{tool}")
            link = tarfile.TarInfo("usr/local/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, python
            tar.addfile(link)
            _add(tar, packages, programs.values())
        repository, _, name = tag.partition(":")
        changes = [f"ENV PYTHONPATH={PACKAGES}"]
        engine.api.import_image_from_file(
            str(path), repository=repository, tag=name, changes=changes
        )
    try:
        yield
    finally:
        engine.images.remove(tag, force=True)


def build(engine: Any, base: str, tag: str, **arguments: str) -> None:
    """Build the Dockerfile from the base, without a network. Raises docker's BuildError."""
    arguments = {"BASE": base, "EXTRAS": "", "PIP_FLAGS": OFFLINE, **arguments}
    engine.images.build(
        path=str(ROOT), tag=tag, buildargs=arguments, rm=True, forcerm=True, network_mode="none"
    )


def _docker_root(engine: Any) -> str:
    """Where the daemon keeps images; / if that is on another machine."""
    folder = engine.info().get("DockerRootDir", "/")
    return folder if os.path.isdir(folder) else "/"


def _files(package: metadata.Distribution) -> Iterator[tuple[str, str]]:
    """The package's files: their paths, and their names in its folder."""
    for file in package.files or []:
        path = str(package.locate_file(file))
        if ".." not in file.parts and "__pycache__" not in file.parts and os.path.isfile(path):
            yield path, str(file)


def _add(
    tar: tarfile.TarFile, packages: Iterable[metadata.Distribution], programs: Iterable[str]
) -> None:
    """Add the packages, and the libraries of their modules and of programs."""
    modules, present = [*programs], set(tar.getnames())
    for package in packages:
        for path, name in _files(package):
            tar.add(path, f"{PACKAGES[1:]}/{name}")
            modules += [path] if ".so" in path else []
    site = os.path.realpath(sysconfig.get_path("purelib"))  # whose own are among the files
    libraries = {path for path in rootfs._libraries(modules) if not path.startswith(site)}
    for library in sorted(libraries - {f"/{name}" for name in present}):
        tar.add(library, library[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extras", default="train", help="of the package, by commas")
    parser.add_argument("--engine", default="none", choices=sorted(LOCKS))
    parser.add_argument("--tag", default="veriloop:local", help="of the image")
    parser.add_argument("words", nargs="*", help="of the command to run; none: --version")
    options = parser.parse_args()
    extras = [extra for extra in options.extras.split(",") if extra]
    engine, began = connect(), time.monotonic()
    packages = distributions(extras, options.engine)
    base = f"{options.tag}-base"
    with base_image(engine, base, packages, TOOLS[options.engine]):
        built = time.monotonic()
        build(engine, base, options.tag, EXTRAS=options.extras, ENGINE=options.engine)
    size = engine.images.get(options.tag).attrs["Size"]
    print(
        f"{len(packages)} packages: base {built - began:.0f} s, "
        f"build {time.monotonic() - built:.0f} s, {options.tag} has {size >> 20} MiB"
    )
    words = options.words or ["--version"]
    run = ["docker", "run", "--rm", "--network=none", options.tag, *words]
    return subprocess.run(run, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
