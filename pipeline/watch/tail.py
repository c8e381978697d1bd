"""Tails a growing file of lines: yields each complete line once and detects rewritten files."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 18  # bytes per read
MAX_LINE = 1 << 22  # bytes; longer lines are skipped
MARK = 1 << 12  # bytes before a position that identify the file's contents


class RewrittenError(Exception):
    """The file no longer begins with what was read; it is read again from the start."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The end of a line that was read."""

    offset: int = 0  # bytes
    mark: int = 0  # checksum of the MARK bytes before it


class Tail:
    """Reads new lines from `position`. Holds no lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to_end: tuple[int, ...] | None = None  # the file's identity when fully read
        self.position = FilePosition()

    def read(self, until: FilePosition | None = None) -> list[bytes | None]:
        """New complete lines, one block at a time, none of them behind `until`; None for a line
        that is too long. An incomplete last line is left for a later call.

        Raises RewrittenError if the file was replaced, truncated or deleted.
        """
        identity = self._identity()
        if identity is not None and identity == self._read_to_end and until is None:
            return []
        if identity is None or not self.holds(self.position):
            return self._restart()
        with self.path.open("rb") as file:
            file.seek(self.position.offset)
            size = BLOCK if until is None else min(BLOCK, until.offset - self.position.offset)
            block = file.read(size)
            end = block.rfind(b"\n") + 1
            lines: list[bytes | None] = [*block[:end].split(b"\n")[:-1]]
            if not end and len(block) == BLOCK:
                lines, end = _read_long_line(file, block)
            if end:
                offset = self.position.offset + end
                self.position = FilePosition(offset, _mark(file, offset) or 0)
            elif until is None:
                self._read_to_end = identity
        return lines

    def holds(self, position: FilePosition) -> bool:
        """Whether the contents before `position` are those it was taken from."""
        try:
            with self.path.open("rb") as file:
                return _mark(file, position.offset) == position.mark
        except FileNotFoundError:
            return position == FilePosition()

    def _identity(self) -> tuple[int, ...] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _restart(self) -> list[bytes | None]:
        before, self.position, self._read_to_end = self.position, FilePosition(), None
        if before.offset:
            raise RewrittenError(f"{self.path} was rewritten")
        return []


def _mark(file: BinaryIO, offset: int) -> int | None:
    """A checksum of the bytes before `offset`; None if the file is shorter."""
    start = max(offset - MARK, 0)
    file.seek(start)
    content = file.read(offset - start)
    return zlib.crc32(content) if len(content) == offset - start else None


def _read_long_line(file: BinaryIO, block: bytes) -> tuple[list[bytes | None], int]:
    """The line that begins with `block`, and its length; ([], 0) if it is incomplete."""
    parts, size = [block], len(block)
    while block := file.read(BLOCK):
        at = block.find(b"\n")
        if at >= 0:
            parts.append(block[:at])
            return [b"".join(parts) if size + at <= MAX_LINE else None], size + at + 1
        size += len(block)
        if size <= MAX_LINE:
            parts.append(block)
    return [], 0
