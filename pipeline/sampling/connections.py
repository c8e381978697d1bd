"""Connections to servers, as many as the limit on open files allows: each is an open file."""

import errno
import os
import resource
from contextlib import suppress

import httpx2

from veriloop.pipeline.errors import StageError

KEPT = 4  # one in so many is kept for everything else


def connected(servers: int, asks: int) -> tuple[httpx2.AsyncHTTPTransport, int]:
    """Connections by TCP, and how many of so many asks at once each server can have.

    Raises StageError if the limit on open files leaves not even one for each.
    """
    count = _allowed(servers * asks)
    if count < servers:
        raise StageError(
            f"the limit on open files leaves {count} connections for {servers} servers of "
            "cluster.samplers; raise it (ulimit -n)"
        )
    limits = httpx2.Limits(max_connections=count or None, max_keepalive_connections=None)
    return httpx2.AsyncHTTPTransport(limits=limits, trust_env=False), count // max(servers, 1)


def _allowed(wanted: int) -> int:
    """So many connections, or as many as the limit allows. The soft limit is raised for them as far
    as the hard one allows."""
    used = len(os.listdir("/dev/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = (used + wanted) * KEPT // (KEPT - 1) + 1
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < need and soft != hard:
        raised = need if hard == resource.RLIM_INFINITY else min(need, hard)
        with suppress(OSError, ValueError):  # some systems allow less than their hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return max(0, min(wanted, soft - soft // KEPT - used))


def out_of_files(failure: BaseException | None) -> bool:
    """Whether an error, or what it comes from, is that of a limit on open files."""
    if failure is None:
        return False
    if isinstance(failure, BaseExceptionGroup):
        return any(map(out_of_files, failure.exceptions))
    if isinstance(failure, OSError) and failure.errno in (errno.EMFILE, errno.ENFILE):
        return True
    return out_of_files(failure.__cause__ or failure.__context__)
