"""The filter, run by a small interpreter of its instruction set, on both machines."""

import errno
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.sandbox.namespace.allowed_calls import ABSENT, ALLOWED, OWN_FILES, PROCESSES
from veriloop.sandbox.namespace.seccomp import (
    child_filter,
    for_process,
    private_memory,
    zygote_filter,
)
from veriloop.sandbox.namespace.syscalls import MACHINES, call, machine, numbers

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
PID = 4242
ROOT = Path(__file__).resolve().parents[3]
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


def answers(on, **how):
    """What each call number up to 600 answers."""
    program = built(on, **how)
    return {number: verdict(program, on, number) for number in range(600)}


@both
@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_number_without_a_known_call_does_not_exist(on, processes, alone):
    known = set(numbers(on).values())
    outcome = answers(on, processes=processes, alone=alone)
    assert {outcome[number] for number in outcome.keys() - known} == {errno.ENOSYS}
    far = [2**20, 2**29, 2**31, 2**32 - 1]
    assert {verdict(built(on), on, number) for number in far} == {errno.ENOSYS}


CONDITIONAL = """
clone socketpair getsockopt setsockopt ioctl fcntl prctl arch_prctl membarrier kill tgkill prlimit64
"""  # answered by their arguments: of zeros some are refused


@both
@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_only_listed_calls_are_allowed(on, processes, alone):
    listed = ALLOWED | (PROCESSES if processes else set()) | (set() if alone else OWN_FILES)
    outcome = answers(on, processes=processes, alone=alone)
    allowed = {name for name, number in numbers(on).items() if outcome[number] == "allow"}
    assert allowed <= listed
    assert (listed & numbers(on).keys()) - allowed <= set(CONDITIONAL.split())
    assert not listed & ABSENT


@both
def test_every_listed_name_is_a_call_of_one_of_the_machines(on):
    known = set().union(*(numbers(machine) for machine in MACHINES.values()))
    assert known >= (ALLOWED | PROCESSES | OWN_FILES | ABSENT)


FORMERLY_DENIED = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd bpf
perf_event_open userfaultfd fanotify_init fanotify_mark inotify_init inotify_init1
inotify_add_watch mount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen
fsconfig fsmount fspick mount_setattr unshare setns swapon swapoff reboot kexec_load
kexec_file_load init_module finit_module delete_module acct quotactl quotactl_fd settimeofday
clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm modify_ldt
lookup_dcookie syslog vhangup name_to_handle_at open_by_handle_at personality migrate_pages
move_pages memfd_create shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop
semtimedop semctl mq_open mq_unlink mq_notify nfsservctl uselib _sysctl sysfs ustat
landlock_create_ruleset landlock_add_rule landlock_restrict_self remap_file_pages io_setup vmsplice
mknod mknodat setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
capset statmount listmount sync syncfs cachestat flock bind connect listen accept accept4
sched_setaffinity sched_setscheduler sched_setparam sched_setattr ioprio_set setpriority sysinfo
clone3 openat2 io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key
memfd_secret socket seccomp
"""


@both
@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_calls_that_reach_the_host_or_another_run_stay_refused(on, processes, alone):
    outcome = answers(on, processes=processes, alone=alone)
    present = numbers(on).keys() & set(FORMERLY_DENIED.split())
    assert len(present) > 110
    assert {name for name in present if outcome[numbers(on)[name]] == "allow"} == set()


# What start-up and run time of the toolchains call: CPython, bash and coreutils, gcc and binutils,
# glibc and musl programs, node, and the runtimes of Go, Rust and Java.
TOOLCHAINS = """
execve brk mmap munmap mprotect mremap madvise openat read write pread64 pwrite64 readv writev close
newfstatat fstat statx lseek faccessat faccessat2 readlinkat getdents64 getcwd chdir fchdir mkdirat
unlinkat renameat renameat2 linkat symlinkat umask ftruncate fallocate fsync copy_file_range
sendfile dup dup3 pipe2 ppoll pselect6 epoll_create1 epoll_ctl epoll_pwait eventfd2 signalfd4
timerfd_create timerfd_settime futex set_robust_list set_tid_address rseq exit exit_group wait4
waitid getpid getppid gettid getuid geteuid getgid getegid getpgid setpgid setsid getgroups uname
getrandom rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack
restart_syscall sched_yield sched_getaffinity getcpu getrusage times clock_gettime clock_getres
clock_nanosleep nanosleep gettimeofday setitimer timer_create timer_settime timer_delete
fchmod fchmodat fchown utimensat statfs mincore msync pkey_alloc pkey_mprotect
"""
OF_X86_64 = """
open stat lstat access readlink getdents mkdir rmdir unlink rename chmod pipe dup2 poll select
epoll_create epoll_wait eventfd fork vfork getpgrp alarm pause time
"""


@both
def test_what_the_toolchains_call_is_allowed(on):
    names = TOOLCHAINS.split() + (OF_X86_64.split() if on.name == "x86_64" else [])
    outcome = answers(on, processes=True)
    assert {name for name in names if outcome[numbers(on)[name]] != "allow"} == set()


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


SO_SNDBUF, SO_RCVBUF, FORCED = 7, 8, (32, 33)


@both
def test_socket_buffers_keep_their_size(on):
    for option in (SO_SNDBUF, SO_RCVBUF):
        assert ask(on, "setsockopt", 4, 1, option) == 0, "accepted without effect"
        assert ask(on, "getsockopt", 4, 1, option) == "allow"
    filters = (26, 27, 50, 51, 52)  # SO_ATTACH_FILTER and its kin hold programs in the kernel
    for option in (*FORCED, *filters, 16, 36, 60, 69, 77):
        assert ask(on, "setsockopt", 4, 1, option) == errno.ENOPROTOOPT
    assert ask(on, "setsockopt", 4, 1, 20) == "allow"  # SO_RCVTIMEO
    assert ask(on, "setsockopt", 4, 6, 20) == errno.ENOPROTOOPT  # of another protocol
    assert ask(on, "getsockopt", 4, 1, 77) == errno.ENOPROTOOPT  # SO_PEERPIDFD


@both
def test_every_thread_shares_the_one_bounded_table_of_descriptors(on):
    files, unshare = 0x400, 2
    assert ask(on, "clone", THREAD & ~files) == errno.EAGAIN
    assert ask(on, "clone", THREAD & ~files, processes=True) == "allow"  # a cgroup counts
    assert ask(on, "close_range", 3, 9, 0) == "allow"
    assert ask(on, "close_range", 3, 9, unshare) == errno.EINVAL


@both
@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("operation", [0, 1, 2, 3])
def test_no_filter_can_be_added(on, processes, operation):
    assert ask(on, "seccomp", operation, 2, processes=processes) == errno.EPERM
    assert ask(on, "prctl", 22, 2, processes=processes) == errno.EPERM  # PR_SET_SECCOMP
    assert ask(on, "prctl", 21, processes=processes) == "allow"  # PR_GET_SECCOMP


@both
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("prctl", (4, 1), errno.EPERM),  # PR_SET_DUMPABLE
        ("prctl", (0x53564D41,), errno.EINVAL),  # PR_SET_VMA: names in kernel memory
        ("prctl", (78, 1, 1 << 20), errno.EINVAL),  # PR_FUTEX_HASH: a table in kernel memory
        ("prctl", (67, 1), errno.EINVAL),  # PR_SET_MEMORY_MERGE
        ("prctl", (47, 2), errno.EINVAL),  # PR_CAP_AMBIENT
        ("mmap", (0, 4096, 3, 0x40022), errno.ENOMEM),  # MAP_HUGETLB
        ("mmap", (0, 4096, 3, 0x22), "allow"),
        ("madvise", (0, 4096, 12), errno.EINVAL),  # MADV_MERGEABLE
        ("madvise", (0, 4096, 4), "allow"),
        ("membarrier", (1,), errno.EINVAL),  # waits for all processors
        ("membarrier", (8,), "allow"),
        ("sendto", (3, 0, 1, 1), errno.EOPNOTSUPP),  # MSG_OOB
        ("sendto", (3, 0, 1, 0x4000), "allow"),  # MSG_NOSIGNAL
        ("recvfrom", (3, 0, 1, 1), errno.EOPNOTSUPP),
        ("splice", (3, 0, 4, 0, 9), errno.EINVAL),
        ("ioctl", (0, 0x40049409), errno.ENOTTY),  # FICLONE
        ("ioctl", (0, 0xFF01), errno.ENOTTY),  # PIDFD_GET_*_NAMESPACE
        ("ioctl", (0, 0x5413), "allow"),  # TIOCGWINSZ
        ("fcntl", (0, 4), "allow"),
        ("fcntl", (0, 99), errno.EINVAL),
    ],
)
def test_of_some_calls_only_known_arguments_are_allowed(on, name, arguments, answer):
    assert ask(on, name, *arguments) == answer
    assert ask(on, name, *arguments, processes=True) == answer


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
        "truncate",
    ):
        assert ask(on, name, alone=True) == errno.EPERM
        assert ask(on, name) == "allow"


@both
def test_no_file_gets_attributes(on):
    for name in ("setxattr", "lsetxattr", "fsetxattr", "removexattr"):
        assert ask(on, name) == ask(on, name, alone=True) == errno.EPERM


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
    assert {verdict(own, on, number[name], 1, 0) for name in needed.split()} == {"allow"}
    for name in ("unshare", "setns", "pivot_root", "setresuid", "ptrace", "bpf"):
        assert verdict(own, on, number[name]) == errno.EPERM


@both
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("processes", [False, True])
def test_what_the_zygote_may_is_refused_to_the_child(on, alone, processes):
    for name in ("mount", "umount2", "capset", "landlock_restrict_self", "seccomp"):
        assert ask(on, name, alone=alone, processes=processes) == errno.EPERM
    assert ask(on, "clone", PID_SPACE | PIDFD | 17, alone=alone, processes=processes) == errno.EPERM


def test_the_table_is_what_libseccomp_and_the_kernel_headers_say():
    """Where they are installed; the script that writes the table compares."""
    script = [sys.executable, ROOT / "scripts" / "syscall_table.py", "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(done.stdout.strip())
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


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
