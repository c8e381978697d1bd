"""Sockets that services listen on, and who can reach them."""

import ipaddress
import socket
from collections.abc import Collection

LOCAL = "127.0.0.1"


def loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str) -> None:
    """Raise ValueError for a host that others can reach and no token to keep them out."""
    if not token and not loopback(host):
        raise ValueError(
            f"host {host!r} is not loopback, so others may reach it: a token is needed"
        )


def host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


def is_own_name(name: str, host: str, others: Collection[str] = ()) -> bool:
    """Whether a request may use the host `name` if the server listens on `host`.

    IP addresses cannot be rebound, so a server beyond loopback accepts every address, its host and
    this machine's name. A server on loopback accepts loopback names only. `others`: further names.
    """
    if loopback(name) or name.lower() in {other.lower() for other in others}:
        return True
    if loopback(host):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in {host.lower(), socket.gethostname().lower()}
    return True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one.

    Raises OSError for an address in use, OverflowError for a port out of range.
    """
    if not 0 <= port <= 65535:  # the resolver would use it modulo 65536
        raise OverflowError(f"port must be 0-65535, got {port}")
    family, _, _, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]  # no host: every interface
    # asyncio turns Nagle's algorithm off only where the protocol is named
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(512)
    except BaseException:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the http:// address of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
