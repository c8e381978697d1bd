"""Which isolation this machine can give. Too little is refused, with the table that says why."""

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sandbox.namespace import interpreter
from sandbox.namespace.interpreter import ENVIRONMENT, Interpreter

Way = Literal["root", "user"]
_LIMIT_S = 30


class SandboxUnavailableError(RuntimeError):
    """The isolation that was asked for is not to be had here; the message is the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    name: str
    works: bool
    detail: str = ""  # why not, or which


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What was tried and what it amounts to.

    Tier 1: namespaces, a private file tree, seccomp. Tier 2: Landlock and seccomp around a single
    process. Tier 0: neither; nothing may run.
    """

    layers: tuple[Layer, ...]
    tier: Literal[0, 1, 2]
    way: Way  # how namespaces are entered: with root's privileges, or with an ordinary user's
    python: Interpreter | None

    @property
    def cgroup(self) -> bool:
        """Whether memory and tasks can be bounded for several processes together."""
        return self.works("cgroup memory+pids")

    def works(self, name: str) -> bool:
        """Whether the layer of that name works. Raises KeyError for a name not in the table."""
        return {layer.name: layer.works for layer in self.layers}[name]

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        rows = [
            f"  {layer.name.ljust(width)}  {'yes' if layer.works else 'no '}  {layer.detail}"
            for layer in self.layers
        ]
        what = {
            1: "tier 1 (namespaces)",
            2: "tier 2 (Landlock and seccomp, one process)",
            0: "no tier: refused",
        }[self.tier]
        return "\n".join([f"sandbox: {what}", *(row.rstrip() for row in rows)])


@cache
def probe() -> Probe:
    """Try everything once, in processes of their own."""
    try:
        python = interpreter.find()
        tried = _try_all(python)
    except (OSError, ValueError, subprocess.SubprocessError) as failure:
        layer = Layer(name="python", works=False, detail=str(failure))
        return Probe(layers=(layer,), tier=0, way="user", python=None)
    return judged(tried, python)


def judged(tried: dict[str, Any], python: Interpreter) -> Probe:
    """The table and the tier that follow from what `sandbox.namespace.trial` printed."""
    outcomes: dict[str, str] = tried["outcomes"]
    layers = [Layer(name=name, works=not why, detail=why) for name, why in outcomes.items()]
    layers = [_with_abi(layer, tried["landlock abi"]) for layer in layers]
    grouped, told = tried["cgroup"], tried["cgroup detail"]
    layers.append(Layer(name="cgroup memory+pids", works=grouped, detail=told))
    layers.append(Layer(name="python", works=True, detail=python.path))
    works = {layer.name: layer.works for layer in layers}
    needed = works["seccomp"] and works["pidfd"]
    tree = works["file tree as root"] or works["file tree as user"]
    tier = 0 if not needed else 1 if tree else 2 if works["landlock"] else 0
    way = "root" if works["file tree as root"] else "user"
    return Probe(layers=tuple(layers), tier=tier, way=way, python=python)


def _with_abi(layer: Layer, abi: int) -> Layer:
    if layer.name == "landlock" and layer.works:
        return Layer(name=layer.name, works=True, detail=f"ABI {abi}")
    return layer


def _try_all(python: Interpreter) -> dict[str, Any]:
    command = python.command("sandbox.namespace.trial", json.dumps(python.read_only))
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_S, env=ENVIRONMENT, cwd="/"
    )
    if ran.returncode:
        raise OSError(f"the probe failed: {ran.stderr.strip()[-400:]}")
    return json.loads(ran.stdout)
