"""A headless Chromium with one page, controlled over its DevTools protocol.

`requests` and `errors` report what a page fetches, and its exceptions and error messages.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--mute-audio",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-dev-shm-usage", "--remote-debugging-port=0",
)  # fmt: skip
START_S, ANSWER_S = 60.0, 60.0  # a busy machine is no failure
OWN = ("data:", "blob:", "about:")  # addresses that leave nothing


def find_chromium() -> str | None:
    """The path of the installed browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """The browser with one tab, closed on exit."""

    def __init__(self, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        program = find_chromium()
        if program is None:
            raise FileNotFoundError(f"none of {', '.join(NAMES)} is installed")
        self._number = 0
        self.events: list[dict[str, Any]] = []
        with ExitStack() as stack:
            self._socket = self._opened(stack, program)
            self._started = stack.pop_all()
        for part in ("Runtime", "Page", "Log", "Network"):
            self.call(f"{part}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def _opened(self, stack: ExitStack, program: str) -> ClientConnection:
        """A connection to the browser's tab; `stack` ends all processes started for it."""
        profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(profile))
        # as root it has no sandbox of its own; the page is ours, and reaches no network
        words = [program, "--no-sandbox", *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = stack.enter_context(subprocess.Popen(words, **quiet))
        stack.callback(process.terminate)
        port_file, until = folder / "DevToolsActivePort", time.monotonic() + START_S
        while not (port_file.is_file() and port_file.read_text().count("\n")):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("Chromium does not start")
            time.sleep(0.05)
        port = port_file.read_text().split("\n")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as response:
            tabs = json.load(response)
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        return stack.enter_context(connect(address, max_size=None))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a protocol command. Raises RuntimeError for an error."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        self._socket.send(json.dumps(request))
        while True:
            message = json.loads(self._socket.recv(timeout=ANSWER_S))
            if message.get("id") == self._number:
                break
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def open(self, address: str) -> None:
        """Open a page, wait until it has loaded, and discard the events of the previous one."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression: str, seconds: float = ANSWER_S) -> Any:
        """Wait until a JavaScript expression is truthy. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not (value := self.value(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; {self.errors}")
            time.sleep(0.05)
        return value

    def press(self, key: str) -> None:
        """Press and release one key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path, selector: str = "") -> None:
        """A PNG of the viewport, or of one whole element."""
        clip: dict[str, Any] = {}
        if selector:
            box = self.value(
                f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
                ".getBoundingClientRect(); return {x: b.x + scrollX, y: b.y + scrollY, "
                "width: b.width, height: b.height}; })()"
            )
            clip = {"clip": {**box, "scale": 1}, "captureBeyondViewport": True}
        result = self.call("Page.captureScreenshot", format="png", **clip)
        path.write_bytes(base64.b64decode(result["data"]))

    @property
    def errors(self) -> Sequence[str]:
        """Exceptions, console messages of errors, and refusals of the page's own policy."""
        errors = [event for event in self.events if _is_error(event)]
        return [json.dumps(event["params"])[:500] for event in errors]

    @property
    def requests(self) -> Sequence[str]:
        """Every requested address, the page itself first."""
        sent = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        addresses = [event["params"]["request"]["url"] for event in sent]
        return [address for address in addresses if not address.startswith(OWN)]

    def close(self) -> None:
        self._started.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_error(event: dict[str, Any]) -> bool:
    params = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return True
        case "Runtime.consoleAPICalled":
            return params["type"] in ("error", "warning", "assert")
        case "Log.entryAdded":
            return params["entry"]["level"] in ("error", "warning")
        case _:
            return False
