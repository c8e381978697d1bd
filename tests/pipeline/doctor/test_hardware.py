"""Processor, card and memory: what is there is told, and too little of it is not ok."""

from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.doctor import hardware
from veriloop.pipeline.doctor.hardware import GIB, gpu, memory, processor


@pytest.fixture
def machine(monkeypatch):
    """Function: what the machine is said to be."""

    def be(**facts):
        told = {"cores": 2, "cpu": "Some Chip", "gpus": []} | facts
        monkeypatch.setattr(hardware.provenance, "machine", lambda: told)

    return be


@pytest.mark.parametrize(
    ("flags", "verdict", "said"),
    [
        ("sse avx2 avx512f avx512_bf16", "ok", "avx2, avx512f, avx512_bf16; bfloat16 in hardware"),
        ("sse avx2", "ok", "avx2; no bfloat16 instructions: bfloat16 is slower than float32"),
        ("sse", "warn", "none of avx2"),
    ],
)
def test_what_the_processor_lacks_is_reported(
    machine, tmp_path, monkeypatch, finding, flags, verdict, said
):
    machine()
    info = tmp_path / "cpuinfo"
    info.write_text(f"model name : x\nflags\t\t: {flags}\nflags\t\t: other\n")
    monkeypatch.setattr(hardware.provenance, "CPU_INFO", info)
    monkeypatch.setattr(hardware.platform, "machine", lambda: "x86_64")
    found = finding(processor, None)
    assert found.verdict == verdict
    assert found.measured.startswith("2 cores of Some Chip: ") and said in found.measured


def test_another_architecture_is_named(machine, monkeypatch, finding):
    machine(cores=1)
    monkeypatch.setattr(hardware.platform, "machine", lambda: "aarch64")
    assert finding(processor, None).measured == "1 core of Some Chip, aarch64"


def test_a_gpu_that_torch_cannot_use_is_warned_of(machine, monkeypatch, finding, here):
    machine(gpus=["Big Card"])
    monkeypatch.setattr(torch.version, "cuda", None)
    found = finding(gpu, here)
    assert found.verdict == "warn" and "built without CUDA" in found.measured
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    found = finding(gpu, here)
    assert (found.verdict, found.measured) == ("ok", "Big Card; torch for CUDA 13.0")


def test_no_gpu_is_no_failure(machine, finding, here):
    machine()
    assert finding(gpu, here).verdict == "skipped"


@pytest.mark.parametrize(
    ("free", "verdict"), [(1.4, "fail"), (1.6, "warn"), (3.9, "warn"), (4.1, "ok")]
)
def test_little_memory_is_reported_by_what_is_available(monkeypatch, finding, free, verdict):
    monkeypatch.setattr(hardware, "_total_and_available", lambda: (64 * GIB, int(free * GIB)))
    monkeypatch.setattr(hardware, "_cgroup_room", lambda: (float("inf"),) * 2)
    found = finding(memory, None)
    assert found.verdict == verdict and found.number == pytest.approx(free, abs=1e-3)
    assert "of 64.0 GiB" in found.measured and "limited" not in found.measured


@pytest.mark.parametrize(
    ("line", "name"), [("0::/a/b", "memory.max"), ("9:memory:/a/b", "memory.limit_in_bytes")]
)
def test_the_tightest_limit_above_the_process_counts(monkeypatch, tmp_path, finding, line, name):
    tree = tmp_path / "tree"
    inner = tree / line.split(":")[1] / "a" / "b"
    inner.mkdir(parents=True)
    (inner / name).write_text("max\n" if name == "memory.max" else str(3 * GIB))
    (inner.parent / name).write_text(f"{GIB}\n")
    (tmp_path / "cgroup").write_text(f"8:pids:/elsewhere\n{line}\n")
    monkeypatch.setattr(hardware, "CGROUP_TREE", tree)
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(hardware, "_total_and_available", lambda: (64 * GIB, 32 * GIB))
    found = finding(memory, None)
    assert found.verdict == "fail"
    assert found.measured == "1.0 GiB available of 64.0 GiB, limited to 1.0 GiB"


@pytest.mark.parametrize(
    ("line", "limit", "used", "cache"),
    [
        ("0::/a", "memory.max", "memory.current", "inactive_file"),
        ("9:memory:/a", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_what_a_limited_group_holds_is_not_available(
    monkeypatch, tmp_path, finding, line, limit, used, cache
):
    group = tmp_path / "tree" / line.split(":")[1] / "a"
    group.mkdir(parents=True)
    held = {limit: 16 * GIB, used: 12 * GIB, "memory.stat": f"anon 7\n{cache} {2 * GIB}"}
    for name, value in held.items():
        (group / name).write_text(f"{value}\n")
    (tmp_path / "cgroup").write_text(f"{line}\n")
    monkeypatch.setattr(hardware, "CGROUP_TREE", tmp_path / "tree")
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(hardware, "_total_and_available", lambda: (64 * GIB, 32 * GIB))
    assert finding(memory, None).measured == ("6.0 GiB available of 64.0 GiB, limited to 16.0 GiB")


def test_this_machine_has_memory(finding):
    assert finding(memory, SimpleNamespace()).number > 0
