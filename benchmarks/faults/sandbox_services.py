"""The sandbox service at twice its capacity, with hostile programs and restarts: nothing gets lost.

    python benchmarks/faults/sandbox_services.py [--minutes 30] [--restart-s 60] [--seed N]
        [--backend namespace] [--quick] [--json FILE]

Every program must get the output and the end that are its own, or be refused with a reason; a
program must never end as a failure of the sandbox. SIGKILL and SIGTERM end the service in turn and
it starts again; a request that such an end interrupts is sent again. Also checked: processes that
are left, programs among them, tracebacks, exit codes after SIGTERM and, in a full run, the time of
`/health` and memory.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import httpx2

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from publish import arguments, publish
from traffic import OPTIONS, Request, Target, failures, missed, refused, shape, soak, summary_line

SUM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
ECHO = "import sys\nsys.stdout.write(sys.stdin.read())\n"
HOSTILE = {  # programs, and how they may end
    "while True: pass": ("cpu", "wall"),
    "import time; time.sleep(600)": ("wall",),
    "x = bytearray(8 << 30)": ("memory", "error"),
    "import os; os._exit(7)": ("error",),
    "import os; os.kill(os.getpid(), 9)": ("ok", "signal"),  # the first of its namespace survives
    "import os; os.abort()": ("signal",),
    "while True: print('x' * 4096)": ("output",),
    "import os\nwhile True: os.fork()": ("error",),
    "import os; os.closerange(0, 1 << 12); os._exit(0)": ("ok",),
    "import threading\nwhile True: threading.Thread(target=input).start()": (
        "error",
        "memory",
        "cpu",
        "wall",
    ),
}
HOSTILE_S = 0.5  # CPU time of a hostile program, and the time it may sleep
WRITING_S = 20.0  # of one that writes without end, which its output must end first
ENDS = ("answered", "refused 400")
FULL = (*ENDS, "refused 429")  # a few seconds of a loaded machine need not fill the room
ROOM = 8  # programs that run or wait: fewer than there are senders


def program(number: int, chance: random.Random) -> Request:
    """A sum, sometimes a large input to repeat, sometimes a hostile program."""
    fields: dict[str, Any] = {"code": SUM, "language": "python"}
    numbers = [chance.randrange(10**9) for _ in range(chance.randint(1, 50))]
    fields["stdin"], output, ends = " ".join(map(str, numbers)), f"{sum(numbers)}\n", ("ok",)
    draw = chance.random()
    if draw < 0.05:
        fields |= {"code": ECHO, "stdin": (text := f"{number} " * (1 << 16))}
        output = text
    elif draw < 0.2:
        code, ends = chance.choice(list(HOSTILE.items()))
        seconds = WRITING_S if ends == ("output",) else HOSTILE_S
        fields |= {"code": code, "run_timeout": seconds, "memory_limit_MB": 256}
        output = None
    body = json.dumps(fields).encode()
    return Request(f"program-{number}", body, (ends, output))


def malformed(number: int, chance: random.Random) -> Request:
    """A body that must be refused."""
    plain = {"code": "", "language": "python"}
    bodies = (
        b"[" * 100_000 + b"]" * 100_000,
        b'{"code": NaN, "language": "python"}',
        b'{"code": "' + b"9" * (1 << 20),
        b"\xff" * 1000,
        json.dumps(plain | {"code": 1}).encode(),
        json.dumps(plain | {"language": "cobol"}).encode(),
        json.dumps(plain | {"run_timeout": 3000}).encode(),
        json.dumps(plain | {"limits": {"memory_mb": 1 << 30}}).encode(),
        json.dumps(plain | {"files": {"a": "b"}}).encode(),
        json.dumps(plain | {"stdni": ""}).encode(),
        json.dumps(plain | {"stdin": "\ud800"}).encode(),
    )
    return Request(f"malformed-{number}", chance.choice(bodies), None, frozenset({400}))


def outcome(request: Request, response: httpx2.Response) -> tuple[str, str]:
    """What became of a request, and what is wrong with that, if anything."""
    if response.status_code != 200:
        return refused(request, response)
    reply = response.json()
    ends, output = request.expected or ((), None)
    ended = (reply.get("measured") or {}).get("ended", reply["status"])
    printed = (reply.get("run_result") or {}).get("stdout")
    if ended in ends and output in (None, printed):
        return "answered", ""
    said = f"{ended}, {reply.get('message')!r}, {str(printed)[:100]!r}"
    program = request.body[:120].decode(errors="replace")
    return "wrong", f"{request.id}: {said}, not {ends}: {program}"


def main() -> int:
    backend = {"default": "namespace", "help": "of `veriloop sandbox serve`"}
    options = arguments(__doc__ or "", **OPTIONS, backend=backend)
    target = Target(
        words=("sandbox", "serve", "--backend", options.backend, "--requests", str(ROOM)),
        path="/run_code",
        ready="/health",
        health="/health",
        good=program,
        malformed=malformed,
        outcome=outcome,
    )
    result = soak(target, *shape(options))
    quick = options.quick
    failed = failures(result, ENDS if quick else FULL) + ([] if quick else missed(result))
    return publish(options, summary_line(result), result, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
