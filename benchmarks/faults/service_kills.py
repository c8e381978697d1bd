"""Two reward services, each in a process on a fixed port; one is killed while a run asks both."""

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2
from kills import descendants
from tiny_stages import Command

PART = "service"
VERIFIERS = ("language", "number", "think_format")  # of R1-Zero
READY_S = 120.0
ENDS_S = 60.0  # for the workers of a killed service
HELD_S = 1.0  # at most
_ANSWERED = re.compile(r'^veriloop_request_seconds_count\{.*"/v1/verify".*\} (\S+)', re.MULTILINE)


class RewardServices:
    """The services. A killed one can begin again on its port."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._folder, self.ports = folder, ports
        self._commands: dict[int, Command] = {}

    @staticmethod
    def url(port: int) -> str:
        return f"http://127.0.0.1:{port}"

    @property
    def urls(self) -> list[str]:
        return [self.url(port) for port in self.ports]

    def begin(self, port: int) -> None:
        command = Command(words=[], folder=self._folder, name=f"{port}.log")
        command.answer = lambda: _serve(port)
        self._commands[port] = command.start()

    def renew(self) -> None:
        """Begin those that do not run; return when all are warm."""
        for port in self.ports:
            if port not in self._commands:
                self.begin(port)
        for port in self.ports:
            until = time.monotonic() + READY_S
            while not _ready(self.url(port)):
                if time.monotonic() > until or not self._commands[port].runs:
                    raise SystemExit(f"no service: {self._commands[port].said[-2000:]}")
                time.sleep(0.05)

    def kill(self, port: int, held_s: float = 0.0) -> list[str]:
        """SIGKILL; returns what is wrong afterwards. Stopped for `held_s` seconds before, a service
        dies with the requests that came meanwhile."""
        command = self._commands.pop(port)
        workers = descendants(command.pid)
        if held_s:
            os.kill(command.pid, signal.SIGSTOP)
            time.sleep(held_s)
        with suppress(ProcessLookupError):
            os.kill(command.pid, signal.SIGKILL)
        command.ended()
        until = time.monotonic() + ENDS_S
        while (left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]) and (
            time.monotonic() < until
        ):
            time.sleep(0.02)
        return [f"still running: {workers[pid][:60]!r}" for pid in left]

    def close(self) -> None:
        for port in [*self._commands]:
            self.kill(port)


@contextmanager
def running(folder: Path, ports: list[int]) -> Iterator[RewardServices]:
    with closing(RewardServices(folder, ports)) as services:
        services.renew()
        yield services


def killed(
    services: RewardServices, command: Command, again_s: float | None, draw: random.Random
) -> tuple[int | None, list[str]]:
    """Kill one service of a run and wait for the run's end.

    `again_s`: after these seconds the service begins again; None: it does not. Returns the exit
    code of the run, None if it asked no service afterwards, and what is wrong.
    """
    doomed, other = draw.sample(services.ports, 2)
    held_s = draw.uniform(0, HELD_S) if draw.random() < 0.5 else 0.0
    before = _answered(services.url(other))
    wrong = services.kill(doomed, held_s)
    if again_s is not None:
        time.sleep(again_s)
        services.begin(doomed)
    code = command.ended()
    if code != 0:
        return code, [*wrong, f"the run ends with {code}: {command.said[-300:]!r}"]
    asked = _answered(services.url(other)) - before
    # The first may be what the other had in progress; the next are of batches that both are asked.
    missed = again_s is None and asked > 1
    if missed and f"the reward service {services.url(doomed)} is left out" not in command.said:
        wrong.append(f"the output does not name the service: {command.said[-300:]!r}")
    return (code if asked else None), wrong


def _serve(port: int) -> int:
    from veriloop.verifiers.service.server import RewardService, Settings

    with closing(RewardService(Settings(verifiers=VERIFIERS, port=port))) as service:
        service.serve()
    return 0


def _ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz", trust_env=False).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False


def _answered(url: str) -> int:
    """Requests for verdicts that a service has answered."""
    text = httpx2.get(f"{url}/metrics", trust_env=False).text
    return sum(int(float(count)) for count in _ANSWERED.findall(text))
