"""Detects which isolation this machine supports; insufficient isolation is refused with a table."""

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from veriloop.sandbox import host, interpreter
from veriloop.sandbox.host import Restriction
from veriloop.sandbox.interpreter import ENVIRONMENT, Interpreter

Way = Literal["root", "user"]
_LIMIT_S = 30


class SandboxUnavailableError(RuntimeError):
    """The requested isolation is not available here; the message contains the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of isolation and whether it works."""

    name: str
    works: bool
    detail: str = ""  # the error, or the variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The tested layers and the resulting tier.

    Tier 1: namespaces, a private file tree, seccomp. Tier 2: Landlock and seccomp around a single
    process. Tier 0: neither; all programs are refused.
    """

    layers: tuple[Layer, ...]
    tier: Literal[0, 1, 2]
    way: Way  # privileges with which namespaces are entered
    python: Interpreter | None
    restrictions: tuple[Restriction, ...] = ()  # settings of this machine that forbid tier 1

    @property
    def cgroup(self) -> bool:
        """Whether memory and tasks of several processes can be limited together."""
        return self.works("cgroup memory+pids")

    @property
    def first_failure(self) -> str:
        """The first layer that does not work and why; "" if all work."""
        failures = (f"{layer.name}: {layer.detail}" for layer in self.layers if not layer.works)
        return next(failures, "")

    def layers_in_use(self, tier: int) -> dict[str, str]:
        """The working layers that a tier uses, with their variants."""
        other = "user" if self.way == "root" else "root"
        unused = {"landlock", f"file tree as {other}"}
        if tier == 2:
            names = {layer.name for layer in self.layers if layer.name.endswith("namespace")}
            unused = {*names, "file tree as root", "file tree as user"}
        layers = [layer for layer in self.layers if layer.works and layer.name not in unused]
        return {layer.name: layer.detail for layer in layers}

    def works(self, name: str) -> bool:
        """Whether the named layer works. Raises KeyError for a name not in the table."""
        return {layer.name: layer.works for layer in self.layers}[name]

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        rows = [
            f"  {layer.name.ljust(width)}  {'yes' if layer.works else 'no '}  {layer.detail}"
            for layer in self.layers
        ]
        tier = {
            1: "tier 1 (namespaces)",
            2: "tier 2 (Landlock and seccomp, one process)",
            0: "no tier: refused",
        }[self.tier]
        if self.restrictions:
            rows += ["settings that forbid namespaces:", *(f"  {r}" for r in self.restrictions)]
        return "\n".join([f"sandbox: {tier}", *(row.rstrip() for row in rows)])


def probe() -> Probe:
    """Test every layer, once per process; a self-test that fails to end is tried again next time.

    Without the calls of Linux nothing else is tested.
    """
    try:
        return _tested()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        layer = Layer(name="python", works=False, detail=str(error))
        return Probe(layers=(layer,), tier=0, way="user", python=None)


@cache
def _tested() -> Probe:
    needed = host.requirements()
    if not all(requirement.present for requirement in needed):
        layers = [Layer(name=r.name, works=r.present, detail=r.detail) for r in needed]
        return Probe(layers=tuple(layers), tier=0, way="user", python=None)
    python = interpreter.find()
    return build_probe(_run_selftest(python), python)


def build_probe(outcome: dict[str, Any], python: Interpreter) -> Probe:
    """The layers and the tier from the output of `sandbox.namespace.selftest`."""
    errors: dict[str, str] = outcome["errors"]
    details: dict[str, str] = outcome["details"]
    layers = [
        Layer(name=name, works=not error, detail=error or details.get(name, ""))
        for name, error in errors.items()
    ]
    grouped, detail = outcome["cgroup"], outcome["cgroup detail"]
    layers.append(Layer(name="cgroup memory+pids", works=grouped, detail=detail))
    layers.append(Layer(name="python", works=True, detail=str(python)))
    works = {layer.name: layer.works for layer in layers}
    required = works["seccomp"] and works["pidfd"]
    tree = works["file tree as root"] or works["file tree as user"]
    tier = 0 if not required else 1 if tree else 2 if works["landlock"] else 0
    way = "root" if works["file tree as root"] else "user"
    causes = () if tier == 1 else tuple(host.restrictions())
    return Probe(layers=tuple(layers), tier=tier, way=way, python=python, restrictions=causes)


def choose_tier(probe: Probe, required: int | None, allow_reduced: bool) -> int:
    """The tier to run at. Raises SandboxUnavailableError with the probe's table if it is not
    available; a lower tier is never chosen silently."""
    if required not in (None, 1, 2):
        raise ValueError(f"tier must be 1, 2 or None, got {required}")
    if required == 2 and probe.tier and probe.works("landlock"):
        return 2
    if probe.tier == 1 and required != 2:
        return 1
    reduced = probe.tier == 2 and required is None
    if reduced and allow_reduced:
        return 2
    hint = "; allow_reduced=True would accept tier 2" if reduced else ""
    cause = f" ({probe.first_failure})" if probe.first_failure else ""
    raise SandboxUnavailableError(
        f"tier {required or 1} is not available here{cause}{hint}\n{probe}"
    )


def _run_selftest(python: Interpreter) -> dict[str, Any]:
    command = python.command("namespace.selftest", json.dumps(python.read_only))
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_S, env=ENVIRONMENT, cwd="/"
    )
    if process.returncode:
        raise OSError(f"the probe failed: {process.stderr.strip()[-400:]}")
    return json.loads(process.stdout)
