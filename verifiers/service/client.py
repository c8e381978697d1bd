"""A reward service used like a VerifierPool: the same calls, verdicts from another process."""

import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Self

from veriloop.sandbox.remote.connection import Address
from veriloop.verifiers.registry import Task, describe, with_facts, with_settings
from veriloop.verifiers.service.caller import Caller, ServiceGoneError, ServiceRefusedError
from veriloop.verifiers.verdict import JudgingError, Verdict

TOKEN_VARIABLE = "VERILOOP_SERVICE_TOKEN"
PART_ITEMS = 256  # of one request
PART_BYTES = 4 << 20
REQUEST_S = 330.0  # for one response
_DEPTH = 100  # of a reference


@dataclass(frozen=True, slots=True)
class _Part:
    indices: Sequence[int]
    items: Sequence[bytes]  # each as JSON


@dataclass(frozen=True, slots=True)
class _Link:
    """What one process uses to reach the service; a fork inherits neither usably."""

    caller: Caller
    threads: ThreadPoolExecutor


class ServicePool:
    """Has a reward service judge. Calls may come from any thread, also after a fork.

    `url`: http(s)://HOST[:PORT][/PREFIX]; the token is read from VERILOOP_SERVICE_TOKEN, if it is
    set. `connections`: requests at a time. A service that is unreachable for `patience_s` seconds
    gives `error` verdicts, which have no score. `facts` belong to every problem that does not have
    them itself. Raises ValueError for anything but an address.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        patience_s: float = 300.0,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        variable = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""
        self._address = Address.read(url, variable)
        self._connections = connections
        self._patience_s = patience_s
        self._facts = dict(facts)
        self._links = {os.getpid(): self._open_link()}
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
        required = list(dict.fromkeys(names))
        if all(name in self._offered for name in required):
            return
        records = self._link().caller.call("GET", "/v1/verifiers")["verifiers"]
        self._note({record["name"]: record["fingerprint"] for record in records})
        for name in required:
            if name not in self._offered:
                close = get_close_matches(name, self._offered, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                known = ", ".join(sorted(self._offered))
                raise KeyError(f"the reward service has no verifier {name!r}.{hint} Known: {known}")

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """Fingerprints of the service's verifiers, as of `registry.fingerprint`.

        Raises as `warm` does.
        """
        required = list(names)
        self.warm(required)
        return with_settings({name: self._offered[name] for name in required}, self._facts)

    def judge_all(self, tasks: Sequence[Task]) -> list[Verdict]:
        """One verdict per task, in order; `error` for all that the service leaves open.

        An item that is larger than the service accepts is such an `error`, which names its index
        and size; it is not sent again.

        Raises KeyError for a verifier that the service lacks, ServiceRefusedError for a request
        that it refuses, JudgingError when its verifiers have changed, and RuntimeError when the
        pool is closed.
        """
        verdicts: dict[int, Verdict] = {}
        try:
            self.warm({problem.verifier for problem, _ in tasks})
        except ServiceGoneError as gone:
            return [_error(str(gone)) for _ in tasks]
        encoded: dict[int, bytes] = {}
        for index, task in enumerate(with_facts(tasks, self._facts)):
            try:
                encoded[index] = _encoded(task)
            except (ValueError, TypeError) as failure:
                verdicts[index] = _error(describe(failure))
        for judged in self._link().threads.map(self._judge, _parts(encoded)):
            verdicts |= judged
        return [verdicts[index] for index in range(len(tasks))]

    def close(self) -> None:
        """Hang up. Harmless when repeated; calls in progress raise RuntimeError."""
        link = self._link()
        link.caller.close()
        link.threads.shutdown(cancel_futures=True)

    def _open_link(self) -> _Link:
        return _Link(
            Caller(self._address, request_s=REQUEST_S, patience_s=self._patience_s),
            ThreadPoolExecutor(self._connections, thread_name_prefix="reward-service"),
        )

    def _link(self) -> _Link:
        """This process's link. `setdefault` is atomic, and an unused link holds nothing open."""
        process = os.getpid()
        return self._links.get(process) or self._links.setdefault(process, self._open_link())

    def _judge(self, part: _Part) -> dict[int, Verdict]:
        head = json.dumps({"request_id": uuid.uuid4().hex})[:-1].encode()
        body = head + b', "items": [' + b", ".join(part.items) + b"]}"
        try:
            response = self._link().caller.call("POST", "/v1/verify", body)
            verdicts = [Verdict(**record) for record in response["verdicts"]]
            if len(verdicts) != len(part.indices):
                raise ValueError(f"{len(verdicts)} verdicts on {len(part.indices)} items")
            fingerprints = dict(response["judged_by"]["verifiers"])
        except ServiceGoneError as gone:
            return dict.fromkeys(part.indices, _error(str(gone)))
        except ServiceRefusedError as refusal:
            if refusal.status != 413:
                raise
            if len(part.indices) > 1:
                return self._judge_halves(part)
            (index,), (item,) = part.indices, part.items
            return {index: _error(f"item {index} has {len(item)} bytes as JSON: {refusal}")}
        except (ValueError, TypeError, KeyError) as failure:
            detail = f"the reward service answers what are no verdicts: {describe(failure)}"
            return dict.fromkeys(part.indices, _error(detail))
        self._note(fingerprints)
        return dict(zip(part.indices, verdicts, strict=True))

    def _judge_halves(self, part: _Part) -> dict[int, Verdict]:
        middle = len(part.indices) // 2
        first = _Part(part.indices[:middle], part.items[:middle])
        second = _Part(part.indices[middle:], part.items[middle:])
        return self._judge(first) | self._judge(second)

    def _note(self, fingerprints: dict[str, str]) -> None:
        """Remember who judges. Raises JudgingError for a change: one run has one judge."""
        for name, fingerprint in fingerprints.items():
            before = self._offered.setdefault(name, fingerprint)
            if before != fingerprint:
                raise JudgingError(
                    f"the reward service judged {name!r} as {before} and now as {fingerprint}: "
                    "rewards before and after cannot be compared"
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
    _check_plain(data, problem.id, 0)
    return json.dumps(data).encode()


def _check_plain(value: Any, problem_id: str, depth: int) -> None:
    kind = type(value)
    if depth > _DEPTH:
        raise ValueError(f"problem {problem_id!r}: a reference deeper than {_DEPTH}")
    if kind is dict and all(type(key) is str for key in value):
        for part in value.values():
            _check_plain(part, problem_id, depth + 1)
    elif kind is list:
        for part in value:
            _check_plain(part, problem_id, depth + 1)
    elif kind is float and not math.isfinite(value):
        raise ValueError(f"problem {problem_id!r}: {value} is no JSON")
    elif kind not in (str, int, float, bool, type(None)):
        shown = f"{kind.__name__} {value!r}"[:100]
        raise ValueError(f"problem {problem_id!r}: {shown} would not come through JSON as it is")


def _error(detail: str) -> Verdict:
    return Verdict(score=None, status="error", detail=detail)
