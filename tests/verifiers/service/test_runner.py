"""Programs of clients: what the executor refuses is theirs, what fails is the service's."""

import asyncio

import pytest

from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.service.runner import Runner


class Box:
    def close(self):
        pass


@pytest.fixture
def runner():
    opened = Runner(Box(), slots=1)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("failure", "status", "detail"),
    [
        (ValueError("no language 'lisp'"), 422, "no language 'lisp'"),
        (SandboxUnavailableError("no cgroup"), 503, "SandboxUnavailableError: no cgroup"),
        (RuntimeError("closed"), 503, "RuntimeError: closed"),
        (OSError(24, "Too many open files"), 503, "OSError: [Errno 24] Too many open files"),
        (KeyError("slot"), 503, "KeyError: 'slot'"),
    ],
)
def test_a_failure_of_the_executor_is_a_503(runner, failure, status, detail):
    def run(box):
        raise failure

    with pytest.raises(Refusal) as refused:
        asyncio.run(runner.call(run))
    assert (refused.value.status, refused.value.detail) == (status, detail)
    assert bool(refused.value.headers) == (status == 503)
    assert runner.idle


def test_a_result_is_returned(runner):
    assert asyncio.run(runner.call(lambda box, value: (type(box), value), 3)) == (Box, 3)
