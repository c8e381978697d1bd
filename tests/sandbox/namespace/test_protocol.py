import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.sandbox.namespace.protocol import (
    CODE_BYTES,
    GET_HANDLE,
    HANDLE,
    KILL,
    READY,
    Reaped,
    Report,
    Request,
    Streams,
    pack_code,
    receive_handle,
    receive_report,
    send_request,
    split_code,
)
from veriloop.sandbox.namespace.signals import DEADLY, signalled_status


def test_code_is_split_from_what_the_program_sends():
    result = READY + pack_code(b"code") + b"frame"
    assert split_code(result) == (b"code", READY + b"frame")
    assert split_code(READY + pack_code(b"") + b"frame") == (b"", READY + b"frame")


@pytest.mark.parametrize("length", range(len(READY + pack_code(b"code"))))
def test_code_that_did_not_come_whole_is_none(length):
    partial = (READY + pack_code(b"code"))[:length]
    assert split_code(partial) == (None, partial)


def test_too_much_code_is_not_shared():
    assert pack_code(b"x" * CODE_BYTES).endswith(b"x")
    assert pack_code(b"x" * (CODE_BYTES + 1)) == pack_code(b"")


def test_a_report_that_comes_before_the_handle_stays_to_be_read():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(bytes(Reaped(9, (1, 400_000, 2, 100_000, 7))))
        report = Report(status=9, cpu_s=3.5, peak_kb=7)
        assert receive_handle(ours) is None and receive_report(ours) == report
        socket.send_fds(theirs, [HANDLE], [theirs.fileno()])
        handle = receive_handle(ours)
        assert handle is not None and os.fstat(handle) == os.fstat(theirs.fileno())
        os.close(handle)


ROOT = Path(__file__).resolve().parents[3]
ZYGOTE = """
import os, socket
from veriloop.sandbox.namespace.protocol import receive_request
control = socket.socket(fileno=os.dup2(0, 50))
os.closerange(0, 5)
request = receive_request(control)
found = [os.fstat(fd).st_ino for fd in range(5)] if request else None
control.send(repr((request and request.payload_bytes, found)).encode())
"""


def test_late_orders_are_passed_over_and_streams_land_where_the_child_needs_them():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(60)
    with ours, subprocess.Popen([sys.executable, "-c", ZYGOTE], stdin=theirs, cwd=ROOT) as zygote:
        theirs.close()
        ours.send(KILL)
        ours.send(GET_HANDLE)
        streams = Streams(*[os.memfd_create(f"stream {n}") for n in range(5)])
        send_request(ours, Request(1, 2, 0, 3, 4, 5, 6, 7, 0, 8, payload_bytes=99), streams)
        told = ours.recv(4096).decode()
        assert told == repr((99, [os.fstat(fd).st_ino for fd in streams]))
        streams.close()
    assert zygote.returncode == 0


def test_a_request_without_its_streams_is_none():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", ZYGOTE]
    with ours, theirs, subprocess.Popen(command, stdin=theirs, cwd=ROOT) as zygote:
        ours.send(bytes(8 * len(Request._fields)))
        assert ours.recv(4096) == b"(None, None)"
    assert zygote.returncode == 0


def test_an_exit_in_the_name_of_a_signal_is_reported_as_that_death():
    assert signalled_status((128 + signal.SIGABRT) << 8) == signal.SIGABRT
    assert os.waitstatus_to_exitcode(signalled_status((128 + 40) << 8)) == -40
    for code in (0, 1, 6, 127, 128, 128 + signal.SIGKILL, 128 + signal.SIGCHLD, 255):
        assert signalled_status(code << 8) == code << 8
    assert signalled_status(signal.SIGKILL) == signal.SIGKILL
    assert signal.SIGTERM in DEADLY and not DEADLY & {signal.SIGKILL, signal.SIGSTOP}
