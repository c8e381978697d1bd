"""Which system calls a program may make, by name. Every other call is refused.

Calls that the kernel or the C library adds later are refused until they are listed here. The
arguments of some calls are restricted further: see `veriloop.sandbox.namespace.seccomp`.
"""

_FILES = """
open openat creat close close_range read write pread64 pwrite64 readv writev preadv pwritev preadv2
pwritev2 lseek stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat
renameat2 link linkat symlink symlinkat umask ftruncate fallocate fsync fdatasync fadvise64
sendfile copy_file_range dup dup2 dup3 fcntl ioctl getxattr lgetxattr fgetxattr listxattr
llistxattr flistxattr
"""
_STREAMS = """
pipe pipe2 socketpair sendto recvfrom recvmsg recvmmsg shutdown getsockname getpeername getsockopt
setsockopt poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
"""
_MEMORY = """
mmap munmap mremap mprotect madvise msync mincore brk pkey_mprotect pkey_alloc pkey_free membarrier
"""
_TASKS = """
clone execve execveat exit exit_group wait4 waitid getpid getppid gettid set_tid_address futex
set_robust_list rseq arch_prctl prctl getpgid getpgrp getsid setpgid setsid sched_yield
sched_getaffinity sched_getparam sched_getscheduler sched_getattr sched_get_priority_max
sched_get_priority_min sched_rr_get_interval getcpu getpriority getrlimit setrlimit prlimit64
getrusage times restart_syscall kill tgkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
rt_sigsuspend rt_sigtimedwait sigaltstack pause
"""
_TIME = """
time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer
timer_settime timer_gettime timer_getoverrun timer_delete
"""
_ENVIRONMENT = """
uname getuid geteuid getgid getegid getresuid getresgid getgroups capget getrandom
"""
_PROCESSES = """
fork vfork sendmsg sendmmsg pidfd_open pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo
"""  # only where a program may start processes
_OWN_FILES = """
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
truncate statfs fstatfs timer_create
"""  # only in a file tree, and with a user id, that no other run shares

_ABSENT = """
clone3 openat2 io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key
memfd_secret futex_waitv futex_wake futex_wait futex_requeue mseal map_shadow_stack mbind
set_mempolicy get_mempolicy set_mempolicy_home_node getxattrat setxattrat listxattrat removexattrat
file_getattr file_setattr open_tree_attr lsm_get_self_attr lsm_set_self_attr lsm_list_modules
uretprobe uprobe create_module get_kernel_syms query_module getpmsg putpmsg afs_syscall tuxcall
security vserver set_thread_area get_thread_area epoll_ctl_old epoll_wait_old
"""

ALLOWED = frozenset(f"{_FILES} {_STREAMS} {_MEMORY} {_TASKS} {_TIME} {_ENVIRONMENT}".split())
PROCESSES = frozenset(_PROCESSES.split())
OWN_FILES = frozenset(_OWN_FILES.split())
ABSENT = frozenset(_ABSENT.split())  # refused as if the kernel lacked them: callers have fallbacks
