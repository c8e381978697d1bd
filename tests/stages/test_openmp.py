"""How threads of OpenMP wait: by what runs beside the command, unless the environment says it."""

import os
from types import SimpleNamespace

import pytest

from veriloop.stages import openmp

CORES = 4


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Function: the choice beside so many running threads, on a machine of CORES."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # or what the choice sets would stay
        monkeypatch.delenv(name)
    monkeypatch.setattr(openmp, "STATISTICS", tmp_path / "stat")
    monkeypatch.setattr(os, "cpu_count", lambda: CORES)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(CORES))

    def choice(*running, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        readings = iter(running)

        def next_reading(_):
            (tmp_path / "stat").write_text(f"cpu 1 2\nprocs_running {next(readings)}\nbtime 3\n")

        next_reading(0)
        monkeypatch.setattr(openmp, "time", SimpleNamespace(sleep=next_reading))
        openmp.choose_waiting()
        return os.environ.get("GOMP_SPINCOUNT")

    return choice


def test_threads_spin_where_nothing_else_runs_for_long(machine):
    assert machine(1, 3, 1, 2, 5) == openmp.SPIN


def test_threads_sleep_beside_a_process_that_always_runs(machine):
    assert machine(2, 3, 2, 2, 5) == openmp.SLEEP


@pytest.mark.parametrize(("threads", "count"), [("3", openmp.SPIN), ("4", openmp.SLEEP)])
def test_a_neighbour_counts_where_it_needs_a_core_of_ours(machine, threads, count):
    assert machine(2, 2, 2, 2, 2, OMP_NUM_THREADS=threads) == count


@pytest.mark.parametrize(
    ("given", "count"), [({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_what_the_environment_says_stays(machine, given, count):
    assert machine(9, 9, 9, 9, 9, **given) == count


def test_another_system_without_this_statistic_spins(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(openmp, "STATISTICS", tmp_path / "none")
    assert machine(9, 9, 9, 9, 9) == openmp.SPIN
