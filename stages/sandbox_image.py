"""`veriloop sandbox build-image`: what the Docker backend runs, made without a registry."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.failures import RecipeError, StageError
from sandbox.docker.image import build
from sandbox.probe import SandboxUnavailableError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Make the image for --backend docker from this machine's Python and its libraries."""

    tag: str = ""  # another name for the image
    from_rootfs: str = ""  # a tar file of a root file system with /usr/bin/python3 to take instead


def build_image(options: Options) -> int:
    """Print the image's name. Raises RecipeError for a base that will not do, StageError without
    a Docker daemon or a Python to put in."""
    base = Path(options.from_rootfs) if options.from_rootfs else None
    if base is not None and not base.is_file():
        raise RecipeError(f"--from-rootfs {base}: no such file")
    try:
        built = build(options.tag, base)
    except (SandboxUnavailableError, OSError) as refusal:
        raise StageError(str(refusal)) from refusal
    except ValueError as mistake:
        raise RecipeError(str(mistake)) from mistake
    print(f"{built.tag}: {built.size_mb:.0f} MB")
    return 0
