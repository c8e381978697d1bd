"""Run a command, and kill it with all that it started when whoever wanted it is gone.

    python -m veriloop.pipeline.sampling.guardian COMMAND ...

It ends when standard input does, so the other end of that pipe may be killed in any way. It may be
killed itself: a second process leads the command's process group and watches both, as this one
watches the second.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

KILLED = 128 + signal.SIGKILL


def main(command: Sequence[str]) -> int:
    """The exit status of the command; KILLED if it was killed with its group."""
    life, own = os.pipe()  # closes when this process ends
    result, report = os.pipe()
    leader = os.fork()
    if leader == 0:
        os.close(own)
        _lead(command, life, report)
    os.close(report)
    status = os.read(result, 1)
    with suppress(ProcessLookupError):  # the leader may have been killed alone
        os.killpg(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    return status[0] if status else KILLED


def _lead(command: Sequence[str], life: int, report: int) -> None:
    """Run the command in a process group of its own, and end with all of it."""
    os.setsid()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end_with_input() -> None:
        while True:
            for ended in select.select([0, life], [], [])[0]:
                if not os.read(ended, 1024):
                    os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    os.write(report, bytes([process.wait() % 256]))
    os.killpg(0, signal.SIGKILL)  # with engines that outlived their server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
