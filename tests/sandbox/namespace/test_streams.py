"""What is left in the pipes of a program that has ended."""

import fcntl
import os
import threading

import pytest

from veriloop.sandbox.namespace.streams import Pipes

HELD = 1 << 20  # bytes of a pipe: 16 pages, which some arm64 kernels have of 64 KiB


@pytest.fixture
def pipe():
    """A pipe that holds HELD bytes, with its own closing of the end to write."""
    ends = list(os.pipe())
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, HELD)
    yield ends
    for fd in ends:
        os.close(fd)


def test_all_that_a_large_pipe_holds_is_read(pipe):
    text = os.urandom(HELD)
    assert os.write(pipe[1], text) == HELD
    os.close(pipe.pop())
    pipes = Pipes({pipe[0]: 2 * HELD}, drop=-1, read={pipe[0]: bytearray()})
    assert pipes.finish() == [text] and not pipes.overflowed
    assert pipes.finish() == [text]


def test_a_copy_of_the_end_to_write_that_stays_open_holds_nobody_up(pipe):
    os.write(pipe[1], b"text")
    pipes = Pipes({pipe[0]: HELD}, drop=-1, read={pipe[0]: bytearray()})
    done = []
    for _ in range(2):
        reader = threading.Thread(target=lambda: done.append(pipes.finish()), daemon=True)
        reader.start()
        reader.join(10)
    assert done == [[b"text"]] * 2
