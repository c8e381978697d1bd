"""Reward services used like a VerifierPool: the same calls, verdicts from other processes."""

import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Self

from veriloop.verifiers.registry import Task, describe, with_facts, with_settings
from veriloop.verifiers.service.caller import (
    Caller,
    NoVerdictsError,
    ServiceGoneError,
    ServiceRefusedError,
)
from veriloop.verifiers.service.services import Services, read_addresses
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
    """What one process uses to reach the services; a fork inherits neither usably."""

    services: Services
    threads: ThreadPoolExecutor


class ServicePool:
    """Has reward services judge. Calls may come from any thread, also after a fork.

    `urls`: http(s)://HOST[:PORT][/PREFIX], one or several; the token, if any, is read from
    VERILOOP_SERVICE_TOKEN. `connections`: requests at a time, per service. `request_s`: seconds
    for one response. Several services share each batch; what one of them does not judge goes to
    another, with the same request id. If none answers for `patience_s` seconds, the verdicts are
    `error`, which has no score. `facts` belong to every problem that does not have them itself.
    Raises ValueError for anything but addresses, each named once.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        connections: int = 4,
        request_s: float = REQUEST_S,
        patience_s: float = 300.0,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        variable = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""
        self._addresses = read_addresses(urls, variable)
        self._connections = connections
        self._request_s, self._patience_s = request_s, patience_s
        self._facts = dict(facts)
        self._links = {os.getpid(): self._open_link()}
        self._offered: dict[str, tuple[str, str]] = {}  # by name: fingerprint, URL it came from

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, names: Iterable[str]) -> None:
        """Make sure that each service that answers offers these verifiers, and the same ones.

        Raises KeyError with the nearest name, JudgingError for services that differ,
        ServiceRefusedError where a token is needed, ServiceGoneError, and NoVerdictsError where no
        service listens.
        """
        required = list(dict.fromkeys(names))
        if required and all(name in self._offered for name in required):
            return
        for url, offered in self._link().services.lists().items():
            self._note(url, offered)
            for name in required:
                if name not in offered:
                    close = get_close_matches(name, offered, n=1)
                    hint = f" Did you mean {close[0]!r}?" if close else ""
                    raise KeyError(
                        f"{self._named(url)} has no verifier {name!r}.{hint} "
                        f"Known: {', '.join(sorted(offered))}"
                    )

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """Fingerprints of the services' verifiers, as of `registry.fingerprint`.

        Raises as `warm` does.
        """
        required = list(names)
        self.warm(required)
        return with_settings({name: self._offered[name][0] for name in required}, self._facts)

    def judge_all(self, tasks: Sequence[Task]) -> list[Verdict]:
        """One verdict per task, in order; `error` for all that the services leave open.

        An item that is larger than a service accepts is such an `error`, which names its index
        and size; it is not sent again.

        Raises KeyError for a verifier that a service lacks, ServiceRefusedError for a request
        that it refuses, JudgingError when its verifiers have changed or are not those of the other
        services, and RuntimeError when the pool is closed.
        """
        verdicts: dict[int, Verdict] = {}
        try:
            self.warm({problem.verifier for problem, _ in tasks})
        except (ServiceGoneError, NoVerdictsError) as gone:
            return [_error(str(gone)) for _ in tasks]
        encoded: dict[int, bytes] = {}
        for index, task in enumerate(with_facts(tasks, self._facts)):
            try:
                encoded[index] = _encoded(task)
            except (ValueError, TypeError) as failure:
                verdicts[index] = _error(describe(failure))
        for judged in self._link().threads.map(self._judge, self._parts(encoded)):
            verdicts |= judged
        return [verdicts[index] for index in range(len(tasks))]

    def close(self) -> None:
        """Hang up. Harmless when repeated; calls in progress raise RuntimeError."""
        link = self._link()
        link.services.close()
        link.threads.shutdown(cancel_futures=True)

    def _open_link(self) -> _Link:
        return _Link(
            Services(self._addresses, request_s=self._request_s, patience_s=self._patience_s),
            ThreadPoolExecutor(
                self._connections * len(self._addresses), thread_name_prefix="reward-service"
            ),
        )

    def _link(self) -> _Link:
        """This process's link. `setdefault` is atomic, and an unused link holds nothing open."""
        process = os.getpid()
        return self._links.get(process) or self._links.setdefault(process, self._open_link())

    def _judge(self, part: _Part) -> dict[int, Verdict]:
        head = json.dumps({"request_id": uuid.uuid4().hex})[:-1].encode()
        body = head + b', "items": [' + b", ".join(part.items) + b"]}"
        ask = partial(self._verdicts, body, len(part.indices))
        try:
            verdicts = self._link().services.call(ask)
        except (ServiceGoneError, NoVerdictsError) as failure:
            return dict.fromkeys(part.indices, _error(str(failure)))
        except ServiceRefusedError as refusal:
            if refusal.status != 413:
                raise
            if len(part.indices) > 1:
                return self._judge_halves(part)
            (index,), (item,) = part.indices, part.items
            return {index: _error(f"item {index} has {len(item)} bytes as JSON: {refusal}")}
        return dict(zip(part.indices, verdicts, strict=True))

    def _verdicts(self, body: bytes, items: int, url: str, caller: Caller) -> list[Verdict]:
        """One service's verdicts on a part. Raises as `Caller.call` does, and JudgingError."""
        response = caller.call("POST", "/v1/verify", body)
        try:
            verdicts, judges = _read(response, items)
        except (ValueError, TypeError, KeyError) as failure:
            raise NoVerdictsError(failure) from failure
        self._note(url, judges)
        return verdicts

    def _judge_halves(self, part: _Part) -> dict[int, Verdict]:
        middle = len(part.indices) // 2
        first = _Part(part.indices[:middle], part.items[:middle])
        second = _Part(part.indices[middle:], part.items[middle:])
        return self._judge(first) | self._judge(second)

    def _note(self, url: str, fingerprints: Mapping[str, str]) -> None:
        """Remember who judges. Raises JudgingError for a difference: one run has one judge."""
        for name, fingerprint in fingerprints.items():
            before, first = self._offered.setdefault(name, (fingerprint, url))
            if before == fingerprint:
                continue
            if url == first:
                raise JudgingError(
                    f"{self._named(url)} judged {name!r} as {before} and now as {fingerprint}: "
                    "rewards before and after cannot be compared"
                )
            raise JudgingError(
                f"the reward services judge {name!r} differently, {first} as {before} and {url} as "
                f"{fingerprint}: rewards of the two cannot be compared; start the same version on "
                "both"
            )

    def _named(self, url: str) -> str:
        """A service in a message: by its URL where there are several."""
        return f"the reward service {url}" if len(self._addresses) > 1 else "the reward service"

    def _parts(self, encoded: dict[int, bytes]) -> list[_Part]:
        """One service gets as many items at once as possible, several get equal parts."""
        services, indices = len(self._addresses), list(encoded)
        if services == 1:
            return _parts(encoded)
        count = services * math.ceil(len(indices) / (services * PART_ITEMS))
        ends = [len(indices) * n // count for n in range(count + 1)] if count else []
        shares = [indices[first:end] for first, end in pairwise(ends)]
        return [part for share in shares for part in _parts({i: encoded[i] for i in share})]


def _parts(encoded: dict[int, bytes]) -> list[_Part]:
    """Parts of at most PART_ITEMS items and, if they have several, PART_BYTES."""
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


def _read(response: Any, items: int) -> tuple[list[Verdict], dict[str, str]]:
    """The verdicts of a response, and the fingerprints of who judged.

    Raises ValueError, TypeError or KeyError for anything else.
    """
    verdicts = [Verdict(**record) for record in response["verdicts"]]
    if len(verdicts) != items:
        raise ValueError(f"{len(verdicts)} verdicts on {items} items")
    return verdicts, dict(response["judged_by"]["verifiers"])


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
