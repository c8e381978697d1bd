"""Trackers that stand in for real ones: they keep what they are given, fail, or block."""

import threading

import pytest


class Keeping:
    """Keeps its rows; `gate` lets one row through at a time where it is there."""

    def __init__(self, reached=-1, *, gate=None, failing_at=None):
        self.reached, self.rows, self.closed = reached, [], False
        self.tables = {}  # by step
        self.gate, self.failing_at = gate, failing_at

    def log(self, step, row, table):
        if self.gate is not None:
            self.gate.acquire()
        if step == self.failing_at:
            raise OSError("the disk is full")
        self.rows.append((step, dict(row)))
        if table is not None:
            self.tables[step] = table

    def close(self):
        self.closed = True


@pytest.fixture
def keeping():
    return Keeping


@pytest.fixture
def blocked():
    """A tracker that takes nothing until the test is over."""
    gate = threading.Semaphore(0)
    yield Keeping(gate=gate)
    gate.release(1000)
