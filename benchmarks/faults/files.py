"""Break the file operations of a run, one at a time: it must end in one paragraph and resume.

    python benchmarks/faults/files.py [--faults N] [--seed N] [--stages A,B] [--quick] [--json FILE]

At the n-th operation on a file of the run folder or of the cache, counted over opening for writing,
creating and removing folders, renaming, deleting and flushing to disk:

    full       the disk is full from here on           error    this operation fails with EIO
    read only  nothing can be written from here on     torn     half of the file is written, then
    limit      files may not grow past a few KiB                SIGKILL
    clock      the wall clock jumps by a day, forwards or backwards

A run must end with a message and no traceback, or with its result; resumed without the fault, it
must equal an undisturbed run bit for bit. `limit` also reaches the writers of torch, safetensors
and Arrow, which do not write through Python.
"""

import builtins
import errno
import io
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
from publish import arguments, publish, table
from tiny_stages import STAGES, differences, models, preload, recipe, result, stage_command

OPTIONS: dict[str, dict[str, Any]] = {
    "faults": {"type": int, "default": 120, "help": "faults to plant"},
    "seed": {"type": int, "default": 0, "help": "of the operations and the kinds"},
    "stages": {"default": ",".join(STAGES), "help": "the stages to run, with commas"},
    "folder": {"type": Path, "help": "where runs are kept; default: a new folder"},
}
KINDS = ("full", "error", "read only", "torn", "limit", "clock")
COUNTED = "operations.txt"  # how many there were, beside the run
CREATES = {"open", "mkdir", "fsync"}  # what a full disk refuses; renaming and deleting still work
DAY_S = 86_400.0


@dataclass(kw_only=True)
class FileFault:
    """One fault and the outcome of the run."""

    stage: str
    kind: str
    at: int  # number of the operation
    size: int  # bytes, of the limit
    code: int | None = None
    said: str = ""  # the last line
    differences: list[str] = field(default_factory=list)


class FileLayer:
    """Counts the operations of this process on files below `folders` and breaks one of them."""

    def __init__(self, fault: FileFault | None, *folders: Path) -> None:
        self.folders, self.fault = tuple(str(folder.resolve()) for folder in folders), fault
        self.count = 0

    def install(self) -> None:
        """Replace the functions of os and io by counting ones."""
        for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
            setattr(os, name, self._counting(name, getattr(os, name)))
        flush, opening = os.fsync, io.open

        def fsync(descriptor: int) -> None:
            self._before("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            flush(descriptor)

        def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            writes = not isinstance(file, int) and not set(mode).isdisjoint("wax+")
            torn = writes and self._before("open", file)
            stream = opening(file, mode, *args, **options)
            return _tearing(stream) if torn else stream

        os.fsync = fsync
        builtins.open = io.open = opened

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                self._before(name, path)
            return real(path, *args, **options)

        return call

    def _before(self, name: str, path: Any) -> bool:
        """Count an operation and fail it if it is the chosen one. Returns whether to tear the
        opened file."""
        absolute = os.path.abspath(os.fsdecode(path))
        if not absolute.startswith(self.folders):
            return False
        self.count += 1
        fault = self.fault
        if fault is None or self.count < fault.at:
            return False
        first = self.count == fault.at
        if fault.kind == "full" and name in CREATES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), absolute)
        if fault.kind == "read only":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), absolute)
        if fault.kind == "error" and first:
            raise OSError(errno.EIO, os.strerror(errno.EIO), absolute)
        if fault.kind == "limit" and first:
            resource.setrlimit(resource.RLIMIT_FSIZE, (fault.size, resource.RLIM_INFINITY))
        if fault.kind == "clock" and first:
            _jump(DAY_S if fault.size % 2 else -DAY_S)
        if fault.kind == "torn" and first:
            if name == "open":
                return True
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def _tearing(stream: Any) -> Any:
    """The stream; its first write ends the process half-way."""
    write = stream.write

    def half(content: Any) -> None:
        write(content[: len(content) // 2])
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        stream.write = half
        return stream
    except AttributeError:  # a stream of C
        return _Torn(stream, half)


class _Torn:
    """A stream whose `write` is replaced."""

    def __init__(self, stream: Any, write: Callable[[Any], None]) -> None:
        self._stream, self.write = stream, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "_Torn":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _jump(seconds: float) -> None:
    real = time.time
    time.time = lambda: real() + seconds


def written(folder: Path) -> tuple[Path, Path]:
    """Where a run writes: its own folder, and the cache of base models."""
    return folder / "run", folder / "outputs"


def operations(stage: str, folder: Path, values: dict[str, Any]) -> int:
    """Run the stage undisturbed; returns the number of its file operations."""
    command = stage_command(stage, folder, values)

    def counted() -> int:
        from veriloop.stages.cli import entry

        layer = FileLayer(None, *written(folder))
        layer.install()
        code = entry()
        (folder / COUNTED).write_text(str(layer.count))
        return code

    command.answer = counted
    if command.start().ended() != 0:
        raise SystemExit(f"the undisturbed run of {stage} failed: {command.said[-2000:]}")
    return int((folder / COUNTED).read_text())


def broken(fault: FileFault, folder: Path, values: dict[str, Any], expected: Any) -> None:
    """Run with the fault, then without; records the outcome in `fault`."""
    command = stage_command(fault.stage, folder, values)
    command.before = FileLayer(fault, *written(folder)).install
    fault.code = command.start().ended()
    output = command.said
    fault.said = (output.strip().splitlines() or [""])[-1][:300]
    wanted = {"torn": {-signal.SIGKILL}, "clock": {0}}.get(fault.kind, {0, 1, 2})
    if fault.code not in wanted:
        fault.differences.append(f"exit code {fault.code}")
    if "Traceback" in output:
        fault.differences.append(f"a traceback: {output[-600:]!r}")
    if fault.code in (1, 2) and "veriloop: " not in output:
        fault.differences.append("no message")
    command = stage_command(fault.stage, folder, values)
    code = command.start().ended()
    if code != 0:
        fault.differences.append(f"the resumed run ends with {code}: {command.said[-400:]!r}")
    else:
        fault.differences += differences(result(folder), expected)


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="files-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    stages = ["sft"] if options.quick else options.stages.split(",")
    paths = models(folder / "models", stages)
    draw, counts, whole = random.Random(options.seed), {}, {}
    for stage in stages:
        counts[stage] = operations(stage, folder / "whole" / stage, recipe(stage, paths))
        whole[stage] = result(folder / "whole" / stage)
    faults: list[FileFault] = []
    for number in range(len(KINDS) if options.quick else options.faults):
        stage = stages[number // len(KINDS) % len(stages)]
        fault = FileFault(
            stage=stage,
            kind=KINDS[number % len(KINDS)],
            at=draw.randint(1, counts[stage]),
            size=draw.randint(1, 1 << 14),
        )
        broken(fault, folder / f"{number:04d}", recipe(stage, paths), whole[stage])
        faults.append(fault)
        print(f"{number + 1}: {fault}", file=sys.stderr, flush=True)
    failed = [f"{f.stage}, {f.kind} at {f.at}: {d}" for f in faults for d in f.differences]
    rows = [
        [kind, str(len(own)), str(sum(bool(f.differences) for f in own))]
        for kind in KINDS
        if (own := [f for f in faults if f.kind == kind])
    ]
    text = table(["fault", "planted", "with a difference"], rows)
    results = {"operations": counts, "faults": [asdict(fault) for fault in faults]}
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
