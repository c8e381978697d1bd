"""The one place where the name of a backend becomes an executor."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from sandbox.executor import Executor
from sandbox.probe import SandboxUnavailableError

VARIABLE = "VERILOOP_SANDBOX"  # of the environment: the setting, where no other way is given
TOKEN_VARIABLE = "VERILOOP_SANDBOX_TOKEN"  # what a remote server asks for, if it asks
DEFAULT = "namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where the executor is, imported when it is asked for, and what its setting says."""

    executor: str  # module:class
    told: str
    address: str = ""  # what stands after the colon; "": nothing may
    options: Mapping[str, Any] = field(default_factory=dict)


BACKENDS = {
    "namespace": Backend(
        executor="sandbox.namespace.pool:NamespaceExecutor",
        told="namespaces of this machine; refused where it makes none",
    ),
    "reduced": Backend(
        executor="sandbox.namespace.pool:NamespaceExecutor",
        told="the same, or Landlock and seccomp where that is all there is",
        options={"allow_reduced": True},
    ),
    "docker": Backend(
        executor="sandbox.docker.pool:DockerExecutor",
        told="containers of this machine's Docker engine",
    ),
    "remote": Backend(
        executor="sandbox.remote.client:RemoteExecutor",
        told="a SandboxFusion-compatible server",
        address="URL",
    ),
}


def open_backend(setting: str, slots: int | None = None) -> Executor:
    """The executor that a setting names, as "namespace" or "remote:http://127.0.0.1:8080".

    `slots`: executions at a time; None: as many as the backend thinks fit.
    Raises ValueError for a setting that names none, SandboxUnavailableError where the backend's
    isolation, or a package it needs, is not to be had here.
    """
    name, colon, address = setting.partition(":")
    found = _found(setting, name, bool(colon), address)
    module, _, kind = found.executor.partition(":")
    try:
        executor = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError as missing:
        raise SandboxUnavailableError(f"backend {name!r} cannot be used: {missing}") from missing
    options = dict(found.options)
    if found.address and os.environ.get(TOKEN_VARIABLE):
        options["token_variable"] = TOKEN_VARIABLE
    return executor(*([address] if found.address else []), slots=slots, **options)


def _found(setting: str, name: str, colon: bool, address: str) -> Backend:
    known = ", ".join(f"{one}:{of.address}" if of.address else one for one, of in BACKENDS.items())
    if name not in BACKENDS:
        close = get_close_matches(name, BACKENDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no backend {setting!r}.{hint} Known: {known}")
    found = BACKENDS[name]
    if bool(found.address) != bool(address) or (colon and not found.address):
        must = f"{name}:{found.address}" if found.address else name
        raise ValueError(f"backend {setting!r} must be written {must}. Known: {known}")
    return found
