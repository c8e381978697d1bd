"""What the service answers, apart from HTTP: from a checked request to a response."""

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.executor import Executor, Program, Stdin
from sandbox.limits import Limits
from sandbox.remote.ends import to_reply
from sandbox.remote.messages import RunReply, RunRequest, read_request

Route = Callable[[Any], dict[str, Any]]  # JSON of the request, None for a GET -> JSON to answer
Routes = Mapping[tuple[str, str], Route]  # by method and path

_USUAL = Limits()


def run_code(box: Executor, request: RunRequest) -> RunReply:
    """Run a program on its input. Raises ValueError where the executor refuses the request."""
    program = Program(source=request.code, language=request.language)
    limits = request.limits or _limits(request)
    return to_reply(box.run(program, Stdin(data=request.stdin.encode()), limits))


def _limits(request: RunRequest) -> Limits:
    """The API knows time on the clock and memory alone; the rest is as usual."""
    memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else _USUAL.memory_mb
    seconds = request.run_timeout
    return Limits(cpu_s=seconds, wall_s=seconds, memory_mb=memory_mb)


def sandbox_routes(box: Executor) -> Routes:
    """The routes around one executor. They raise FieldError for a request that is wrong."""
    return {
        ("POST", "/run_code"): lambda data: run_code(box, read_request(data)).flat(),
        ("GET", "/health"): lambda _: {"backend": box.backend, "tier": box.tier},
    }
