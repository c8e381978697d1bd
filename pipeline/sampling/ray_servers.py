"""vLLM servers that Ray places on machines, one actor for each. No other module imports ray."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.sampling.ports import reserved_port
from veriloop.pipeline.sampling.vllm_server import server_arguments

SERVER = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
GUARDIAN = (sys.executable, "-m", "veriloop.pipeline.sampling.guardian")
LOCAL = "local"  # a Ray cluster of this machine, for this run alone
REACHED_S = 5.0  # for a Ray cluster to accept a connection: ray itself tries for minutes
AGAIN_S = 10.0  # for an actor to name its address once it has run
RETRY_S = 1.0  # between two questions while no server has a place
LAST_WORDS = 500  # characters of the log of a server that ended
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # the routes for weights
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


class RayServers:
    """Servers for one run, which end with it. Ray starts an actor whose machine is lost elsewhere;
    an actor whose server has ended starts another one."""

    def __init__(
        self,
        cluster: ClusterConfig,
        config: SamplerConfig,
        checkpoint: str,
        *,
        max_length: int,
        say: Callable[[str], None],
        server: Sequence[str] = (),
    ) -> None:
        """`server`: the command without the arguments that follow from the recipe; (): vLLM's.

        Raises RecipeError if ray is not installed or the cluster is not reached.
        """
        samplers, self._wait_s, self._say = cluster.samplers, cluster.deadlines.sync_s, say
        arguments = server_arguments(config, checkpoint, max_length=max_length, gpus=samplers.gpus)
        environment = dict(ENVIRONMENT)
        if not samplers.gpus:
            environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        self._ray, self._joined = _connected(cluster.ray)
        actor = self._ray.remote(_ServerActor).options(
            num_cpus=1, num_gpus=samplers.gpus, max_restarts=-1
        )
        command = [*(server or SERVER), *arguments]
        self._actors = [actor.remote(command, environment) for _ in range(samplers.count)]
        self._known = [""] * samplers.count  # the address of each
        self._asked: list[Any] = [None] * samplers.count  # replies to come
        self._reason = ""  # why the last one had none
        self._reported = samplers.count  # how many have a place, as the user knows

    def urls(self) -> list[str]:
        """The addresses of all servers that run or start.

        Raises StageError if none has a place within `sync_s`.
        """
        end = time.monotonic() + self._wait_s
        while True:
            wait_s = AGAIN_S if any(self._known) else max(end - time.monotonic(), 1.0)
            self._ask(wait_s)
            if placed := [url for url in self._known if url]:
                self._report(len(placed))
                return placed
            if time.monotonic() > end:
                raise StageError(
                    f"Ray placed none of the {len(self._actors)} servers of cluster.samplers "
                    f"within {self._wait_s:g} s; it has {_resources(self._ray)}. {self._reason}"
                )
            time.sleep(RETRY_S)

    def _report(self, placed: int) -> None:
        """Say that some servers have no place; at a change only."""
        if placed not in (self._reported, len(self._actors)):
            self._say(
                f"WARNING: Ray has a place for {placed} of the {len(self._actors)} servers of "
                f"cluster.samplers, which sample without the others; it has "
                f"{_resources(self._ray)}. {self._reason}"
            )
        self._reported = placed

    def _ask(self, wait_s: float) -> None:
        """Learn the address of each server, "" if its actor has no place or is being restarted.

        Nobody waits for an actor that had none the last time, if others have one; it is not asked
        again before it has replied.
        """
        for number, actor in enumerate(self._actors):
            self._asked[number] = self._asked[number] or actor.address.remote()
        placed = [reply for reply, url in zip(self._asked, self._known, strict=True) if url]
        awaited = placed or self._asked
        self._ray.wait(awaited, num_returns=len(awaited), timeout=wait_s)
        errors = self._ray.exceptions
        for number, reply in enumerate(self._asked):
            known, self._known[number] = self._known[number], ""
            try:
                self._known[number], ended = self._ray.get(reply, timeout=0)
                self._asked[number] = None
            except errors.GetTimeoutError as failure:
                self._reason = _line(failure)
                ended = "Ray starts its actor again"
            except errors.ActorDiedError as failure:  # those that Ray starts again are unavailable
                raise StageError(
                    f"Ray cannot start servers of cluster.samplers: {_line(failure)}; every "
                    "machine needs this version of veriloop and vLLM"
                ) from failure
            except errors.ActorUnavailableError as failure:
                self._asked[number] = None
                self._reason = _line(failure)
                ended = "Ray starts its actor again"
            if known and ended:
                self._say(
                    f"WARNING: the server {known} is lost, another one takes its place: {ended}"
                )

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._joined:
            self._joined = False
            self._ray.shutdown()


class _ServerActor:
    """Keeps one server running on the machine that Ray gave it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._port: socket.socket | None = None
        self._url = ""
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - ends with this process

    def address(self) -> tuple[str, str]:
        """The server's URL, and why the one before it ended; "" if this is no other one."""
        ended = ""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._log.seek(0)
            last = self._log.read().decode(errors="replace")[-LAST_WORDS:].strip()
            ended = f"exit status {status}. {last}"
            self._process.communicate()  # closes its pipe
            self._process = None
        if self._process is None:
            self._start()
        return self._url, ended

    def _start(self) -> None:
        import ray

        host = ray.util.get_node_ip_address()
        if self._port is not None:
            self._port.close()
        self._port = reserved_port(host)  # vLLM listens once its imports are done
        port = self._port.getsockname()[1]
        self._log.seek(0)
        self._log.truncate()
        # its end of the pipe closes when this process dies, whatever kills it
        self._process = subprocess.Popen(
            [*GUARDIAN, *self._command, "--host", host, "--port", str(port)],
            env={**_without_torchrun(os.environ), **self._environment},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._url = f"http://{host}:{port}"


def _connected(address: str) -> tuple[Any, bool]:
    """The module ray, connected, and whether this call did it."""
    if importlib.util.find_spec("ray") is None:
        raise RecipeError(
            f"cluster.ray={address!r}, but ray is not installed; install it (veriloop[ray]), or "
            "name servers that run in cluster.samplers.urls"
        )
    import ray
    from ray.exceptions import AuthenticationError, RayError

    if ray.is_initialized():
        return ray, False
    settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if address == LOCAL:
        settings["include_dashboard"] = False
    try:
        _require_listener(address)
        with _own_signals():
            ray.init(address, **settings)
    except (OSError, ValueError, RuntimeError, RayError) as failure:
        hint = ""
        if isinstance(failure, AuthenticationError):
            hint = "; its nodes and this run need the same RAY_AUTH_MODE and token"
        raise RecipeError(
            f"cluster.ray={address!r}: no Ray cluster is reached there ({_line(failure)}){hint}"
        ) from failure
    return ray, True


def _require_listener(address: str) -> None:
    """Raise OSError if nobody listens at an address of the form host:port or ray://host:port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), REACHED_S).close()


def _without_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """What a Ray that a rank started has from it: the server is none of the run's ranks."""
    own = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")
    return {name: value for name, value in environment.items() if not name.startswith(own)}


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handlers of a command, which save a run before it ends: ray sets others."""
    kept = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in kept.items():
            signal.signal(name, handler)


def _resources(ray: Any) -> str:
    free, total = ray.available_resources(), ray.cluster_resources()
    return ", ".join(
        f"{free.get(name, 0):g} of {total.get(name, 0):g} {name}s free" for name in ("CPU", "GPU")
    )


def _line(failure: BaseException) -> str:
    """The last line of its text: of a traceback the error."""
    return str(failure).strip().rpartition("\n")[2]
