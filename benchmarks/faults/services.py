"""The reward service at twice its capacity, with hostile items and restarts: nothing gets lost.

    python benchmarks/faults/services.py [--minutes 30] [--restart-s 60] [--seed N] [--quick]
        [--json FILE]

Every request must be answered once with its own verdicts, or refused with a reason. SIGKILL and
SIGTERM end the service in turn and it starts again; a request that such an end interrupts is sent
again with the same id. Also checked: repeated ids get the same response, processes that are left,
tracebacks, exit codes after SIGTERM and, in a full run, the time of `/healthz` and memory.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import httpx2

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from publish import ROOT, arguments, publish
from traffic import OPTIONS, Request, Target, failures, missed, refused, shape, soak, summary_line

PLUGIN = ROOT / "tests" / "verifiers" / "misbehaving.py"
HOSTILE = ("hang", "exit 7", "exit 0", "raise", "bomb", "none", "score two", "odd answer")
BODY_BYTES = 4 << 20
FLAGS = {
    "--verifiers": ("number", "misbehaves"),
    "--plugin": (str(PLUGIN),),
    "--limit-s": ("0.5",),
    "--memory-mb": ("1024",),
    "--bounds.queue-items": ("64",),
    "--bounds.body-bytes": (str(BODY_BYTES),),
    "--bounds.drain-s": ("10",),
}
ENDS = ("answered", "refused 413", "refused 422")


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


def outcome(request: Request, response: httpx2.Response) -> tuple[str, str]:
    """What became of a request, and what is wrong with that, if anything."""
    if response.status_code != 200:
        return refused(request, response)
    body = response.json()
    scores = [verdict["score"] for verdict in body["verdicts"]]
    if request.expected and scores == request.expected and body["request_id"] == request.id:
        return "answered", ""
    pairs = zip(body["verdicts"], request.expected, strict=False)
    differing = [verdict for verdict, score in pairs if verdict["score"] != score]
    return "wrong", f"{request.id}: status 200, {differing[:2]}, not {request.expected}"


TARGET = Target(
    words=("serve", *(word for name, values in FLAGS.items() for word in (name, *values))),
    path="/v1/verify",
    ready="/readyz",
    health="/healthz",
    good=judged,
    malformed=malformed,
    outcome=outcome,
    repeats=True,
)


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    result = soak(TARGET, *shape(options))
    failed = failures(result, ENDS) + ([] if options.quick else missed(result))
    return publish(options, summary_line(result), result, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
