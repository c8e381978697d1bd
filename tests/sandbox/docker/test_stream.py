"""The host's end of a container: frames undone, caps kept, deadlines kept."""

import socket
import struct
import threading
import time

import pytest

from veriloop.sandbox.docker.stream import LostContainerError, Stream


def framed(data, kind=1):
    return struct.pack(">BxxxL", kind, len(data)) + data


@pytest.fixture
def ends():
    """A stream, and the socket of whoever plays the daemon."""
    ours, theirs = socket.socketpair()
    stream = Stream(ours)
    with theirs:
        yield stream, theirs
    stream.close()


def soon(seconds=2.0):
    return time.monotonic() + seconds


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 1000])
def test_output_is_the_same_however_it_is_cut(ends, cut):
    stream, daemon = ends
    data = framed(b"ab") + framed(b"noise", kind=2) + framed(b"") + framed(b"cdef")
    for start in range(0, len(data), cut):
        daemon.sendall(data[start : start + cut])
    assert [stream.take(size, soon()) for size in (1, 4, 0, 1)] == [b"a", b"bcde", b"", b"f"]
    assert stream.idle and stream.errors == b"noise"


def test_more_than_was_asked_for_is_noticed(ends):
    stream, daemon = ends
    daemon.sendall(framed(b"abc"))
    assert stream.take(2, soon()) == b"ab" and not stream.idle


def test_a_flood_is_taken_in_no_faster_than_it_is_asked_for(ends):
    stream, daemon = ends
    daemon.setblocking(False)
    sent = 0
    try:
        while sent < 64 << 20:
            sent += daemon.send(framed(b"x" * 60000))
    except BlockingIOError:
        pass
    assert stream.take(10, soon()) == b"x" * 10
    assert len(stream._output) + len(stream._raw) <= 1 << 18


def test_of_errors_only_the_end_is_kept(ends):
    stream, daemon = ends
    daemon.sendall(framed(b"y" * 10_000 + b"end", kind=2) + framed(b"a"))
    stream.take(1, soon())
    assert len(stream.errors) == 4096 and stream.errors.endswith(b"end")


def test_silence_ends_at_the_deadline(ends):
    stream, _ = ends
    began = time.monotonic()
    with pytest.raises(LostContainerError, match="timed out"):
        stream.take(1, soon(0.3))
    assert 0.2 < time.monotonic() - began < 10


def test_a_slow_drip_buys_no_time(ends):
    stream, daemon = ends
    over = threading.Event()

    def drip():
        while not over.wait(0.02):
            daemon.sendall(framed(b"z"))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(LostContainerError, match=r"timed out|past its deadline"):
            stream.take(1 << 20, soon(0.4))
    finally:
        over.set()
        thread.join()


def test_the_end_is_reported_with_its_last_words(ends):
    stream, daemon = ends
    daemon.sendall(framed(b"Traceback\nImportError: no sandbox\n", kind=2))
    daemon.shutdown(socket.SHUT_WR)
    with pytest.raises(LostContainerError, match="ended: ImportError: no sandbox"):
        stream.take(1, soon())


def test_writing_to_who_does_not_read_ends_at_the_deadline(ends):
    stream, _ = ends
    with pytest.raises(LostContainerError, match="cannot be written to"):
        stream.send(b"x" * (32 << 20), soon(0.3))


def test_an_interrupt_wakes_the_reader(ends):
    stream, _ = ends
    threading.Timer(0.1, stream.interrupt).start()
    with pytest.raises(LostContainerError):
        stream.take(1, soon(5))
    assert stream.idle
