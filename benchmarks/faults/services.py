"""The reward service at twice its capacity, with hostile items and restarts: nothing gets lost.

    python benchmarks/faults/services.py [--minutes 30] [--restart-s 60] [--seed N] [--quick]
        [--json FILE]

Every request must be answered once with its own verdicts, or refused with a reason. SIGKILL and
SIGTERM end the service in turn and it starts again; a request that such an end interrupts is sent
again with the same id. Also checked: repeated ids get the same response, processes that are left,
tracebacks, and exit codes after SIGTERM.
"""

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
from publish import ROOT, arguments, publish

from veriloop.sandbox.remote.sockets import LOCAL

PLUGIN = ROOT / "tests" / "verifiers" / "misbehaving.py"
HOSTILE = ("hang", "exit 7", "exit 0", "raise", "bomb", "none", "score two", "odd answer")
BODY_BYTES = 4 << 20
FLAGS = {
    "--verifiers": ("number", "misbehaves"),
    "--plugin": (str(PLUGIN),),
    "--limit-s": ("2",),  # of honest items too, which wait for a processor on a busy machine
    "--memory-mb": ("1024",),
    "--bounds.queue-items": ("64",),
    "--bounds.body-bytes": (str(BODY_BYTES),),
    "--bounds.drain-s": ("10",),
}
BUSY = frozenset({429, 503})
SENDERS = 16
EXCESS = 2.0  # of the rate of requests over the capacity
REPEATED = 0.05  # share of the answered requests that are sent again
PATIENCE_S = 120.0  # for a request that restarts interrupt
END_S = 30.0  # for the service to end after SIGTERM, and for its processes to end with it


@dataclass(frozen=True, slots=True)
class Request:
    """A body, and the scores or refusal statuses that it must get."""

    id: str
    body: bytes
    scores: Sequence[float | None] = ()
    statuses: frozenset[int] = frozenset()


def judged(number: int, chance: random.Random) -> Request:
    """One to eight items, some hostile, some large; a score of None is that of a failure."""
    items: list[dict[str, Any]] = []
    scores: list[float | None] = []
    for n in range(chance.randint(1, 8)):
        right, value = chance.random() < 0.5, 100 * number + n
        answer = f"<answer>{value if right else value + 1}</answer>"
        items.append({"verifier": "number", "reference": {"value": str(value)}, "response": answer})
        scores.append(float(right))
    if chance.random() < 0.1:
        items[0] = {"verifier": "misbehaves", "reference": {}, "response": chance.choice(HOSTILE)}
        scores[0] = None
    if chance.random() < 0.1:
        items[-1]["prompt"] = "x" * (1 << 20)
    name = f"request-{number}"
    return Request(name, json.dumps({"request_id": name, "items": items}).encode(), scores)


def malformed(number: int, chance: random.Random) -> Request:
    """A body that must be refused."""
    bodies = (
        b'{"items": [' + b"[]," * (1 << 19) + b"[]]}",
        b'{"items": [' + b"0," * 100_000 + b"0]}",
        b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"items": [{"response": NaN}]}',
        b'{"items": "' + b"9" * (1 << 20),
        b"\xff" * 1000,
        b" " * (BODY_BYTES + 1),
    )
    return Request(f"malformed-{number}", chance.choice(bodies), (), frozenset({413, 422}))


class Service:
    """`veriloop serve` on one port, in a process that is ended and started again."""

    def __init__(self, log: Path) -> None:
        with socket.create_server((LOCAL, 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://{LOCAL}:{self.port}"
        self.life = 0  # how often it was started
        self.up = threading.Event()
        self.peak_mib = 0.0
        self._log = log

    def start(self) -> None:
        flags = [word for name, values in FLAGS.items() for word in (name, *values)]
        command = [sys.executable, "-m", "veriloop.stages.cli", "serve", "--port", str(self.port)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
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
        own = psutil.Process(self.process.pid)
        self.peak_mib = max(self.peak_mib, own.memory_info().rss / (1 << 20))
        family = own.children(recursive=True)
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
            return httpx2.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False


@dataclass(slots=True)
class Account:
    """The outcome of every request."""

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
                self.wrong.append(wrong[:300])


class Sender:
    """Sends requests in one thread and settles each in the account."""

    def __init__(self, service: Service, account: Account, seed: int) -> None:
        self._service = service
        self._account = account
        self._chance = random.Random(seed)
        self._life = 0
        self._client = httpx2.Client()

    def settle(self, number: int) -> None:
        """Make a request and send it until it is answered or refused."""
        kind = malformed if self._chance.random() < 0.2 else judged
        request = kind(number, self._chance)
        response, life = self._deliver(request)
        if response is None:
            wrong = f"{request.id}: no response in {PATIENCE_S:g} s"
            self._account.note(self._account.ends, "lost", wrong)
            return
        end, wrong = outcome(request, response)
        self._account.note(self._account.ends, end, wrong)
        if end == "answered" and self._chance.random() < REPEATED:
            again, later = self._deliver(request)
            if again is not None and later == life and again.status_code == 200:
                wrong = "" if again.content == response.content else f"{request.id}: two responses"
                self._account.note(self._account.events, "repeated", wrong)

    def close(self) -> None:
        self._client.close()

    def _deliver(self, request: Request) -> tuple[httpx2.Response | None, int]:
        """The response, and the number of the service's start that gave it."""
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
                return self._client.post("/v1/verify", content=request.body, headers=headers), life
            except httpx2.HTTPError as failure:
                excused = life != self._service.life or not self._service.up.is_set()
                wrong = "" if excused else f"{request.id}: {failure!r} without a restart"
                self._account.note(self._account.events, "interrupted", wrong)
        return None, 0


def outcome(request: Request, response: httpx2.Response) -> tuple[str, str]:
    """The outcome of a request, and what is wrong with it, if anything."""
    status, text = response.status_code, response.text[:200]
    wrong = f"{request.id}: status {status}, {text}"
    try:
        body = response.json()
    except ValueError:
        return "wrong", wrong
    if status == 200:
        scores = [verdict["score"] for verdict in body["verdicts"]]
        if request.scores and scores == request.scores and body["request_id"] == request.id:
            return "answered", ""
        pairs = zip(body["verdicts"], request.scores, strict=False)
        differing = [verdict for verdict, score in pairs if verdict["score"] != score]
        return "wrong", f"{request.id}: status 200, {differing[:2]}, not {request.scores}"
    reason = isinstance(body.get("detail"), str) and body["detail"]
    when = status not in BUSY or response.headers.get("retry-after", "").isdigit()
    if reason and when and status in request.statuses | BUSY:
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
        self._threads = [threading.Thread(target=self._send, args=(sender,)) for sender in senders]

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


def soak(seconds: float, restart_s: float, restarts: int, seed: int) -> dict[str, Any]:
    """Traffic for so long beyond the capacity, with at most so many restarts."""
    account, problems, done = Account(), list[str](), 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder) / "log"
        service = Service(log)
        service.start()
        stack.callback(service.kill)
        senders = [Sender(service, account, seed + n) for n in range(SENDERS)]
        for sender in senders:
            stack.callback(sender.close)
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
        "peak_mib": service.peak_mib,
        "problems": problems + account.wrong,
    }


def failures(result: Mapping[str, Any]) -> list[str]:
    """Every bar that the result misses."""
    ends, settled = result["ends"], sum(result["ends"].values())
    failed = result["problems"][:20]
    if settled != result["sent"]:
        failed.append(f"{result['sent']} requests sent, {settled} accounted for")
    for end in ("answered", "refused 413", "refused 422"):
        if not ends.get(end):
            failed.append(f"no request was {end}: this proves little")
    return failed


def main() -> int:
    options = arguments(
        __doc__ or "",
        minutes={"type": float, "default": 30.0, "help": "of traffic beyond the capacity"},
        restart_s={"type": float, "default": 60.0, "help": "between two ends of the service"},
        seed={"type": int, "default": 0, "help": "of the requests"},
    )
    shape = (2.5, 1.0, 1) if options.quick else (60 * options.minutes, options.restart_s, 10**6)
    result = soak(*shape, options.seed)
    ends = ", ".join(f"{name} {count}" for name, count in sorted(result["ends"].items()))
    events = ", ".join(f"{count} {name}" for name, count in sorted(result["events"].items()))
    text = (
        f"{result['sent']} requests, {result['offered_per_s']:.1f}/s at a capacity of "
        f"{result['capacity_per_s']:.1f}/s, {result['restarts']} restarts: {ends}; {events}; "
        f"peak {result['peak_mib']:.0f} MiB"
    )
    return publish(options, text, result, failed=failures(result))


if __name__ == "__main__":
    sys.exit(main())
