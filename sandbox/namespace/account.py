"""How many tasks an account has where the kernel counts them for all its processes together."""

import os
import resource

_MOST_TASKS = 1 << 22  # the kernel gives no more pids


def tasks() -> int:
    """Tasks that the kernel counts for our account, one more included: it is asked by trying.

    /proc would not tell, as the account may have tasks in other containers. Leaves the soft limit
    on tasks at any value.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _MOST_TASKS if hard == resource.RLIM_INFINITY else min(hard, _MOST_TASKS)
    low, high = 0, min(8, most)
    while high < most and not _can_start(high, hard):
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_start(middle, hard) else (middle + 1, high)
    return low


def _can_start(limit: int, hard: int) -> bool:
    """Whether one more process could be started under this limit: one that executes nothing."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        os.posix_spawn("/no/such/program", ["none"], {})
    except BlockingIOError:
        return False
    except OSError:  # started, and found nothing
        return True
    raise AssertionError("executed a program that does not exist")
