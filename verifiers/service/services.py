"""One or several reward services: which one takes a call, and who takes it after a failure."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from veriloop.sandbox.remote.connection import Address
from veriloop.verifiers.service.caller import (
    LONGEST_WAIT_S,
    Caller,
    NoVerdictsError,
    ServiceFaultError,
    ServiceGoneError,
    ServiceRefusedError,
)

LIST_PATH = "/v1/verifiers"
LIST_S = 10.0  # for this list, from one of several services
_FIRST_WAIT_S = 0.2  # of one call, after every service has failed
_FIRST_REST_S = 1.0  # of a service that is left out
_REST_PER_SLOW_S = 10.0  # of its rest per second that a request took to time out

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(slots=True)
class _Service:
    """A service and its state."""

    name: str  # its URL
    caller: Caller
    open: int = 0  # calls in progress
    latest: int = 0  # number of the latest call that it took
    faults: int = 0  # since its last verdicts; more than 0: left out
    rests_until: float = 0.0  # on the monotonic clock

    @property
    def rest_s(self) -> float:
        """Seconds between its tries while it is left out."""
        return min(_FIRST_REST_S * 2 ** min(self.faults - 1, 10), LONGEST_WAIT_S)


@dataclass(slots=True)
class _Tries:
    """The failures of one call."""

    wait_s: float = _FIRST_WAIT_S
    failed_at: float = 0.0  # the first time; 0: never
    reasons: dict[str, str] = field(default_factory=dict[str, str])  # the last ones, by service
    failed: set[str] = field(default_factory=set[str])  # since the last wait
    not_before: dict[str, float] = field(default_factory=dict[str, float])  # of busy services

    def allow(self, name: str, now: float) -> bool:
        """Whether the service may be tried now."""
        return name not in self.failed and self.not_before.get(name, 0.0) <= now

    def note(self, name: str, fault: ServiceFaultError) -> None:
        now = time.monotonic()
        self.failed_at = self.failed_at or now
        self.failed.add(name)
        self.reasons[name] = str(fault)
        self.not_before[name] = now + fault.least_s


def read_addresses(urls: str | Sequence[str], token_variable: str = "") -> list[Address]:
    """The addresses of one or several services.

    Raises ValueError for anything but addresses, for none, and for one that is named twice.
    """
    named = [urls] if isinstance(urls, str) else list(urls)
    if not named:
        raise ValueError("an empty list names no service; name at least one URL")
    addresses = [Address.read(url, token_variable) for url in named]
    known = [address.url for address in addresses]
    if twice := [url for url in known if known.count(url) > 1]:
        raise ValueError(f"{twice[0]} is named twice; name each service once")
    return addresses


class Services:
    """Calls to the services of one process, from any thread.

    The service with the fewest open calls takes a call. After a failure another one takes it at
    once; when all have failed, they are tried again after a pause, until `patience_s` seconds
    after the call's first failure. Waiting up to `request_s` seconds for a response is no failure.
    One of several that fails, unless it is only busy, is left out for a while. A warning names it,
    once until it judges again. Before it gets a call again it must list its verifiers.
    """

    def __init__(
        self, addresses: Sequence[Address], *, request_s: float, patience_s: float
    ) -> None:
        self._addresses = addresses
        self._several = len(addresses) > 1
        self._request_s, self._patience_s = request_s, patience_s
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._calls = 0  # so far
        self._services = [self._service(address) for address in addresses]

    def _service(self, address: Address) -> _Service:
        name = address.url if self._several else ""
        caller = Caller(address, request_s=self._request_s, name=name)
        return _Service(address.url, caller)

    def lists(self) -> dict[str, dict[str, str]]:
        """The fingerprints of the verifiers that each service offers, by URL.

        Services that fail are missing, but never all of them. Raises as `call`.
        """
        listed: dict[str, dict[str, str]] = {}
        for service in self._services if self._several else ():
            seen = service.faults
            try:
                listed[service.name] = _fingerprints(service.caller, LIST_S)
            except ServiceFaultError as fault:
                self._leave_out(service, seen, fault)
        if not listed:
            url, offered = self.call(lambda url, caller: (url, _fingerprints(caller)))
            listed[url] = offered
        return listed

    def call(self, ask: Callable[[str, Caller], Result]) -> Result:
        """What `ask` returns, given the URL and the caller of a service.

        Raises ServiceGoneError, what `ask` raises except ServiceFaultError, NoVerdictsError from a
        single service, and RuntimeError once closed.
        """
        tries = _Tries()
        while not self._closed.is_set():
            while (service := self._begin(tries)) is not None:
                try:
                    return self._ask(service, ask)
                except ServiceFaultError as fault:
                    if isinstance(fault, NoVerdictsError) and not self._several:
                        raise
                    tries.note(service.name, fault)
            self._pause(tries)
        raise RuntimeError("this connection to the reward service is closed")

    def close(self) -> None:
        """End every call that waits; one that is being answered ends after its response."""
        self._closed.set()
        for service in self._services:
            service.caller.close()

    def _begin(self, tries: _Tries) -> _Service | None:
        """Begin a call of the next service; None if all have failed since the last pause.

        Services that are left out come last: a call fails only after all were tried.
        """
        with self._lock:
            now = time.monotonic()
            free = [service for service in self._services if tries.allow(service.name, now)]
            if not free:
                return None
            service = min(free, key=lambda s: (max(s.rests_until - now, 0.0), s.open, s.latest))
            self._calls += 1
            service.open, service.latest = service.open + 1, self._calls
            if service.faults:  # one call at a time tries it
                service.rests_until = now + self._request_s
            return service

    def _ask(self, service: _Service, ask: Callable[[str, Caller], Result]) -> Result:
        seen = service.faults
        try:
            if seen and self._several:  # a service that hangs keeps the call for LIST_S only
                _fingerprints(service.caller, LIST_S)
            result = ask(service.name, service.caller)
        except ServiceFaultError as fault:
            self._leave_out(service, seen, fault)
            raise
        except ServiceRefusedError:  # it judges, but not this
            self._take_back(service)
            raise
        finally:
            with self._lock:
                service.open -= 1
        self._take_back(service)
        return result

    def _take_back(self, service: _Service) -> None:
        with self._lock:
            service.faults, service.rests_until = 0, 0.0

    def _leave_out(self, service: _Service, seen: int, fault: ServiceFaultError) -> None:
        """Let a service rest. `seen`: its faults when the call began.

        Of calls that fail together one counts, or a service that ended would rest for long.
        """
        if not self._several:
            return
        with self._lock:
            if service.faults != seen or (fault.busy and not seen):
                return
            service.faults += not fault.busy
            # A service that hangs must not hold up much more of the calls than this share.
            rest_s = max(service.rest_s, _REST_PER_SLOW_S * fault.slow_s)
            service.rests_until = time.monotonic() + rest_s
        if not seen:
            _log.warning(
                "the reward service %s is left out until it answers again: %s", service.name, fault
            )

    def _pause(self, tries: _Tries) -> None:
        """Wait until services may be tried again. Raises ServiceGoneError after `patience_s`."""
        now = time.monotonic()
        soonest = min(tries.not_before.get(service.name, 0.0) for service in self._services)
        pause = max(soonest - now, tries.wait_s * random.uniform(0.5, 1.0))  # callers spread out
        if now + pause - tries.failed_at > self._patience_s:
            raise ServiceGoneError(self._gone(tries))
        self._closed.wait(pause)
        tries.failed.clear()
        tries.wait_s = min(2 * tries.wait_s, LONGEST_WAIT_S)

    def _gone(self, tries: _Tries) -> str:
        if self._several:
            reasons = "; ".join(f"{url}: {reason}" for url, reason in tries.reasons.items())
            return f"no verdict from any reward service in {self._patience_s:g} s: {reasons}"
        (address,), (reason,) = self._addresses, tries.reasons.values()
        return f"no verdict from {address} in {self._patience_s:g} s: {reason}"


def _fingerprints(caller: Caller, seconds: float | None = None) -> dict[str, str]:
    """Of the verifiers that a service offers, by name."""
    answer = caller.call("GET", LIST_PATH, seconds=seconds)
    try:
        return {record["name"]: record["fingerprint"] for record in answer["verifiers"]}
    except (KeyError, TypeError) as failure:
        raise NoVerdictsError(failure) from failure
