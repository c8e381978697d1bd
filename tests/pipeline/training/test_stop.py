"""Ctrl-C once asks, twice insists, and afterwards means what it meant before."""

import signal
import subprocess
import sys
import threading

import pytest

from veriloop.pipeline.training.stop import CommandSignals, StopRequest

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def handlers():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


def test_nobody_has_asked_at_first():
    with StopRequest() as stop:
        assert stop.requested is False


@BOTH
def test_the_first_signal_only_asks(number):
    with StopRequest() as stop:
        signal.raise_signal(number)
        assert stop.requested is True


@BOTH
def test_the_second_signal_interrupts_at_once(number):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert stop.requested is True


@BOTH
def test_the_first_signal_says_what_happens_and_what_a_second_one_loses(number, capfd):
    with StopRequest():
        signal.raise_signal(number)
        notice = capfd.readouterr().err
        assert "finished and saved first" in notice and "a second Ctrl-C" in notice
        assert "loses the step" in notice
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert capfd.readouterr().err == ""


def test_handlers_are_restored_when_it_closes():
    before = handlers()
    with StopRequest():
        assert handlers() != before
        signal.raise_signal(signal.SIGINT)
    assert handlers() == before


def test_handlers_are_restored_after_an_error_too():
    before = handlers()
    with pytest.raises(ZeroDivisionError), StopRequest():
        1 / 0  # noqa: B018
    assert handlers() == before


def test_a_handler_of_ones_own_comes_back():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGTERM)
        assert stop.requested and heard == []
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_it_leaves_the_signals_alone():
    before, seen = handlers(), []

    def work():
        with StopRequest() as stop:
            seen.append((stop.requested, handlers()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)] and handlers() == before


def test_a_second_run_in_one_process_starts_unasked():
    with StopRequest():
        signal.raise_signal(signal.SIGINT)
    with StopRequest() as again:
        assert again.requested is False


def test_in_a_command_the_first_signal_interrupts_and_handlers_come_back():
    before = handlers()
    with pytest.raises(KeyboardInterrupt), CommandSignals():
        signal.raise_signal(signal.SIGTERM)
    assert handlers() == before


@pytest.mark.parametrize("inner", ["", "with StopRequest() as stop:"])
@BOTH
def test_in_a_command_the_second_signal_ends_the_process_at_once(number, inner):
    script = f"""
import signal
import subprocess
import sys
from contextlib import suppress
from veriloop.pipeline.training.stop import CommandSignals, StopRequest
with CommandSignals():
    {inner or "if True:"}
        with suppress(KeyboardInterrupt):
            signal.raise_signal({int(number)})
        print("first", flush=True)
        try:
            signal.raise_signal({int(number)})
        finally:
            print("no cleanup", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (130, "first\n")
    assert "ended at once" in ended.stderr


@BOTH
@pytest.mark.parametrize("signals", [1, 2])
def test_after_a_command_the_first_signal_is_ignored_and_the_second_ends_the_process(
    number, signals
):
    script = f"""
import atexit
import signal
import sys
from veriloop.pipeline.training.stop import uninterrupted_exit

@atexit.register
def clean():
    for _ in range({signals}):
        signal.raise_signal({int(number)})
    print("cleaned", flush=True)

sys.exit(uninterrupted_exit(3))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (3, "cleaned\n" if signals == 1 else "")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("met", "rank", "asked", "said"),
    [
        (True, 0, False, "saved"),
        (True, 0, True, "saved"),
        (True, 1, False, "trained along"),  # rank 0 ends it
        (False, 0, False, ""),
        (False, 1, False, ""),
    ],
)
def test_a_rank_whose_launcher_is_killed_stops_once(met, rank, asked, said):
    script = f"""
import os, signal, sys, time
from veriloop.pipeline.training import stop
stop.WATCH_S = 0.01
reader, writer = os.pipe()
if os.fork():
    os.wait()  # for the launcher; subprocess.run waits for the rank, which keeps the pipes
    sys.exit()
launcher = os.getpid()
if os.fork():
    os.read(reader, 1)
    os.kill(launcher, signal.SIGKILL)
    signal.pause()
with stop.CommandSignals(), stop.StopRequest() as request:
    met = stop.stop_with_launcher({rank})
    if {met}:
        met()
    if {asked}:
        signal.raise_signal(signal.SIGINT)
    os.write(writer, b"x")
    while os.getppid() == launcher or not (request.requested or {rank}):
        time.sleep(0.01)
    time.sleep(0.2)  # a second signal would end it
    print("saved" if request.requested else "trained along", flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.strip() == said
    told = f"which started rank {rank}, has ended; the run stops" in ran.stderr
    assert told is not (met and rank == 1)


RELEASES_LATE = """
import builtins, sys, time

import torch
import torch.distributed as dist
from veriloop.pipeline.training.stop import ProcessEnd

class Slow:  # lets other threads run while the interpreter is finalized
    def __del__(self, sleep=time.sleep):
        sleep(0.2)

end = ProcessEnd()
builtins.slow = Slow()
sys.setswitchinterval(100)  # a thread of gloo that needs the interpreter waits
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
group = dist.group.WORLD  # as a device mesh keeps it
for _ in range(100_000):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    if tensor._use_count() > 1:
        break
else:
    sys.exit("no thread of gloo kept a tensor")
print("ended with", tensor._use_count())
end.code = 3
"""


def test_a_process_with_a_thread_that_releases_a_tensor_late_ends_with_its_code(tmp_path):
    words = [sys.executable, "-c", RELEASES_LATE, str(tmp_path / "store")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (3, "")
    assert ended.stdout.startswith("ended with ")


@pytest.mark.parametrize(
    ("last", "code"), [("end.code = 0", 0), ("sys.exit(5)", 1), ("raise ValueError", 1)]
)
def test_a_process_end_calls_exit_handlers_and_flushes(last, code):
    script = f"""
import atexit, sys
from veriloop.pipeline.training.stop import ProcessEnd
end = ProcessEnd()
atexit.register(print, "handled")
{last}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (code, "handled\n")
    assert ("ValueError" in ended.stderr) == ("ValueError" in last)
