"""Samples of the latest rollouts of a stage, computed once for all clients."""

import json
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veriloop.pipeline.report.read_run import Stage, step_files
from veriloop.pipeline.report.rollout_stats import groups_of, scalar_rows
from veriloop.pipeline.report.sample import sampled
from veriloop.pipeline.report.token_pieces import TokenPieces, read_tokenizer, tokenizer_of

STEPS = 8  # the latest ones, which are sent
CACHED = 2 * STEPS  # samples kept to be sent to further clients
MAX_FILE = 1 << 29  # bytes of a step's file that is read
SETTLED_S = 2.0  # a folder unchanged for this long is not listed again


class UnreadableError(Exception):
    """A rollout file that is incomplete or not in the expected format."""


class SampleCache:
    """Samples of steps as JSON. Thread-safe; computes one at a time and keeps the last ones."""

    def __init__(self) -> None:
        self._samples: OrderedDict[tuple[Path, str], str] = OrderedDict()
        self._tokenizer: tuple[Path, Any] | None = None
        self._lock = threading.Lock()

    def sample(self, stage: Stage, step: int, path: Path, version: str) -> str:
        """{step, groups, pieces} of a file. Raises UnreadableError."""
        with self._lock:
            if (path, version) not in self._samples:
                try:
                    self._samples[path, version] = self._sample(stage, step, path)
                except Exception as failure:  # another process may still write the file
                    raise UnreadableError(f"{type(failure).__name__}: {failure}") from failure
            self._samples.move_to_end((path, version))
            if len(self._samples) > CACHED:
                self._samples.popitem(last=False)
            return self._samples[path, version]

    def _sample(self, stage: Stage, step: int, path: Path) -> str:
        if (size := path.stat().st_size) > MAX_FILE:
            raise ValueError(f"{size / 2**20:,.0f} MiB are too large to show")
        pieces = self._pieces(stage)
        groups = groups_of(step, scalar_rows(path))
        steps = sampled([(step, path)], groups, {}, pieces, 0)
        sample = steps[0] if steps else {"step": step, "groups": []}
        return json.dumps(sample | {"pieces": [] if pieces is None else pieces.table})

    def _pieces(self, stage: Stage) -> TokenPieces | None:
        path = tokenizer_of(stage)
        if path is None:
            return None
        if self._tokenizer is None or self._tokenizer[0] != path:
            self._tokenizer = path, read_tokenizer(path)
        return TokenPieces(self._tokenizer[1])


class LatestRollouts:
    """The latest steps of one stage that were not sent yet, the newest first."""

    def __init__(self, stage: Stage, cache: SampleCache, sent: Mapping[int, str]) -> None:
        self.stage, self._cache = stage, cache
        self.sent = dict(sent)  # version of the file, by step
        self._failed: dict[int, tuple[str, str]] = {}  # version and reason, by step
        self._files: list[tuple[int, Path]] = []
        self._listed = 0.0  # modification time of the folder when it was listed

    def read(self) -> str | None:
        """The sample of one step; None if nothing is new. An incomplete file is skipped until it
        changes."""
        for step, path in self._latest_files():
            version = _version(path)
            if version in ("", self.sent.get(step), self._failed.get(step, ("",))[0]):
                continue
            try:
                sample = self._cache.sample(self.stage, step, path, version)
            except UnreadableError as failure:
                self._failed[step] = version, str(failure)
                continue
            self._failed.pop(step, None)
            self.sent[step] = version
            return sample
        return None

    @property
    def problems(self) -> list[str]:
        """One message for each of the latest steps that cannot be read."""
        return [f"rollouts of step {step}: {reason}" for step, (_, reason) in self._failed.items()]

    def _latest_files(self) -> list[tuple[int, Path]]:
        folder = self.stage.folder / "rollouts"
        try:
            date = folder.stat().st_mtime
        except FileNotFoundError:
            date = 0.0
        if date != self._listed or time.time() - date < SETTLED_S:
            self._listed, self._files = date, step_files(folder)[: -STEPS - 1 : -1]
            steps = {step for step, _ in self._files}
            self.sent = {step: v for step, v in self.sent.items() if step in steps}
            self._failed = {step: v for step, v in self._failed.items() if step in steps}
        return self._files


def _version(path: Path) -> str:
    """Changes whenever the file does; "" for a missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ""
    return f"{zlib.crc32(f'{status.st_size} {status.st_mtime_ns}'.encode()):x}"
