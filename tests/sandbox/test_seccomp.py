"""The filter, run by a small interpreter of its instruction set, on both machines."""

import errno
import re
import struct
from pathlib import Path

import pytest

from sandbox.namespace.seccomp import child_filter, for_process, private_memory, zygote_filter
from sandbox.namespace.syscalls import MACHINES, call, machine, numbers

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
PID = 4242
both = pytest.mark.parametrize("on", MACHINES.values(), ids=str)


def verdict(programs, on, number, *arguments, audit=None):
    """What the kernel would answer, the strictest of all filters: "allow", "kill" or an errno."""
    answers = {one_verdict(program, on, number, arguments, audit) for program in programs}
    errors = answers - {"allow", "kill"}
    assert len(errors) < 2, "filters that refuse for different reasons"
    return "kill" if "kill" in answers else errors.pop() if errors else "allow"


def one_verdict(program, on, number, arguments, audit):
    words = [a & (2**64 - 1) for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    record = struct.pack("<IIQ6Q", number, audit or on.audit, 0, *words)
    code = list(struct.iter_unpack("HBBI", program))
    accumulator = place = 0
    while True:
        operation, yes, no, k = code[place]
        place += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", record, k)[0]
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x05:
            place += k
        elif operation == 0x06:
            return "allow" if k == ALLOW else "kill" if k == KILL else k - ERRNO
        else:
            test = {
                0x15: accumulator == k,
                0x35: accumulator >= k,
                0x45: bool(accumulator & k),
            }[operation]
            place += yes if test else no


def built(on, *, processes=False, alone=False):
    """Both filters of a child: the zygote's, which it inherits, and its own."""
    own = for_process(child_filter(on, processes=processes, alone=alone), PID)
    return [zygote_filter(on, alone=alone), own]


def ask(on, name, *arguments, **how):
    return verdict(built(on, **how), on, numbers(on)[name], *arguments)


@both
def test_another_instruction_set_is_killed(on):
    program = built(on)
    number = numbers(on)["getpid"]
    assert verdict(program, on, number) == "allow"
    assert verdict(program, on, number, audit=0x40000003) == "kill"  # i386


def test_the_second_abi_of_x86_64_does_not_exist():
    on = MACHINES["x86_64"]
    assert verdict(built(on), on, numbers(on)["ptrace"] | 0x40000000) == errno.ENOSYS
    assert verdict(built(on), on, 0x40000000) == errno.ENOSYS


ORDINARY = {"x86_64": [0, 1, 2, 3, 9, 12, 13, 35, 39, 59, 202, 228, 231, 257, 262, 318]}
ORDINARY["aarch64"] = [56, 57, 63, 64, 79, 93, 94, 98, 113, 134, 172, 214, 221, 222, 226, 278]


@both
@pytest.mark.parametrize("how", [{}, {"processes": True}, {"alone": True}])
def test_what_every_program_needs_is_allowed(on, how):
    program = built(on, **how)
    assert [verdict(program, on, number) for number in ORDINARY[on.name]] == ["allow"] * 16


REFUSED = """
ptrace process_vm_readv process_vm_writev bpf perf_event_open userfaultfd mount umount2
pivot_root chroot unshare setns fsopen open_tree move_mount mount_setattr keyctl add_key
io_uring_setup memfd_create memfd_secret shmget msgget semget mq_open flock inotify_init1
fanotify_init name_to_handle_at open_by_handle_at kexec_load init_module setresuid capset
personality pidfd_getfd kcmp cachestat syncfs sync bind connect listen accept4 clone3
vmsplice mknodat quotactl syslog reboot swapon clock_settime sched_setaffinity
sched_setscheduler setpriority sysinfo
"""


@both
@pytest.mark.parametrize("name", REFUSED.split())
def test_refused_on_both_machines(on, name):
    for processes in (False, True):
        assert isinstance(ask(on, name, processes=processes), int), name


@both
def test_what_may_be_missing_says_so(on):
    for name in ("clone3", "io_uring_setup", "keyctl", "memfd_secret"):
        assert ask(on, name) == errno.ENOSYS


@both
def test_the_neighbours_of_a_refused_number_are_not_hit(on):
    program = built(on, processes=True)
    refused = {n for n in range(470) if isinstance(verdict(program, on, n), int)}
    known = set(numbers(on).values())
    assert refused <= known and len(refused) > 100


@both
@pytest.mark.parametrize("family", range(46))
def test_no_socket_of_any_family(on, family):
    assert ask(on, "socket", family, 1, 0) == errno.EAFNOSUPPORT


@both
def test_only_pairs_of_unix_streams(on):
    stream, datagram, packet, flags = 1, 2, 5, 0o2004000
    assert ask(on, "socketpair", 1, stream) == "allow"
    assert ask(on, "socketpair", 1, stream | flags) == "allow"
    for family, kind in [(1, datagram), (1, packet), (1, datagram | flags), (2, stream), (40, 1)]:
        assert ask(on, "socketpair", family, kind) == errno.EAFNOSUPPORT


THREAD = 0x3D0F00
FORK = 0x01200011


@both
def test_threads_are_allowed_and_processes_only_when_asked_for(on):
    assert ask(on, "clone", THREAD) == "allow"
    assert ask(on, "clone", FORK) == errno.EAGAIN
    assert ask(on, "clone", FORK, processes=True) == "allow"
    assert ask(on, "clone", FORK | 0xFFFF_FFFF_0000_0000) == errno.EAGAIN
    for name in {"fork", "vfork"} & set(numbers(on)):
        assert ask(on, name) == errno.EAGAIN
        assert ask(on, name, processes=True) == "allow"


@both
@pytest.mark.parametrize("bit", [0x80, 0x20000] + [1 << n for n in range(25, 31)])
def test_no_clone_into_a_new_namespace(on, bit):
    for base in (THREAD, FORK):
        assert ask(on, "clone", base | bit, processes=True) == errno.EPERM
        assert ask(on, "clone", base | bit) == errno.EPERM


@both
@pytest.mark.parametrize(
    ("name", "command", "answer"),
    [
        ("ioctl", 0x5412, errno.EPERM),
        ("ioctl", 0x541C, errno.EPERM),
        ("ioctl", 0x8901, errno.EPERM),
        ("ioctl", 0x5401, "allow"),
        ("fcntl", 1, "allow"),
        ("fcntl", 1030, "allow"),
        *[("fcntl", number, errno.EPERM) for number in (5, 6, 7, 8, 10, 15, 36, 37, 38)],
        *[("fcntl", number, errno.EPERM) for number in (1024, 1026, 1031, 1036, 1038)],
        ("fcntl", 1035, "allow"),
    ],
)
def test_commands_that_reach_others_are_refused(on, name, command, answer):
    assert ask(on, name, 0, command) == answer


@both
def test_counters_of_the_whole_machine_are_not_told_by_sockets(on):
    for option, answer in ((57, errno.ENOPROTOOPT), (71, errno.ENOPROTOOPT), (3, "allow")):
        assert ask(on, "getsockopt", 4, 1, option) == answer


@both
def test_the_page_cache_is_neither_asked_nor_emptied(on):
    for flags, answer in ((8, errno.EOPNOTSUPP), (9, errno.EOPNOTSUPP), (0, "allow"), (1, "allow")):
        assert ask(on, "preadv2", 4, 0, 1, 0, 0, flags) == answer
    for advice, answer in ((4, errno.EPERM), (0, "allow"), (3, "allow")):
        assert ask(on, "fadvise64", 4, 0, 0, advice) == answer


@both
def test_descriptors_are_passed_only_where_there_are_processes_to_pass_them_to(on):
    for name in ("sendmsg", "sendmmsg"):
        assert ask(on, name) == errno.EPERM
        assert ask(on, name, processes=True) == "allow"


@both
def test_nobody_outlives_the_zygote_by_disarming_its_death_signal(on):
    assert ask(on, "prctl", 1, 0) == errno.EPERM
    assert ask(on, "prctl", 15) == "allow"


@both
def test_limits_of_others_cannot_be_changed(on):
    assert ask(on, "prlimit64", 0) == "allow"
    assert ask(on, "prlimit64", PID) == "allow"
    assert ask(on, "prlimit64", PID + 1) == errno.EPERM


@both
def test_memory_that_no_limit_counts_can_be_refused(on):
    program, number = [private_memory(on)], numbers(on)["mmap"]
    shared, private, checked, anonymous, grows_down, stack = 1, 2, 3, 0x20, 0x100, 0x20000
    for flags in (private, private | anonymous, private | anonymous | stack):
        assert verdict(program, on, number, 0, 4096, 3, flags) == "allow"
    for flags in (shared | anonymous, shared, checked, private | anonymous | grows_down):
        assert verdict(program, on, number, 0, 4096, 3, flags) == errno.EPERM
    others = {verdict(program, on, other) for other in range(470) if other != number}
    assert others == {"allow"} and ask(on, "mmap", 0, 4096, 3, shared) == "allow"


@both
def test_alone_a_process_signals_only_itself(on):
    for name in ("kill", "tgkill"):
        assert ask(on, name, PID, 9, alone=True) == "allow"
        for pid in (1, PID + 1, 0, -1, -PID):
            assert ask(on, name, pid, 9, alone=True) == errno.EPERM
            assert ask(on, name, pid, 9) == "allow"  # its pid namespace holds nobody else
    assert ask(on, "timer_create", alone=True) == errno.EAGAIN
    for name in ("tkill", "pidfd_open", "pidfd_send_signal", "rt_sigqueueinfo"):
        assert ask(on, name, PID, alone=True) == errno.EPERM


@both
def test_without_a_file_tree_of_its_own_no_file_changes_owner_rights_or_times(on):
    for name in (
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "fchownat",
        "utimensat",
        "setxattr",
        "truncate",
    ):
        assert ask(on, name, alone=True) == errno.EPERM
        assert ask(on, name) == "allow"


@both
def test_every_jump_stays_inside_and_every_path_returns(on):
    for one in built(on, alone=True):
        program = list(struct.iter_unpack("HBBI", one))
        for place, (operation, yes, no, k) in enumerate(program):
            if operation & 7 == 5:
                far = k if operation == 0x05 else max(yes, no)
                assert place + 1 + far < len(program)
        assert program[-1][0] == 0x06 and len(program) < 4096


def test_the_part_that_every_child_installs_is_short():
    on = MACHINES["x86_64"]
    zygote, own = (len(one) // 8 for one in built(on))
    assert zygote < 4 * len(numbers(on)) and own < 80


PID_SPACE, MOUNT_SPACE, PIDFD = 0x20000000, 0x20000, 0x1000


@both
@pytest.mark.parametrize("alone", [False, True])
def test_a_zygote_can_make_children_and_nothing_else_that_is_refused(on, alone):
    own = [zygote_filter(on, alone=alone)]
    number = numbers(on)
    assert verdict(own, on, number["clone"], PID_SPACE | PIDFD | 17) == "allow"
    for bit in [0x80, MOUNT_SPACE] + [1 << n for n in range(25, 31) if 1 << n != PID_SPACE]:
        assert verdict(own, on, number["clone"], PID_SPACE | bit) == errno.EPERM
    needed = "mount umount2 capset prctl kill landlock_restrict_self seccomp pidfd_open"
    assert {verdict(own, on, number[name], 0, 0) for name in needed.split()} == {"allow"}
    for name in ("unshare", "setns", "pivot_root", "setresuid", "ptrace", "bpf"):
        assert verdict(own, on, number[name]) == errno.EPERM


@both
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("processes", [False, True])
def test_what_the_zygote_may_is_refused_to_the_child(on, alone, processes):
    for name in ("mount", "umount2", "capset", "landlock_restrict_self"):
        assert ask(on, name, alone=alone, processes=processes) == errno.EPERM
    assert ask(on, "clone", PID_SPACE | PIDFD | 17, alone=alone, processes=processes) == errno.EPERM


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


@both
def test_numbers_agree_with_the_kernel_headers_where_those_are_installed(on):
    header = Path(HEADERS[on.name])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    defined = {name: int(number) for name, number in found}
    ours = numbers(on)
    shared = ours.keys() & defined.keys()
    assert len(shared) > 100
    assert {name: ours[name] for name in shared} == {name: defined[name] for name in shared}
    missing = defined.keys() & numbers(MACHINES["x86_64"]).keys() - ours.keys()
    assert not missing, "the machine has calls that our table says it lacks"


def test_an_unknown_machine_is_named_with_those_we_know():
    with pytest.raises(OSError, match=r"'riscv64'; known: x86_64, aarch64"):
        machine("riscv64")


def test_a_call_by_name_reaches_the_kernel():
    import os

    assert call("getpid") == os.getpid()
    with pytest.raises(OSError, match="pivot_root") as failure:
        call("pivot_root", 0, 0)
    assert failure.value.errno in (errno.EPERM, errno.EFAULT)


@both
@pytest.mark.parametrize("processes", [False, True])
def test_a_file_without_a_name_cannot_be_made(on, processes):
    nameless, ordinary = 0x410002, 0x10002  # O_TMPFILE | O_RDWR, O_DIRECTORY | O_RDWR
    for name, place in (("open", 1), ("openat", 2)):
        if name in numbers(on):
            before = [0] * place
            assert ask(on, name, *before, nameless, processes=processes) == errno.EOPNOTSUPP
            assert ask(on, name, *before, ordinary, processes=processes) == "allow"
    assert ask(on, "openat2", processes=processes) == errno.ENOSYS


@both
def test_how_full_the_disks_are_is_no_business_of_a_program_on_the_machines_own_files(on):
    for name in ("statfs", "fstatfs"):
        assert ask(on, name, alone=True) == errno.EPERM
        assert ask(on, name, alone=False) == "allow"
