"""Both versions, on folders that only look like cgroups; the real ones are used by the slots."""

import os
from pathlib import Path

import pytest

from veriloop.sandbox.namespace import cgroup
from veriloop.sandbox.namespace.cgroup import PREFIX, Cgroup, Site

V1_MOUNTS = """
30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
""".strip().splitlines()
V1_OWN = ["9:name=systemd:/", "8:pids:/", "4:memory:/jobs/17", "0::/"]


def test_v1_limits_live_below_our_own_cgroups():
    first = cgroup._candidates(V1_MOUNTS, V1_OWN)[0]
    assert first.version == 1
    assert first.folders == {
        "memory": Path("/sys/fs/cgroup/memory/jobs/17"),
        "pids": Path("/sys/fs/cgroup/pids"),
    }


def test_v1_counts_cpu_time_where_that_is_mounted_too():
    mounts = [
        *V1_MOUNTS,
        "34 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
    ]
    first, second = cgroup._candidates(mounts, [*V1_OWN, "2:cpu,cpuacct:/jobs"])[:2]
    assert first.folders["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct/jobs")
    assert sorted(second.folders) == ["memory", "pids"], "where it cannot be used"


def test_in_a_container_the_mounted_cgroup_is_our_own():
    mounts = [
        line.replace(" / /sys/fs/cgroup/", " /docker/ab /sys/fs/cgroup/") for line in V1_MOUNTS
    ]
    own = ["8:pids:/docker/ab", "4:memory:/docker/ab/inner"]
    (site,) = cgroup._candidates(mounts, own)
    assert site.folders["pids"] == Path("/sys/fs/cgroup/pids")
    assert site.folders["memory"] == Path("/sys/fs/cgroup/memory/inner")


def test_v2_offers_our_own_cgroup_and_then_a_place_next_to_it():
    mounts = ["30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"]
    sites = cgroup._candidates(mounts, ["0::/user.slice/app.scope"])
    places = [site.folders["memory"] for site in sites]
    assert places == [
        Path("/sys/fs/cgroup/user.slice/app.scope"),
        Path("/sys/fs/cgroup/user.slice"),
    ]
    assert {site.version for site in sites} == {2}
    top = cgroup._candidates(mounts, ["0::/"])
    assert [site.folders["memory"] for site in top] == [Path("/sys/fs/cgroup")]


def test_without_both_controllers_there_is_no_v1_site():
    assert not [s for s in cgroup._candidates(V1_MOUNTS[:2], V1_OWN) if s.version == 1]


def v1(folder):
    folders = {name: folder / name for name in ("memory", "pids")}
    for path in folders.values():
        path.mkdir()
    return Site(version=1, folders=folders)


def v2(folder):
    return Site(version=2, folders={"memory": folder, "pids": folder})


def test_v2_writes_memory_swap_and_tasks_into_one_cgroup(tmp_path):
    group = Cgroup(v2(tmp_path), "3")
    folder = tmp_path / f"{PREFIX}{os.getpid()}-3"
    (folder / "memory.swap.max").write_text("max")
    group.bound(1 << 20, 9)
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "9"}
    assert group.entrances() == [str(folder / "cgroup.procs")]
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n")
    assert group.kills() == (2, 2)


def test_v1_writes_two_cgroups_and_swap_only_where_it_is_counted(tmp_path):
    group = Cgroup(v1(tmp_path), "3")
    name = f"{PREFIX}{os.getpid()}-3"
    group.bound(1 << 20, 9)
    memory, pids = tmp_path / "memory" / name, tmp_path / "pids" / name
    assert [path.name for path in memory.iterdir()] == ["memory.limit_in_bytes"]
    assert (pids / "pids.max").read_text() == "9"
    assert group.entrances() == [str(memory / "cgroup.procs"), str(pids / "cgroup.procs")]
    (memory / "memory.memsw.limit_in_bytes").write_text("-1")
    group.bound(2 << 20, 9)
    assert (memory / "memory.memsw.limit_in_bytes").read_text() == str(2 << 20)
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    peak = memory / "memory.max_usage_in_bytes"
    with_swap = memory / "memory.memsw.max_usage_in_bytes"
    peak.write_text(str(1 << 19))
    assert group.kills() == (4, 0)
    with_swap.write_text(str(2 << 20))
    assert group.kills() == (4, 4)
    group.bound(4 << 20, 9)
    assert (peak.read_text(), with_swap.read_text()) == ("0", "0")
    assert group.kills() == (4, 0)


def test_kills_of_the_whole_machine_are_counted_where_the_kernel_tells(tmp_path):
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 6\n")
    assert cgroup.kills_of_machine(tmp_path / "vmstat") == (6, 0)
    assert cgroup.kills_of_machine(tmp_path / "none") == (0, 0)


def test_cpu_time_is_read_in_seconds(tmp_path):
    group = Cgroup(v2(tmp_path), "3")
    (group.folders["memory"] / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert group.cpu_s() == 2.5


def test_v1_without_its_accounting_counts_no_cpu_time(tmp_path):
    site = v1(tmp_path)
    assert Cgroup(site, "3").cpu_s() is None
    (tmp_path / "cpuacct").mkdir()
    counted = Site(version=1, folders={**site.folders, "cpuacct": tmp_path / "cpuacct"})
    group = Cgroup(counted, "4")
    (group.folders["cpuacct"] / "cpuacct.usage").write_text("1500000000\n")
    assert group.cpu_s() == 1.5
    assert str(group.folders["cpuacct"] / "cgroup.procs") in group.entrances()


def test_its_processes_are_listed(tmp_path):
    group = Cgroup(v2(tmp_path), "3")
    (group.folders["pids"] / "cgroup.procs").write_text("17\n23\n")
    assert group.processes() == [17, 23]


def test_limits_in_force_are_not_written_again(tmp_path):
    group = Cgroup(v2(tmp_path), "3")
    group.bound(1 << 20, 9)
    limit = group.folders["memory"] / "memory.max"
    limit.unlink()
    group.bound(1 << 20, 9)
    assert not limit.exists()
    group.bound(1 << 21, 9)
    assert limit.read_text() == str(1 << 21)


def test_a_cgroup_is_removed_once_it_is_empty(tmp_path):
    group = Cgroup(v2(tmp_path), "3")
    group.remove()
    group.remove()
    assert not list(tmp_path.iterdir())


def test_a_cgroup_that_never_empties_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_REMOVE_TRIES", 2)
    (tmp_path / "busy" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        cgroup.remove_folder(tmp_path / "busy")


def test_cgroups_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    site = v2(tmp_path)
    dead = tmp_path / f"{PREFIX}{2**22 + 5}-0"
    living = tmp_path / f"{PREFIX}{os.getpid()}-0"
    other = tmp_path / "somebody-else-1"
    used = tmp_path / f"{PREFIX}{2**22 + 6}-0"
    for path in (dead, living, other, used / "x"):
        path.mkdir(parents=True)
    cgroup.remove_stale(site)
    assert {path.name for path in tmp_path.iterdir()} == {living.name, other.name, used.name}


def test_a_folder_without_limits_is_refused_with_the_reason(tmp_path):
    told = cgroup._check(v2(tmp_path))
    assert told is not None and "no writable memory.max" in told and str(tmp_path) in told
    assert not list(tmp_path.iterdir())


def test_a_site_that_does_not_exist_is_refused_with_the_reason(tmp_path):
    told = cgroup._check(v2(tmp_path / "none"))
    assert told is not None and "No such file" in told


def test_this_machine_either_has_a_place_or_a_reason():
    site, told = cgroup.find()
    assert told
    if site is not None:
        assert all(path.is_dir() for path in site.folders.values())
        assert not list(site.folders["memory"].glob(f"{PREFIX}{os.getpid()}-trial"))
