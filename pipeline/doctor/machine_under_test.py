"""The machine that the doctor checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Engine = Literal["auto", "vllm", "torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Paths and settings to check. Folders and ports are functions that only their checks call:
    a broken install must not stop the other checks."""

    root: Path  # of the checkout, or of the installed package
    folders: Callable[[], Mapping[str, Path]]  # by contents: runs, model cache
    ports: Callable[[], Mapping[str, int]]  # default port by command
    sampler: Engine = "auto"

    @property
    def requirements(self) -> Path | None:
        """Folder of the lock files; None without a checkout, such as in a wheel install."""
        folder = self.root / "requirements"
        return folder if (folder / "locked.txt").is_file() else None

    def install_command(self, package: str) -> str:
        """How to install a missing package here."""
        return f"pip install {package}" if self.requirements is None else "make install"
