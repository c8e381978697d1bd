"""A reward service in the place of a VerifierPool: the same call, verdicts from elsewhere."""

import json
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self

from sandbox.remote.connection import Address
from verifiers.registry import describe
from verifiers.service.caller import Caller, ServiceGoneError, ServiceRefusedError
from verifiers.verdict import Verdict
from verifiers.worker import Task

TOKEN_VARIABLE = "VERILOOP_SERVICE_TOKEN"
PART_ITEMS = 256
PART_BYTES = 4 << 20
_DEPTH = 100  # of a reference


@dataclass(frozen=True, slots=True)
class _Part:
    indices: Sequence[int]
    items: Sequence[bytes]  # each as JSON


class ServicePool:
    """Has a reward service judge. Calls may come from any thread.

    `url`: http(s)://HOST[:PORT][/PREFIX]; the token is read from VERILOOP_SERVICE_TOKEN, if it is
    set. `connections`: requests at a time. A service that is away for `patience_s` seconds gives
    `error` verdicts, which have no score. Raises ValueError for anything but an address.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        request_s: float = 330.0,
        patience_s: float = 300.0,
    ) -> None:
        variable = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""
        address = Address.read(url, variable)
        self._caller = Caller(address, request_s=request_s, patience_s=patience_s)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="reward-service")
        self._offered: dict[str, str] = {}  # fingerprints by name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, names: Iterable[str]) -> None:
        """Make sure that the service offers these verifiers.

        Raises KeyError with the nearest name, ServiceRefusedError where a token is needed, and
        ServiceGoneError.
        """
        asked = list(dict.fromkeys(names))
        if all(name in self._offered for name in asked):
            return
        told = self._caller.call("GET", "/v1/verifiers")["verifiers"]
        self._note({one["name"]: one["fingerprint"] for one in told})
        for name in asked:
            if name not in self._offered:
                close = get_close_matches(name, self._offered, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                known = ", ".join(sorted(self._offered))
                raise KeyError(f"the reward service has no verifier {name!r}.{hint} Known: {known}")

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """What judges over there, as `registry.fingerprint` has it. Raises as `warm` does."""
        asked = list(names)
        self.warm(asked)
        return {name: self._offered[name] for name in asked}

    def judge_all(self, tasks: Sequence[Task]) -> list[Verdict]:
        """One verdict per task, in the order given; `error` for all that the service leaves open.

        Raises KeyError for a verifier that it does not have, ServiceRefusedError for what it
        refuses, and RuntimeError when it judges otherwise than before or the pool is closed.
        """
        verdicts: dict[int, Verdict] = {}
        try:
            self.warm({problem.verifier for problem, _ in tasks})
        except ServiceGoneError as gone:
            return [_error(str(gone)) for _ in tasks]
        encoded: dict[int, bytes] = {}
        for index, task in enumerate(tasks):
            try:
                encoded[index] = _encoded(task)
            except (ValueError, TypeError) as failure:
                verdicts[index] = _error(describe(failure))
        for found in self._threads.map(self._judged, _parts(encoded)):
            verdicts |= found
        return [verdicts[index] for index in range(len(tasks))]

    def close(self) -> None:
        """Hang up. Harmless when repeated; calls in progress raise RuntimeError."""
        self._caller.close()
        self._threads.shutdown(cancel_futures=True)

    def _judged(self, part: _Part) -> dict[int, Verdict]:
        head = json.dumps({"request_id": uuid.uuid4().hex})[:-1].encode()
        body = head + b', "items": [' + b", ".join(part.items) + b"]}"
        try:
            answer = self._caller.call("POST", "/v1/verify", body)
            verdicts = [Verdict(**one) for one in answer["verdicts"]]
            if len(verdicts) != len(part.indices):
                raise ValueError(f"{len(verdicts)} verdicts on {len(part.indices)} items")
        except ServiceGoneError as gone:
            return dict.fromkeys(part.indices, _error(str(gone)))
        except ServiceRefusedError as refusal:
            if refusal.status != 413 or len(part.indices) == 1:
                raise
            return self._halves(part)
        except (ValueError, TypeError, KeyError) as failure:
            told = f"the reward service answers what are no verdicts: {describe(failure)}"
            return dict.fromkeys(part.indices, _error(told))
        self._note(answer["judged_by"]["verifiers"])
        return dict(zip(part.indices, verdicts, strict=True))

    def _halves(self, part: _Part) -> dict[int, Verdict]:
        middle = len(part.indices) // 2
        first = _Part(part.indices[:middle], part.items[:middle])
        second = _Part(part.indices[middle:], part.items[middle:])
        return self._judged(first) | self._judged(second)

    def _note(self, fingerprints: dict[str, str]) -> None:
        """Rewards of one run must have one judge."""
        for name, told in fingerprints.items():
            before = self._offered.setdefault(name, told)
            if before != told:
                raise RuntimeError(
                    f"the reward service judged {name!r} as {before} and now as {told}: rewards "
                    "before and after cannot be compared"
                )


def _parts(encoded: dict[int, bytes]) -> list[_Part]:
    parts: list[_Part] = []
    indices: list[int] = []
    size = 0
    for index, item in encoded.items():
        if indices and (len(indices) == PART_ITEMS or size + len(item) > PART_BYTES):
            parts.append(_Part(indices, [encoded[i] for i in indices]))
            indices, size = [], 0
        indices.append(index)
        size += len(item)
    if indices:
        parts.append(_Part(indices, [encoded[i] for i in indices]))
    return parts


def _encoded(task: Task) -> bytes:
    """One item. Raises ValueError for a reference that JSON would change: a tuple, bytes, NaN."""
    problem, response = task
    data = {
        "verifier": problem.verifier,
        "response": response,
        "reference": dict(problem.reference),
        "facts": dict(problem.facts),
        "prompt": problem.prompt,
        "id": problem.id,
    }
    _plain(data, problem.id, 0)
    return json.dumps(data).encode()


def _plain(value: Any, where: str, depth: int) -> None:
    kind = type(value)
    if depth > _DEPTH:
        raise ValueError(f"problem {where!r}: a reference deeper than {_DEPTH}")
    if kind is dict and all(type(key) is str for key in value):
        for part in value.values():
            _plain(part, where, depth + 1)
    elif kind is list:
        for part in value:
            _plain(part, where, depth + 1)
    elif kind is float and not math.isfinite(value):
        raise ValueError(f"problem {where!r}: {value} is no JSON")
    elif kind not in (str, int, float, bool, type(None)):
        told = f"{kind.__name__} {value!r}"[:100]
        raise ValueError(f"problem {where!r}: {told} would not come through JSON as it is")


def _error(detail: str) -> Verdict:
    return Verdict(score=None, status="error", detail=detail)
