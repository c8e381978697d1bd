"""System calls by name: their numbers on x86-64 and arm64, and a way to make one."""

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

# name:x86-64:arm64, from the kernel's uapi headers; "-" where the machine has no such call.
_TABLE = """
ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440
process_mrelease:448:448 kcmp:312:272 pidfd_getfd:438:438 keyctl:250:219 add_key:248:217
request_key:249:218 io_uring_setup:425:425 io_uring_enter:426:426 io_uring_register:427:427
bpf:321:280 perf_event_open:298:241 userfaultfd:323:282 fanotify_init:300:262
fanotify_mark:301:263 inotify_init:253:- inotify_init1:294:26 inotify_add_watch:254:27
mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 move_mount:429:429 open_tree:428:428
open_tree_attr:467:467 fsopen:430:430 fsconfig:431:431 fsmount:432:432 fspick:433:433
mount_setattr:442:442 unshare:272:97 setns:308:268 swapon:167:224 swapoff:168:225 reboot:169:142
kexec_load:246:104 kexec_file_load:320:294 init_module:175:105 finit_module:313:273
delete_module:176:106 acct:163:89 quotactl:179:60 quotactl_fd:443:443 settimeofday:164:170
clock_settime:227:112 clock_adjtime:305:266 adjtimex:159:171 sethostname:170:161
setdomainname:171:162 iopl:172:- ioperm:173:- modify_ldt:154:- lookup_dcookie:212:18
syslog:103:116 vhangup:153:58 name_to_handle_at:303:264 open_by_handle_at:304:265
personality:135:92 migrate_pages:256:238 move_pages:279:239 memfd_create:319:279
memfd_secret:447:447 shmget:29:194 shmat:30:196 shmctl:31:195 shmdt:67:197 msgget:68:186
msgsnd:69:189 msgrcv:70:188 msgctl:71:187 semget:64:190 semop:65:193 semtimedop:220:192
semctl:66:191 mq_open:240:180 mq_unlink:241:181 mq_notify:244:184 nfsservctl:180:42 uselib:134:-
_sysctl:156:- sysfs:139:- ustat:136:- landlock_create_ruleset:444:444 landlock_add_rule:445:445
landlock_restrict_self:446:446 remap_file_pages:216:234 io_setup:206:0 vmsplice:278:75
mknod:133:- mknodat:259:33 setuid:105:146 setgid:106:144 setreuid:113:145 setregid:114:143
setresuid:117:147 setresgid:119:149 setgroups:116:159 setfsuid:122:151 setfsgid:123:152
capset:126:91 statmount:457:457 listmount:458:458 sync:162:81 syncfs:306:267 cachestat:451:451
flock:73:32 socket:41:198 socketpair:53:199 bind:49:200 connect:42:203 listen:50:201
accept:43:202 accept4:288:242 clone:56:220 clone3:435:435 fork:57:- vfork:58:- ioctl:16:29
fcntl:72:25 prctl:157:167 kill:62:129 tkill:200:130 tgkill:234:131 rt_sigqueueinfo:129:138
rt_tgsigqueueinfo:297:240 pidfd_send_signal:424:424 pidfd_open:434:434 prlimit64:302:261
sched_setaffinity:203:122 sched_setscheduler:144:119 sched_setparam:142:118
sched_setattr:314:274 ioprio_set:251:30 setpriority:141:140 seccomp:317:277 getpid:39:172
chmod:90:- fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92:- fchown:93:55 lchown:94:-
fchownat:260:54 utime:132:- utimes:235:- futimesat:261:- utimensat:280:88 setxattr:188:5
lsetxattr:189:6 fsetxattr:190:7 setxattrat:463:463 removexattr:197:14 lremovexattr:198:15
fremovexattr:199:16 removexattrat:466:466 file_setattr:469:469 truncate:76:45 sysinfo:99:179
sendmsg:46:211 sendmmsg:307:269 getsockopt:55:209 preadv2:327:286 fadvise64:221:223
timer_create:222:107 mmap:9:222 open:2:- openat:257:56 openat2:437:437
statfs:137:43 fstatfs:138:44 close:3:57 close_range:436:436 setpgid:109:154 write:1:64
ppoll:271:73 wait4:61:260 sendto:44:206 statx:332:291 recvmsg:47:212
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One instruction set as the kernel names it."""

    name: str
    audit: int  # AUDIT_ARCH_* as seccomp filters see it
    column: int  # in _TABLE
    compat_bit: int | None  # calls at or above belong to a second ABI (x32)


MACHINES = {
    "x86_64": Machine(name="x86_64", audit=0xC000003E, column=0, compat_bit=0x40000000),
    "aarch64": Machine(name="aarch64", audit=0xC00000B7, column=1, compat_bit=None),
}

libc = ctypes.CDLL(None, use_errno=True)
_holding = ctypes.PyDLL(None, use_errno=True)


def machine(name: str | None = None) -> Machine:
    """This machine, or the named one. Raises OSError(ENOSYS) for one we have no numbers for."""
    wanted = name or os.uname().machine
    if wanted not in MACHINES:
        known = ", ".join(MACHINES)
        raise OSError(errno.ENOSYS, f"no system call numbers for {wanted!r}; known: {known}")
    return MACHINES[wanted]


def numbers(on: Machine) -> dict[str, int]:
    """Call numbers by name, without those the machine lacks."""
    rows = [entry.split(":") for entry in _TABLE.split()]
    return {row[0]: int(row[1 + on.column]) for row in rows if row[1 + on.column] != "-"}


_HERE = numbers(MACHINES.get(os.uname().machine, MACHINES["x86_64"]))


def call(name: str, *arguments: Any) -> int:
    """Make a system call. Integers and ctypes pointers only. Raises OSError."""
    machine()
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(_HERE[name]), *words)
    if result < 0:
        raise failure(name)
    return result


def prepared(name: str, *arguments: Any) -> Callable[..., int]:
    """A system call with its first arguments ready: it touches few pages, and so suits a new fork.

    It keeps the interpreter's lock. Its result is negative when it fails: see `failure`.
    """
    return partial(_holding.syscall, ctypes.c_long(_HERE[name]), *arguments)


def failure(what: str) -> OSError:
    """The last C call's error, with what was tried."""
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
