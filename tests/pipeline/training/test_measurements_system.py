"""What a run uses of the machine: its processes, the GPU where there is one, and the disk."""

import os
import subprocess
import sys
import threading
import time
from itertools import count
from types import SimpleNamespace

import pytest

from veriloop.pipeline.training import measurements
from veriloop.pipeline.training.measurements import (
    GpuSampler,
    ProcessUse,
    SystemUse,
    _cpu_seconds,
    descendants,
    process_use,
)

BUSY = """
import subprocess, sys, time
x = bytearray(200 << 20)
while time.process_time() < 0.5:
    pass
below = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(below.pid, flush=True)
input()
below.communicate(b"\\n")
"""
BURN = "import time\nwhile time.process_time() < 0.52: pass"  # 0.5 in ticks, too
STEP_S = 2.0  # by the clock of these tests
TICKS_S = 0.02  # how coarse CPU times in /proc are


@pytest.fixture
def notes():
    return []


@pytest.fixture
def measured(tmp_path, notes, monkeypatch):
    """Steps of two seconds each, by its clock."""
    monkeypatch.setattr(measurements, "monotonic", count(step=STEP_S).__next__)
    return SystemUse(tmp_path, notes.append)


@pytest.fixture
def child():
    """Function: the ids of a child that used 0.5 s of CPU and holds 200 MiB, and of its child."""
    processes = []

    def start():
        words = [sys.executable, "-c", BUSY]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process.pid, int(process.stdout.readline())

    yield start
    for process in processes:
        process.communicate("\n")


@pytest.mark.slow
def test_children_count_with_what_is_below_them(child, measured):
    measured.metrics()
    pids = child()
    assert set(descendants(os.getpid())) >= {os.getpid(), *pids}
    metrics = measured.metrics()
    assert metrics["system/cpu/children"] * STEP_S >= 0.5 - TICKS_S
    assert metrics["system/memory/children"] > 200 / 1024
    assert metrics["system/disk_free"] > 0


@pytest.mark.slow
def test_cpu_use_of_this_process_is_the_cores_it_kept_busy(measured):
    before = time.process_time()
    measured.metrics()
    used = time.process_time()
    while time.process_time() < used + 0.3:
        pass
    metrics = measured.metrics()
    most = time.process_time() - before + TICKS_S
    assert 0.3 - TICKS_S <= metrics["system/cpu/trainer"] * STEP_S <= most
    assert 0.01 < metrics["system/memory/trainer"] < 64


@pytest.mark.slow
def test_a_child_that_has_ended_counts_for_the_step_in_which_it_ran(measured):
    measured.metrics()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert measured.metrics()["system/cpu/children"] * STEP_S >= 0.5 - TICKS_S
    assert measured.metrics().get("system/cpu/children", 0.0) * STEP_S < 0.5 - TICKS_S
    assert process_use(2**22 + 1) is None


@pytest.mark.slow
def test_times_in_proc_are_those_that_the_kernel_tells_a_process():
    subprocess.run([sys.executable, "-c", BURN], check=True)
    use, times = process_use(os.getpid()), os.times()
    assert use.cpu_s == pytest.approx(times.user + times.system, abs=0.1)
    ended = times.children_user + times.children_system
    assert use.ended_children_s == pytest.approx(ended, abs=0.1) and ended >= 0.5


def test_children_count_with_their_own_that_have_ended():
    def use(cpu_s, ended):
        return ProcessUse(cpu_s=cpu_s, ended_children_s=ended, resident_gib=0.0)

    assert _cpu_seconds(use(1.0, 2.0), [use(4.0, 8.0), use(16.0, 32.0)]) == (1.0, 62.0)


class Card:
    """Stands in for torch.cuda: of GPU 1, which this thread uses, 10 of 80 GiB are free, and it is
    busy for half of the time."""

    def __init__(self, utilization=50):
        self.busy, self.user = utilization, threading.current_thread()

    def is_initialized(self):
        return True

    def current_device(self):
        return int(threading.current_thread() is self.user)

    def mem_get_info(self):
        return 10 * 2**30, 80 * 2**30

    def utilization(self, device=None):
        if isinstance(self.busy, Exception):
            raise self.busy
        return self.busy if (self.current_device() if device is None else device) == 1 else 0


def test_the_gpu_is_sampled_between_two_steps_and_not_after_the_end(measured, notes, monkeypatch):
    monkeypatch.setattr(measurements.torch, "cuda", Card())
    monkeypatch.setattr(measurements.GpuSampler.__init__, "__defaults__", (0.001,))
    with measured:
        first = measured.metrics()
        assert first["system/gpu/memory"] == 70.0
        sampled, deadline = None, time.monotonic() + 20
        while sampled is None and time.monotonic() < deadline:
            time.sleep(0.001)
            sampled = measured.metrics().get("system/gpu/utilization")
        assert sampled == 0.5 and notes == []
    assert not measured._gpu._thread.is_alive()


def test_a_gpu_without_nvml_is_reported_once_and_its_memory_still_recorded(
    measured, notes, monkeypatch
):
    monkeypatch.setattr(measurements.torch, "cuda", Card(ModuleNotFoundError("no pynvml")))
    with measured:
        for _ in range(2):
            metrics = measured.metrics()
            assert "system/gpu/utilization" not in metrics and metrics["system/gpu/memory"] == 70.0
        measured._gpu._thread.join(60)  # nothing is left to sample
        assert not measured._gpu._thread.is_alive()
    assert notes == ["GPU utilization is not recorded: ModuleNotFoundError: no pynvml"]


def test_the_mean_is_of_the_samples_since_the_last_call(monkeypatch):
    monkeypatch.setattr(measurements.torch, "cuda", Card(20))
    sampler = GpuSampler(print, every_s=3600.0)
    sampler._samples += [0.2, 0.6]
    assert sampler.mean() == pytest.approx(0.4) and sampler.mean() is None
    assert sampler._thread.daemon and sampler._thread.name == "gpu-utilization"
    sampler.close()


def test_without_proc_only_the_disk_is_recorded(measured, monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "PROC", tmp_path / "none")
    assert measured.metrics().keys() == {"system/disk_free"}


def test_free_disk_is_in_gib_and_cores_are_seconds_of_cpu_over_seconds(monkeypatch, tmp_path):
    times, used = iter([0.0, 0.5]), iter([(1.0, 4.0), (2.0, 4.25)])
    disk = SimpleNamespace(free=5 * 2**30)
    monkeypatch.setattr(measurements, "monotonic", times.__next__)
    monkeypatch.setattr(measurements, "_cpu_seconds", lambda *_: next(used))
    monkeypatch.setattr(measurements.shutil, "disk_usage", lambda _: disk)
    metrics = SystemUse(tmp_path, print).metrics()
    assert metrics["system/disk_free"] == 5.0
    assert (metrics["system/cpu/trainer"], metrics["system/cpu/children"]) == (2.0, 0.5)
