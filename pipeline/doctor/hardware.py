"""Checks of CPU, GPU and memory."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from veriloop.pipeline.doctor.finding import Finding, at_least, ok, skipped, warn
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.pipeline.runs import provenance

GIB = 2**30
ENOUGH_GIB, LEAST_GIB = 4.0, 1.5  # a tiny run takes about 3 GiB with vLLM, 1 with torch
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # of x86, relevant for speed
MEMORY_INFO = Path("/proc/meminfo")
CGROUPS = Path("/proc/self/cgroup")
CGROUP_TREE = Path("/sys/fs/cgroup")
# Files of a cgroup with its limit and what it holds, and the row of memory.stat that can be freed.
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def processor(machine: Machine) -> Iterator[Finding]:
    """Cores and instruction sets. vLLM's CPU kernels need at least AVX2."""
    del machine
    facts = provenance.machine()
    cores = f"{facts['cores']} core{'' if facts['cores'] == 1 else 's'}"
    measured = f"{cores} of {facts['cpu']}"
    if platform.machine().lower() not in ("x86_64", "amd64"):
        yield ok("cpu", f"{measured}, {platform.machine()}")
        return
    flags = provenance.cpu_flags()
    supported = [flag for flag in INSTRUCTIONS if flag in flags]
    measured += f": {', '.join(supported) or 'none of ' + ', '.join(INSTRUCTIONS)}"
    if "avx2" not in flags:
        yield warn("cpu", measured, "use a CPU with AVX2, which vLLM needs, or --sampler torch")
    elif not provenance.computes_bfloat16(flags):
        yield ok("cpu", f"{measured}; no bfloat16 instructions: bfloat16 is slower than float32")
    else:
        yield ok("cpu", f"{measured}; bfloat16 in hardware")


def gpu(machine: Machine) -> Iterator[Finding]:
    """GPUs that the driver lists, and whether torch was built for CUDA. CUDA is not started."""
    gpus = provenance.machine()["gpus"]
    if not gpus:
        yield skipped("gpu", "nvidia-smi lists none; everything runs on the CPU",
                      "to use a GPU, install its driver until nvidia-smi lists it")  # fmt: skip
        return
    import torch

    if torch.version.cuda is None:
        measured = f"{', '.join(gpus)}, but torch {torch.__version__} was built without CUDA"
        fix = "pip install --force-reinstall a torch build with CUDA"
        if machine.requirements is not None:
            fix = "install the GPU driver, then rm -r .venv; make install"
        yield warn("gpu", measured, fix)
        return
    yield ok("gpu", f"{', '.join(gpus)}; torch for CUDA {torch.version.cuda}")


def memory(machine: Machine) -> Iterator[Finding]:
    """Available memory, container limits included."""
    del machine
    total, available = _total_and_available()
    limit, left = _cgroup_room()
    usable = min(available, left) / GIB
    measured = f"{usable:.1f} GiB available of {total / GIB:.1f} GiB"
    if limit < total:
        measured += f", limited to {limit / GIB:.1f} GiB"
    fix = f"free memory (the tiny recipes need at least {LEAST_GIB} GiB), or use "
    fix += "--sampler.engine torch and a smaller --sampler.cache-gib"
    yield at_least("memory", measured, usable, least=LEAST_GIB, enough=ENOUGH_GIB, fix=fix)


def _total_and_available() -> tuple[int, int]:
    """Bytes of the machine. Without /proc all of the memory counts as available."""
    if MEMORY_INFO.is_file():
        rows = dict(line.split(":", 1) for line in MEMORY_INFO.read_text().splitlines())
        total, available = (
            1024 * int(rows[key].split()[0]) for key in ("MemTotal", "MemAvailable")
        )
        return total, available
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total


def _cgroup_room() -> tuple[float, float]:
    """The least memory limit, in bytes, of this process's cgroup and its ancestors, and the least
    that one of them leaves if it gives back its inactive page cache; inf without a limit."""
    limits, left = [float("inf")], [float("inf")]
    for line in CGROUPS.read_text().splitlines() if CGROUPS.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):  # "" marks version 2, which has a single tree
            continue
        top = CGROUP_TREE / controllers
        group = top / path.lstrip("/")
        most, used, cache = VERSION_1 if controllers else VERSION_2
        for folder in (group, *group.parents):
            if not folder.is_relative_to(top) or not (folder / most).is_file():
                continue
            if (limit := (folder / most).read_text().strip()).isdigit():
                limits.append(float(limit))
                left.append(float(limit) - _used(folder, used, cache))
    return min(limits), max(0.0, min(left))


def _used(folder: Path, used: str, cache: str) -> int:
    """Bytes that a cgroup holds besides its inactive page cache."""
    counter, statistics = folder / used, folder / "memory.stat"
    if not counter.is_file():
        return 0
    lines = statistics.read_text().splitlines() if statistics.is_file() else []
    values = dict(line.split(" ", 1) for line in lines)
    return int(counter.read_text()) - int(values.get(cache, 0))
