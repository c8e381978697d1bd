"""The server of `veriloop watch`."""

import signal
from pathlib import Path
from types import FrameType

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.watch.app import build
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.sockets import listen, loopback


class Watch(HttpServer):
    """Serves the run in `folder` over HTTP. Listens at once; answers in `serve_forever` or `with`.

    Reads the run's files and writes nothing. Raises RecipeError if there is no run, or for a host
    beyond loopback without `exposed`; OSError for an address in use.
    """

    def __init__(
        self, folder: Path, *, host: str = "127.0.0.1", port: int = 0, exposed: bool = False
    ) -> None:
        if not (folder / "run.json").is_file():
            raise RecipeError(f"{folder} holds no run: it has no run.json")
        if not loopback(host) and not exposed:
            raise RecipeError(
                f"host {host!r} is not loopback: anyone who can reach it could read the prompts, "
                "answers and curves of this run without a password. Pass --exposed to allow it, or "
                "omit --host and use `ssh -L`"
            )
        app = build(folder, host=host, ending=lambda: self.should_exit)
        super().__init__(app, listen(host, port))

    @property
    def url(self) -> str:
        return f"{super().url}/"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully at the first signal, immediately at a second Ctrl-C."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
