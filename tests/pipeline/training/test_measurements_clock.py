"""Seconds by part: added up, nested, and none lost to a failure."""

import threading
from types import SimpleNamespace

import pytest

from veriloop.pipeline.training import measurements
from veriloop.pipeline.training.measurements import Clock, span


@pytest.fixture
def ticks(monkeypatch):
    def at(*times):
        left = iter(times)
        monkeypatch.setattr(measurements, "monotonic", lambda: next(left))

    return at


def test_parts_add_up_and_survive_a_failure(ticks):
    ticks(0.0, 1.0, 10.0, 12.5, 20.0, 20.25)
    clock = Clock()
    with clock("sample"):
        pass
    with pytest.raises(KeyError), clock("update"):
        raise KeyError
    with clock("sample"):
        pass
    assert clock.seconds == {"sample": 1.25, "update": 2.5}
    assert clock.metrics() == {"step_time": 3.75, "time/sample": 1.25, "time/update": 2.5}


def test_a_part_inside_another_is_named_after_it_and_not_counted_twice(ticks):
    ticks(0.0, 1.0, 3.0, 4.0, 4.5, 5.0)
    clock = Clock()
    with clock("update"):
        with span("forward"):
            pass
        with span("backward"):
            pass
    assert clock.seconds == {"update/forward": 2.0, "update/backward": 0.5, "update": 5.0}
    assert clock.total() == 5.0


def test_without_a_clock_a_span_times_nothing(ticks):
    ticks()
    with span("forward"):
        pass


def test_another_thread_s_spans_are_not_this_clock_s(ticks):
    ticks(0.0, 1.0)
    clock = Clock()

    def work():
        with span("elsewhere"):
            pass

    with clock("update"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert clock.seconds == {"update": 1.0}


def test_concurrent_work_is_recorded_but_not_part_of_the_step(ticks):
    ticks(0.0, 2.0, 0.0, 9.0)
    clock, other = Clock(), Clock()
    with clock("update"):
        pass
    with other("sample"):
        pass
    clock.add_concurrent(other)
    assert clock.metrics() == {"step_time": 2.0, "time/update": 2.0, "time/beside/sample": 9.0}


@pytest.mark.parametrize(("exact", "waits"), [(False, 0), (True, 2)])
def test_a_clock_waits_for_the_accelerator_only_where_it_is_exact(monkeypatch, exact, waits):
    asked = []
    cuda = SimpleNamespace(is_available=lambda: True, synchronize=lambda: asked.append(1))
    monkeypatch.setattr(measurements.torch, "cuda", cuda)
    clock = Clock(exact=True) if exact else Clock()
    with clock("part"):
        pass
    assert len(asked) == waits
    cuda.is_available = lambda: False
    with Clock(exact=True)("part"):
        pass
    assert len(asked) == waits
