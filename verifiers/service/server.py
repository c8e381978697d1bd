"""The process of `veriloop serve`: settings, warm-up, and an orderly shutdown."""

import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal, Self

from veriloop.sandbox.backends import open_backend
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.sockets import LOCAL, listen, require_token
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import all_verifiers, get
from veriloop.verifiers.service.app import build
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.metrics import Metrics
from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.queue import Desk
from veriloop.verifiers.service.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one service.

    Raises ValueError for a host but loopback without a token: clients may run programs.
    """

    host: str = LOCAL
    port: int = 0  # 0: a free one
    hosts: Sequence[str] = ()  # names in Host headers, besides loopback and `host`
    token: str = field(default="", repr=False)
    verifiers: Sequence[str] = ()  # to offer; none: all that need no endpoint and no extra
    default: str = ""  # of labels that name no verifier
    workers: int = 1
    limit_s: float = 5.0
    memory_mb: int = 2048
    plugins: Sequence[str] = ()
    sandbox: str = ""  # backend for the dialects that run programs; "": they are left out
    slots: int = 1  # programs of clients at a time
    openrlhf_on_error: Literal["503", "zero"] = "503"
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        require_token(self.host, self.token)


class RewardService:
    """A service that listens at once, and answers from `start` or `serve` until `close`.

    Raises KeyError for an unknown verifier or a default that is not offered, OSError
    for an address in use, and what `open_backend` raises for a sandbox that is not available.
    """

    def __init__(self, settings: Settings) -> None:
        self._stack = ExitStack()
        with ExitStack() as opening:
            self._open(settings, opening)
            self._stack = opening.pop_all()

    def _open(self, settings: Settings, stack: ExitStack) -> None:
        self.socket = stack.enter_context(listen(settings.host, settings.port))
        pool = VerifierPool(
            settings.workers, settings.limit_s, settings.memory_mb, plugins=settings.plugins
        )
        self._pool = stack.enter_context(pool)
        registered = all_verifiers()
        names = tuple(settings.verifiers or sorted(n for n, v in registered.items() if not v.needs))
        for name in (*names, *([settings.default] if settings.default else [])):
            get(name)
        if settings.default and settings.default not in names:
            raise KeyError(
                f"the default verifier {settings.default!r} is not offered; offered: "
                f"{', '.join(names)}"
            )
        metrics = Metrics()
        self.desk = stack.enter_context(
            Desk(
                pool,
                settings.bounds.queue_items,
                metrics.verdict,
                room_bytes=settings.bounds.queue_bytes,
            )
        )
        stack.callback(pool.close)  # closed first: lanes end with what they wait for
        metrics.watch(lambda: self.desk.depth, lambda: pool.restarts)
        self.runner = None
        if settings.sandbox:
            box = open_backend(settings.sandbox, slots=settings.slots)
            self.runner = Runner(box, settings.slots)
            stack.callback(self.runner.close)
        self.judging = Judging(desk=self.desk, names=names, default=settings.default)
        self.app = build(
            self.judging,
            metrics,
            bounds=settings.bounds,
            host=settings.host,
            hosts=settings.hosts,
            token=settings.token,
            runner=self.runner,
            openrlhf_on_error=settings.openrlhf_on_error,
        )
        self.server = _Server(self, settings.bounds)
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def idle(self) -> bool:
        return not self.desk.depth and (self.runner is None or self.runner.idle)

    def warm(self) -> None:
        """Have each worker judge the examples of what is offered; then the service is ready.

        Raises RuntimeError naming a verifier that cannot judge its own example here.
        """
        self._pool.warm(self.judging.names)
        self.judging.ready = True

    def serve(self) -> None:
        """Answer until SIGTERM or Ctrl-C, then finish what is in progress. In the main thread.

        Raises RuntimeError when the warm-up fails.
        """
        threading.Thread(target=self._warm, daemon=True).start()
        self.server.serve_forever()
        if self.failure is not None:
            raise RuntimeError(str(self.failure)) from self.failure

    def start(self) -> Self:
        """Warm up, then answer in a background thread."""
        self.warm()
        self.server.start()
        return self

    def close(self) -> None:
        """Finish what is in progress and end. Harmless when repeated."""
        self.server.drain()
        self.server.join()
        self._stack.close()

    def _warm(self) -> None:
        try:
            self.warm()
        except Exception as failure:  # noqa: BLE001  raised by `serve`
            self.failure = failure
            self.server.should_exit = True


class _Server(HttpServer):
    """Drains before it ends: until nothing is in progress it refuses new work and stays up."""

    def __init__(self, service: RewardService, bounds: Bounds) -> None:
        super().__init__(service.app, service.socket)
        self._service = service
        self._drain_s = bounds.drain_s
        self._deadline: float | None = None

    def drain(self) -> None:
        """Take no more work; end once idle, or after `drain_s`."""
        self._service.desk.draining = True
        if self._deadline is None:
            self._deadline = time.monotonic() + self._drain_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second ends."""
        if self._deadline is not None:
            self.should_exit = True
        self.drain()
        if sig == signal.SIGINT and self.should_exit:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        over = await super().on_tick(counter)
        if self._deadline is None:
            return over
        return over or self._service.idle or time.monotonic() >= self._deadline
