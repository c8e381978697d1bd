"""Weights in a folder that servers read: one version at a time, in several safetensors files."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from safetensors.torch import save_file
from torch import Tensor

from veriloop.pipeline.runs.atomic_write import fsync, write_atomically

OWN = ".weights"  # file of the run folder, of which its part of the shared folder has its name
FILE_BYTES = 2**30  # after which a file is closed: about what is held in memory


class WeightFiles:
    """The folder of one run. What a killed run left in it is removed."""

    def __init__(self, shared: str, run: Path) -> None:
        """`shared`: the folder of several runs; "": that of the run itself."""
        self.folder = (Path(shared) / _own_name(run) if shared else run / "sent").resolve()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def written(self, weights: Iterable[tuple[str, Tensor]], label: str) -> Iterator[Path]:
        """The folder with these weights, until the block ends."""
        folder = self.folder / label
        folder.mkdir(parents=True)
        try:
            for number, part in enumerate(_parts(weights)):
                path = folder / f"model-{number:05}.safetensors"
                save_file(part, path, metadata={"format": "pt"})
                fsync(path)
            yield folder
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def _own_name(run: Path) -> str:
    """The same for a run that goes on elsewhere, another for a copy of it, and for a run at the
    same path of another machine."""
    kept = run / OWN
    if not kept.is_file():
        run.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, lambda path: path.write_text(token_hex(8)))
    own = f"{kept.read_text()}:{run.resolve()}"
    return f"veriloop-{sha256(own.encode()).hexdigest()[:12]}"


def _parts(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """The weights on the CPU, in parts of about FILE_BYTES."""
    part: dict[str, Tensor] = {}
    size = 0
    for name, weight in weights:
        part[name] = weight.detach().cpu().contiguous()
        size += weight.numel() * weight.element_size()
        del weight  # before the next is computed
        if size >= FILE_BYTES:
            yield part
            part, size = {}, 0
    if part:
        yield part
