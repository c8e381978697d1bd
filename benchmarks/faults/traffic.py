"""Traffic beyond the capacity of a service that is killed and restarted: what becomes of it.

Shared by the harnesses of the reward service and of the sandbox service. Requests that a restart
interrupts are sent again; every request ends up in the account once.
"""

import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil

from veriloop.sandbox.remote.sockets import LOCAL

BUSY = frozenset({429, 503})
SENDERS = 16
EXCESS = 2.0  # of the rate of requests over the capacity
MALFORMED = 0.2  # share of the requests
REPEATED = 0.05  # share of the answered requests that are sent again
PATIENCE_S = 120.0  # for a request that restarts interrupt
END_S = 30.0  # for the service to end after SIGTERM, and for its processes to end with it
LOOK_S = 0.2  # between two looks at health and memory
HEALTH_P99_S, GROWTH_MIB = 1.0, 256.0  # bars of a full run


@dataclass(frozen=True, slots=True)
class Request:
    """A body; what its answer must hold, or the statuses with which it must be refused."""

    id: str
    body: bytes
    expected: Any = None
    statuses: frozenset[int] = frozenset()


Maker = Callable[[int, random.Random], Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A service and the requests that it gets."""

    words: Sequence[str]  # of its command, without the port
    path: str  # that requests are posted to
    ready: str  # path that responds with 200 once the service takes work
    health: str
    good: Maker
    malformed: Maker
    outcome: Callable[[Request, httpx2.Response], tuple[str, str]]
    repeats: bool = False  # whether a request sent again gets the same response


class Service:
    """A service on one port, in a process that is ended and started again."""

    def __init__(self, target: Target, log: Path) -> None:
        with socket.create_server((LOCAL, 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://{LOCAL}:{self.port}"
        self.target = target
        self.life = 0  # how often it was started
        self.up = threading.Event()
        self._log = log

    def start(self) -> None:
        command = [sys.executable, "-m", "veriloop.stages.cli", *self.target.words]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service does not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        self.life += 1
        self.up.set()

    def end(self, number: signal.Signals) -> list[str]:
        """Send the signal and wait for all processes. Returns what went wrong."""
        self.up.clear()
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"still up {END_S:g} s after {number.name}"]
        wrong = [] if code in (0, -signal.SIGKILL) else [f"exit code {code} after {number.name}"]
        _, left = psutil.wait_procs(family, timeout=END_S)
        return wrong + [f"left running after {number.name}: {process}" for process in left]

    def kill(self) -> None:
        """End a process that is still there, without a check."""
        self.process.kill()
        self.process.wait()

    def _ready(self) -> bool:
        try:
            url = f"{self.url}{self.target.ready}"
            return httpx2.get(url, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False


@dataclass(slots=True)
class Account:
    """What became of every request."""

    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])  # one for each request
    events: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> int:
        with self.lock:
            self.sent += 1
            return self.sent

    def note(self, counts: Counter[str], what: str, wrong: str = "") -> None:
        with self.lock:
            counts[what] += 1
            if wrong:
                self.wrong.append(wrong[:600])


class Sender:
    """Sends requests in one thread and settles each in the account."""

    def __init__(self, service: Service, account: Account, seed: int) -> None:
        self._service = service
        self._target = service.target
        self._account = account
        self._chance = random.Random(seed)
        self._life = 0
        self._client = httpx2.Client()

    def settle(self, number: int) -> None:
        """Make a request and send it until it is answered or refused."""
        malformed = self._chance.random() < MALFORMED
        make = self._target.malformed if malformed else self._target.good
        request = make(number, self._chance)
        response, life = self._deliver(request)
        if response is None:
            wrong = f"{request.id}: no response in {PATIENCE_S:g} s"
            self._account.note(self._account.ends, "lost", wrong)
            return
        end, wrong = self._target.outcome(request, response)
        self._account.note(self._account.ends, end, wrong)
        if self._target.repeats and end == "answered" and self._chance.random() < REPEATED:
            again, later = self._deliver(request)
            if again is not None and later == life and again.status_code == 200:
                wrong = "" if again.content == response.content else f"{request.id}: two responses"
                self._account.note(self._account.events, "repeated", wrong)

    def close(self) -> None:
        self._client.close()

    def _deliver(self, request: Request) -> tuple[httpx2.Response | None, int]:
        """The response and the life of the service that gave it."""
        deadline = time.monotonic() + PATIENCE_S
        headers = {"Content-Type": "application/json"}
        while time.monotonic() < deadline:
            self._service.up.wait(PATIENCE_S)
            life = self._service.life
            if life != self._life:  # connections to an ended process are of no use
                self._client.close()
                self._client = httpx2.Client(
                    base_url=self._service.url, timeout=PATIENCE_S, trust_env=False
                )
                self._life = life
            try:
                path = self._target.path
                return self._client.post(path, content=request.body, headers=headers), life
            except httpx2.HTTPError as failure:
                excused = life != self._service.life or not self._service.up.is_set()
                wrong = "" if excused else f"{request.id}: {failure!r} without a restart"
                self._account.note(self._account.events, "interrupted", wrong)
        return None, 0


def refused(request: Request, response: httpx2.Response) -> tuple[str, str]:
    """What became of a request that got no 200, and what is wrong with that, if anything."""
    status = response.status_code
    wrong = f"{request.id}: status {status}, {response.text[:200]}"
    try:
        detail = response.json().get("detail")
    except (ValueError, AttributeError):
        return "wrong", wrong
    when = status not in BUSY or response.headers.get("retry-after", "").isdigit()
    if isinstance(detail, str) and detail and when and status in request.statuses | BUSY:
        return f"refused {status}", ""
    return "wrong", wrong


class Traffic:
    """Requests from several threads while open; `rate`: a second; 0: as many as are answered."""

    def __init__(self, senders: Sequence[Sender], account: Account, rate: float) -> None:
        self._account = account
        self._rate = rate
        self._first = account.sent
        self._over = threading.Event()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._send, args=(one,)) for one in senders]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def sent_per_s(self) -> float:
        return (self._account.sent - self._first) / (time.monotonic() - self._began)

    def _send(self, sender: Sender) -> None:
        while not self._over.is_set():
            number = self._account.next()
            if self._rate:
                due = self._began + (number - self._first) / self._rate
                self._over.wait(max(0.0, due - time.monotonic()))
            sender.settle(number)


class Looks:
    """Asks for the service's health and reads its memory while open."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._first_mib: dict[int, float] = {}  # by life
        self.seconds: list[float] = []
        self.peak_mib = self.growth_mib = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def p99_s(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else 0.0

    def _look(self) -> None:
        url = f"{self._service.url}{self._service.target.health}"
        while not self._over.wait(LOOK_S):
            life = self._service.life
            with suppress(httpx2.HTTPError, psutil.Error):  # restarts
                began = time.monotonic()
                response = httpx2.get(url, trust_env=False, timeout=PATIENCE_S)
                if response.status_code == 200 and self._service.up.is_set():
                    self.seconds.append(time.monotonic() - began)
                mib = psutil.Process(self._service.process.pid).memory_info().rss / (1 << 20)
                first = self._first_mib.setdefault(life, mib)
                self.peak_mib = max(self.peak_mib, mib)
                self.growth_mib = max(self.growth_mib, mib - first)


def soak(
    target: Target, seconds: float, restart_s: float, restarts: int, seed: int
) -> dict[str, Any]:
    """Traffic for so long beyond the capacity, with at most so many restarts."""
    account, problems, done = Account(), list[str](), 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder) / "log"
        service = Service(target, log)
        service.start()
        stack.callback(service.kill)
        senders = [Sender(service, account, seed + n) for n in range(SENDERS)]
        for sender in senders:
            stack.callback(sender.close)
        looks = stack.enter_context(Looks(service))
        with Traffic(senders[:4], account, 0) as traffic:
            time.sleep(min(10.0, seconds / 3))
            capacity = traffic.sent_per_s
        with Traffic(senders, account, EXCESS * capacity) as traffic:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, restart_s))
                if left > restart_s and done < restarts:
                    problems += service.end((signal.SIGKILL, signal.SIGTERM)[done % 2])
                    service.start()
                    done += 1
            offered = traffic.sent_per_s
        problems += service.end(signal.SIGTERM)
        problems += ["a traceback in the log"] if "Traceback" in log.read_text() else []
    return {
        "capacity_per_s": capacity,
        "offered_per_s": offered,
        "restarts": done,
        "sent": account.sent,
        "ends": dict(account.ends),
        "events": dict(account.events),
        "health_p99_s": looks.p99_s,
        "health_most_s": max(looks.seconds, default=0.0),
        "peak_mib": looks.peak_mib,
        "growth_mib": looks.growth_mib,
        "problems": problems + account.wrong,
    }


def failures(result: Mapping[str, Any], must: Sequence[str]) -> list[str]:
    """Every bar that the result does not meet; `must`: ends of which there have to be some."""
    ends, settled = result["ends"], sum(result["ends"].values())
    failed = result["problems"][:20]
    if settled != result["sent"]:
        failed.append(f"{result['sent']} requests sent, {settled} accounted for")
    for end in must:
        if not ends.get(end):
            failed.append(f"no request was {end}: this proves little")
    return failed


def missed(result: Mapping[str, Any]) -> list[str]:
    """Bars of a full run on time and memory."""
    failed: list[str] = []
    if result["health_p99_s"] > HEALTH_P99_S:
        failed.append(f"health took {result['health_p99_s']:.2f} s at p99")
    if result["growth_mib"] > GROWTH_MIB:
        failed.append(f"memory grew by {result['growth_mib']:.0f} MiB")
    return failed


OPTIONS: dict[str, dict[str, Any]] = {
    "minutes": {"type": float, "default": 30.0, "help": "of traffic beyond the capacity"},
    "restart_s": {"type": float, "default": 60.0, "help": "between two ends of the service"},
    "seed": {"type": int, "default": 0, "help": "of the requests"},
}


def shape(options: Any) -> tuple[float, float, int, int]:
    """Arguments of `soak` from those of the command line."""
    if options.quick:
        return 2.5, 1.0, 1, options.seed
    return 60 * options.minutes, options.restart_s, 10**6, options.seed


def summary_line(result: Mapping[str, Any]) -> str:
    """The result in one line."""
    ends = ", ".join(f"{name} {count}" for name, count in sorted(result["ends"].items()))
    events = ", ".join(f"{count} {name}" for name, count in sorted(result["events"].items()))
    return (
        f"{result['sent']} requests, {result['offered_per_s']:.1f}/s at a capacity of "
        f"{result['capacity_per_s']:.1f}/s, {result['restarts']} restarts: {ends}; {events}; "
        f"health {result['health_p99_s']:.2f} s at p99, {result['health_most_s']:.2f} s at most; "
        f"peak {result['peak_mib']:.0f} MiB, grown by {result['growth_mib']:.0f} MiB"
    )
