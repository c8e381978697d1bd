"""Environments for scripts inside peers, with a copy of our code or of a checkpoint and one fault.

An environment is created once under outputs/cache, from pins and without dependencies, and uses the
project's packages for what it lacks.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from publish import ROOT

INSIDE = ROOT / "benchmarks/inside"
MARK = "claims: "  # as benchmarks/inside/claims.py prints it
EXPECTED = "expected.json"  # in a checkpoint: what our own code makes of it
LIMIT_S = 900
PACKAGE = ROOT / "src/veriloop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A replacement of one text in a copy of our code or of the checkpoint."""

    what: str
    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    script: str
    faults: tuple[Fault, ...]
    needs: str = ""  # a file of requirements, or the project's own environment
    given: tuple[str, ...] = ()  # arguments: {root}, {url}, {zero_url}, {checkpoint}, {expected}
    with_ours: bool = True  # our code can be imported


class PeerError(RuntimeError):
    """A peer's environment could not be created, or its script failed."""


def python_of(peer: Peer) -> str:
    """The interpreter of the peer's environment, which is created if missing."""
    if not peer.needs:
        return sys.executable
    pins = ROOT / "requirements" / peer.needs
    home = home_of(peer)
    python, site_packages = (
        home / "bin/python",
        home / sysconfig.get_path("purelib", vars={"base": ""})[1:],
    )
    if not (home / "complete").exists():
        venv = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)]
        subprocess.run(venv, check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
        done = subprocess.run([*pip, "--no-cache-dir", "-r", str(pins)], check=False)
        if done.returncode:
            raise PeerError(f"{pins.name} does not install here")
        (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (home / "complete").touch()
    return str(python)


def home_of(peer: Peer) -> Path:
    """The folder of the environment, which depends on the pins."""
    pins = (ROOT / "requirements" / peer.needs).read_bytes()
    return ROOT / f"outputs/cache/{Path(peer.needs).stem}-{sha256(pins).hexdigest()[:12]}"


def copy_of(folder: Path, checkpoint: Path | None, fault: Fault | None) -> Path:
    """A tree with a copy of the verifiers, links to other code, the checkpoint and one fault."""
    package = folder / "src/veriloop"
    package.mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.name not in ("verifiers", "__pycache__"):
            (package / path.name).symlink_to(path.resolve())
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "verifiers", folder / "verifiers", ignore=ignored)
    (package / "verifiers").symlink_to(folder / "verifiers")
    if checkpoint:
        shutil.copytree(checkpoint, folder / "checkpoint")
    if fault:
        path = folder / fault.file
        text = path.read_text()
        if fault.old not in text:
            raise PeerError(f"{fault.file} does not have what {fault.what!r} changes: {fault.old}")
        path.write_text(text.replace(fault.old, fault.new))
    return folder


def environment(*paths: Path) -> dict[str, str]:
    """Environment variables for a child: its import path, one thread, no other settings of ours."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("VERILOOP_")}
    return kept | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0",
    }  # fmt: skip


def claims_of(peer: Peer, root: Path, urls: Mapping[str, str]) -> dict[str, Any]:
    """The claims of the peer's script about the code and the checkpoint at `root`. Raises
    PeerError."""
    held = root / "checkpoint"
    places = {"root": root, "checkpoint": held, "expected": held / EXPECTED, **urls}
    words = [python_of(peer), str(INSIDE / peer.script)]
    words += [word.format(**places) for word in peer.given]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                words, cwd=folder, env=environment(*[root / "src"] * peer.with_ours),
                capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise PeerError(f"{peer.script}: no end in {LIMIT_S} s") from late
    claims = [line for line in done.stdout.split("\n") if line.startswith(MARK)]
    if done.returncode or not claims:
        raise PeerError(f"{peer.script} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(claims[-1].removeprefix(MARK))


def noticed(peer: Peer, root: Path, urls: Mapping[str, str]) -> bool:
    """Whether a claim about the code at `root` fails."""
    try:
        return not all(claim["holds"] for claim in claims_of(peer, root, urls)["claims"])
    except PeerError:
        return True
