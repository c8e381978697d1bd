"""Ports for servers that other processes open."""

import socket


def reserved_port(host: str) -> socket.socket:
    """A socket that holds a free port of `host` until it is closed: no program is given that port.

    A server with SO_REUSEADDR, which most set, listens on it meanwhile; systems other than Linux
    ask it for SO_REUSEPORT too.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "SO_REUSEPORT"):
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((host, 0))
    return held
