"""Ctrl-C once asks, twice insists, and afterwards means what it meant before."""

import signal
import threading

import pytest

from pipeline.stop import StopRequest

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def handlers():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


def test_nobody_has_asked_at_first():
    with StopRequest() as stop:
        assert stop.asked is False


@BOTH
def test_the_first_signal_only_asks(number):
    with StopRequest() as stop:
        signal.raise_signal(number)
        assert stop.asked is True


@BOTH
def test_the_second_signal_interrupts_at_once(number):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert stop.asked is True


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
        assert stop.asked and heard == []
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_it_leaves_the_signals_alone():
    before, seen = handlers(), []

    def work():
        with StopRequest() as stop:
            seen.append((stop.asked, handlers()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)] and handlers() == before


def test_a_second_run_in_one_process_starts_unasked():
    with StopRequest():
        signal.raise_signal(signal.SIGINT)
    with StopRequest() as again:
        assert again.asked is False
