"""A spawn context whose processes do not run the parent's main script again.

A training script imports torch, which takes seconds, and may lack a `__main__` guard. The launch is
that of the standard library's spawn, without the part that imports `__main__`.
"""

import multiprocessing.context
import os
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from typing import Any

from veriloop.sandbox.child_signals import blocked

EXITED = 256  # represents exit code 0; no process can exit with it


class _CleanPopen(popen_spawn_posix.Popen):
    _fds: list[Any]  # that the child inherits; the parent class appends to it while pickling

    def _launch(self, process_obj: Any) -> None:
        data = spawn.get_preparation_data(process_obj._name)
        preparation = {key: value for key, value in data.items() if not key.startswith("init_main")}
        tracker_fd = resource_tracker.getfd()
        child_r, parent_w = os.pipe()
        parent_r, child_w = os.pipe()
        self.sentinel = parent_r
        self.finalizer = util.Finalize(self, _close, (parent_r, parent_w))
        try:
            self._fds.extend([tracker_fd, child_r, child_w])
            message = self._dump(preparation, process_obj)
            program = os.fsencode(spawn.get_executable())
            command = spawn.get_command_line(tracker_fd=tracker_fd, pipe_handle=child_r)
            with blocked():
                self.pid = util.spawnv_passfds(program, command, self._fds)
        finally:
            _close(child_r, child_w)
        with open(parent_w, "wb", closefd=False) as pipe:
            pipe.write(message)

    def _dump(self, *parts: Any) -> bytes:
        multiprocessing.context.set_spawning_popen(self)  # pyright: ignore[reportArgumentType]
        try:
            return b"".join(bytes(reduction.ForkingPickler.dumps(part)) for part in parts)
        finally:
            multiprocessing.context.set_spawning_popen(None)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


class _CleanProcess(multiprocessing.context.SpawnProcess):
    @property
    def exitcode(self) -> int | None:
        """The exit code, with EXITED for 0: pebble would treat that as an orderly end, and a worker
        has no reason to exit."""
        code = super().exitcode
        return EXITED if code == 0 else code

    def terminate(self) -> None:
        """End the process by SIGKILL: it ignores SIGTERM."""
        self.kill()

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802
        return _CleanPopen(process_obj)


class CleanSpawn(multiprocessing.context.SpawnContext):
    """The spawn context with a clean start of each process."""

    Process = _CleanProcess
