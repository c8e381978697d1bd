"""Ray nodes on this machine for one benchmark: each a raylet of one CPU, and the first the head.

All processes that they start inherit a mark in their environment. The end kills whatever still has
it, also what has lost its parents.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

MARK = "VERILOOP_BENCHMARK"
STARTS_S = 120.0  # for a node
ENDS_S = 30.0  # for the processes of all nodes
STARTED = "Ray runtime started"
RAYLET = "/raylet/raylet"  # in its command line
SERVER = re.compile(r"-m veriloop\.pipeline\.sampling\.guardian .* --host (\S+) --port (\d+)")
# Ports of several nodes on one machine must differ: 0 lets the system draw them.
NODE = (
    *("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "80000000"),
    *("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"),
    *("--disable-usage-stats", "--include-log-monitor", "false", "--block"),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def marked(mark: str) -> dict[int, str]:
    """Process ids and command lines of all running processes with this mark but the caller."""
    found: dict[int, str] = {}
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = line.decode(errors="replace")
    found.pop(os.getpid(), None)
    return found


def ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, its parent, and so on."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


class RayNodes:
    """A Ray cluster of this machine; `address` is that of its head."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the logs of the nodes."""
        self._folder, self.mark = folder, uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)
        # The path of a socket has at most 107 characters.
        self._temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self._port = free_port()
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}

    def runs(self, number: int) -> bool:
        return number in self._nodes and self._nodes[number].poll() is None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What marks a process as part of the benchmark and lets it speak to these nodes: they and
        their drivers must agree whether a token is needed, and on which."""
        return {MARK: self.mark, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.mark}

    def begin(self, number: int) -> None:
        """Start a node; number 0 is the head. Returns once it runs."""
        words = [str(Path(sys.executable).with_name("ray")), "start", *NODE]
        if number:
            words += ["--address", self.address]
        else:
            words += ["--head", "--port", str(self._port), "--include-dashboard", "false"]
            words += ["--ray-client-server-port", str(free_port()), "--temp-dir", self._temporary]
        path = self._folder / f"node-{number}.log"
        with path.open("wb") as log:
            self._nodes[number] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is the benchmark's, which ends the nodes
                env={**os.environ, **self.environment},
            )
        end = time.monotonic() + STARTS_S
        while STARTED not in (said := path.read_text(errors="replace")):
            if self._nodes[number].poll() is not None or time.monotonic() > end:
                raise SystemExit(f"Ray node {number} did not start: {said[-2000:]}")
            time.sleep(0.1)

    def raylets(self) -> dict[int, int]:
        """The process of each node's raylet."""
        lines = marked(self.mark)
        parents = {process.pid: number for number, process in self._nodes.items()}
        return {
            number: pid
            for pid, line in lines.items()
            if RAYLET in line.partition(" ")[0]
            if (number := parents.get(next(ancestors(pid), 0))) is not None
        }

    def servers(self) -> dict[str, int]:
        """The URLs of sampling servers that run or start, each with the number of its node."""
        numbers = {pid: number for number, pid in self.raylets().items()}
        return {
            f"http://{server[1]}:{server[2]}": numbers[above]
            for pid, line in marked(self.mark).items()
            if (server := SERVER.search(line))
            for above in ancestors(pid)
            if above in numbers
        }

    def kill(self, number: int) -> int:
        """SIGKILL to a node's raylet, whose process is returned. Its node ends with it."""
        pid = self.raylets()[number]
        os.kill(pid, signal.SIGKILL)
        node = self._nodes.pop(number)
        try:
            node.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
        return pid

    def close(self) -> list[str]:
        """End all nodes, and kill what is marked and still runs; its command lines."""
        for node in self._nodes.values():
            node.terminate()
        end = time.monotonic() + ENDS_S
        while (left := marked(self.mark)) and time.monotonic() < end:
            time.sleep(0.1)
            for node in self._nodes.values():
                node.poll()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for node in self._nodes.values():
            node.wait()
        self._nodes.clear()
        subprocess.run(["rm", "-rf", self._temporary], check=True)
        return [*left.values()]


@contextmanager
def ray_nodes(folder: Path, count: int = 2) -> Iterator[RayNodes]:
    """Nodes that run inside the block; what has their mark ends with it. SIGTERM ends the block as
    Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    nodes = RayNodes(folder)
    try:
        for number in range(count):
            nodes.begin(number)
        yield nodes
    finally:
        nodes.close()
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
