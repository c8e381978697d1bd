"""Checks of what can run untrusted programs: the layers of the sandbox, and Docker."""

from collections.abc import Iterator

from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped, warn
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.sandbox import probe
from veriloop.sandbox.docker import engine
from veriloop.sandbox.probe import SandboxUnavailableError

_USERS = "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000"
_CONTAINER = "start the container with --security-opt seccomp=unconfined, or run as root outside"
FIXES = {  # by layer
    "user namespace": _USERS,
    "mount namespace": _CONTAINER,
    "pid namespace": _CONTAINER,
    "net namespace": _CONTAINER,
    "ipc namespace": _CONTAINER,
    "file tree as root": "run as root; only needed if the file tree as user fails",
    "file tree as user": _USERS,
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER",
    "landlock": "use a kernel from 5.13 on with landlock in its lsm= list",
    "pidfd": "use a kernel from 5.3 on",
    "cgroup memory+pids": "run as root, or in systemd-run --user --scope -p Delegate=yes",
    "python": "install /usr/bin/python3",
}
NEEDED = ("seccomp", "pidfd", "python")  # no program runs without these
_ELSEWHERE = "run on Linux, or use --backend docker or remote:URL"


def sandbox_layers(machine: Machine) -> Iterator[Finding]:
    """The tier, which decides what may run, then each layer."""
    del machine
    result = probe.probe()
    fix = "fix the layers below until a file tree is ok, or use --backend docker"
    if result.tier == 1:
        yield ok("sandbox", f"tier 1: namespaces, entered as {result.way}", 1)
    elif result.tier == 2:
        measured = "tier 2: Landlock and seccomp around one process; only --backend reduced"
        yield warn("sandbox", measured, fix, 2)
    else:
        yield fail("sandbox", "no tier: programs are refused", fix, 0)
    for restriction in result.restrictions:
        setting = f"{restriction.setting} = {restriction.value}"
        yield warn("sandbox, setting", setting, restriction.fix)
    for layer in result.layers:
        name, measured = f"sandbox, {layer.name}", layer.detail or "works"
        layer_fix = FIXES.get(layer.name, _ELSEWHERE)
        if layer.works:
            yield ok(name, measured)
        elif layer.name in NEEDED:
            yield fail(name, measured, layer_fix)
        else:
            yield skipped(name, measured, layer_fix)


def docker(machine: Machine) -> Iterator[Finding]:
    """Whether a daemon answers and has the image; only `--backend docker` needs them."""
    try:
        client = engine.connect()
    except SandboxUnavailableError as refusal:
        start = "sh requirements/docker.sh" if machine.requirements else "start a Docker daemon"
        reason = str(refusal).splitlines()[0]
        yield skipped("docker", reason, f"{start}; needed for --backend docker only")
        return
    try:
        measured = f"engine {client.version()['Version']}"
        try:
            engine.find_image(client, None)
        except SandboxUnavailableError as refusal:
            yield warn("docker", f"{measured}, but {str(refusal).splitlines()[0]}", engine.BUILD)
            return
        yield ok("docker", f"{measured}, with the veriloop image")
    finally:
        client.close()
