"""A holder of a container that is interrupted starts no run; no Docker daemon is needed."""

import pytest

from veriloop.sandbox.docker import pool
from veriloop.sandbox.docker.engine import ContainerLimits, ContainerSpec
from veriloop.sandbox.docker.stream import LostContainerError
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits


def test_closing_while_a_container_starts_ends_the_run_at_once(monkeypatch):
    events = []
    spec = ContainerSpec(image="x", runtime=None, namespaces=True)
    holder = pool._ContainerHolder(spec, (), 10)

    class Fake:
        runs, limits = 0, ContainerLimits()

        def __init__(self, *_):
            holder.interrupt()

        def run(self, *_):
            events.append("runs")

        def close(self):
            events.append("closed")

    monkeypatch.setattr(pool, "Container", Fake)
    with pytest.raises(LostContainerError, match="closed"):
        holder.run(Program(source=""), [Stdin()], Limits())
    holder.close()
    assert events == ["closed"]
