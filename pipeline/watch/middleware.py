"""Middleware that checks the Host header and sets security headers."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import PlainTextResponse

from veriloop.sandbox.remote.sockets import host_name, is_own_name

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class HostGuard:
    """ASGI middleware that refuses requests for foreign hosts and from foreign sites.

    Checking the Host header prevents DNS rebinding: another site's page can point its own name to
    this address, but its requests still carry that name.
    """

    def __init__(self, app: App, *, host: str) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        app = PlainTextResponse(refusal, status_code=403) if refusal else self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, path: str, headers: dict[bytes, str]) -> str:
        """The reason to refuse a request; "" to accept it."""
        name = host_name(headers.get(b"host", ""))
        if not is_own_name(name, self._host):
            return f"this server is not {name!r}; use the address of {self._host}"
        foreign = headers.get(b"sec-fetch-site", "") in ("cross-site", "same-site")
        return "requests from another site's page are refused" if foreign and path != "/" else ""
