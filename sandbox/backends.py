"""Opens an executor by the name of its backend."""

import importlib
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from veriloop.sandbox.executor import Executor
from veriloop.sandbox.probe import SandboxUnavailableError, choose_tier, probe

VARIABLE = "VERILOOP_SANDBOX"  # environment variable with the default setting
TOKEN_VARIABLE = "VERILOOP_SANDBOX_TOKEN"  # token of a remote server
AUTO = "auto"  # the setting of the environment variable, else "namespace"; never another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A backend; its executor is imported on demand."""

    executor: str  # module:class
    description: str
    address: str = ""  # name of the part after the colon; "": none
    options: Mapping[str, Any] = field(default_factory=dict)


BACKENDS = {
    "namespace": Backend(
        executor="veriloop.sandbox.namespace.pool:NamespaceExecutor",
        description="namespaces of this machine; refused if it has none",
    ),
    "reduced": Backend(
        executor="veriloop.sandbox.namespace.pool:NamespaceExecutor",
        description="namespaces of this machine, or Landlock and seccomp if it has none",
        options={"allow_reduced": True},
    ),
    "docker": Backend(
        executor="veriloop.sandbox.docker.pool:DockerExecutor",
        description="containers of this machine's Docker engine",
    ),
    "remote": Backend(
        executor="veriloop.sandbox.remote.client:RemoteExecutor",
        description="a SandboxFusion-compatible server",
        address="URL",
    ),
}


def open_backend(setting: str, slots: int | None = None) -> Executor:
    """The executor of a setting such as "namespace" or "remote:http://127.0.0.1:8080".

    `slots`: concurrent executions; None: the backend's default. Raises ValueError for an invalid
    setting, SandboxUnavailableError if the backend's isolation or a package is not available; it
    lists the other backends, none of which is used instead.
    """
    name, _, address = resolve(setting).partition(":")
    backend = BACKENDS[name]
    module, _, executor_class = backend.executor.partition(":")
    try:
        executor = getattr(importlib.import_module(module), executor_class)
    except ModuleNotFoundError as error:
        raise SandboxUnavailableError(f"backend {name!r} cannot be used: {error}") from error
    options = dict(backend.options)
    if backend.address and os.environ.get(TOKEN_VARIABLE):
        options["token_variable"] = TOKEN_VARIABLE
    try:
        return executor(*([address] if backend.address else []), slots=slots, **options)
    except SandboxUnavailableError as refusal:
        raise SandboxUnavailableError(f"{refusal}\n{_alternatives(name)}") from refusal


def resolve(setting: str = AUTO) -> str:
    """The setting of a backend, without "auto". Raises ValueError for an invalid one."""
    if setting == AUTO:
        setting = os.environ.get(VARIABLE) or AUTO
    return "namespace" if setting == AUTO else check(setting)


def check(setting: str) -> str:
    """The setting. Raises ValueError for one that `open_backend` does not know."""
    if setting == AUTO:
        return setting
    name, colon, address = setting.partition(":")
    forms = _forms()
    known = ", ".join([AUTO, *forms.values()])
    if name not in BACKENDS:
        close = get_close_matches(name, [AUTO, *BACKENDS], n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no backend {setting!r}.{hint} Known: {known}")
    backend = BACKENDS[name]
    if bool(backend.address) != bool(address) or (colon and not backend.address):
        raise ValueError(f"backend {setting!r} must be written {forms[name]}. Known: {known}")
    return setting


def describe(setting: str = AUTO) -> dict[str, Any]:
    """What a run records of a backend, without opening it: the setting, the tier (0: unknown), and
    by name the layers in use, or the id of the image. Raises what `open_backend` raises."""
    setting = resolve(setting)
    name = setting.partition(":")[0]
    facts: dict[str, Any] = {"backend": setting, "tier": 0}
    try:
        if name in ("namespace", "reduced"):
            tier = choose_tier(probe(), None, name == "reduced")
            return facts | {"tier": tier, "layers": probe().layers_in_use(tier)}
        if name == "docker":
            return facts | {"tier": 1, "image": _image()}
    except SandboxUnavailableError as refusal:
        raise SandboxUnavailableError(f"{refusal}\n{_alternatives(name)}") from refusal
    return facts


def _image() -> str:
    engine = importlib.import_module("veriloop.sandbox.docker.engine")
    with closing(engine.connect()) as client:
        return engine.find_image(client, None)


def _forms() -> dict[str, str]:
    """How each setting is written, by name of the backend."""
    return {key: f"{key}:{b.address}" if b.address else key for key, b in BACKENDS.items()}


def _alternatives(name: str) -> str:
    """How to choose another backend than `name`."""
    forms = _forms()
    rows = [f"  {forms[key]}: {b.description}" for key, b in BACKENDS.items() if key != name]
    ways = f"sandbox.backend of the recipe, --backend, or {VARIABLE}"
    return "\n".join([f"To choose another backend, set {ways} to one of:", *rows])
