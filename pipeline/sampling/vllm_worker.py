"""Extension of vLLM's worker: loads weights from a folder and reports their digests.

    vllm serve ... --worker-extension-cls veriloop.pipeline.sampling.vllm_worker.VeriloopWorker

vLLM mixes the class into its worker, whose methods are then called through /collective_rpc.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from veriloop.pipeline.sampling.sampler import Digest, digests
from veriloop.pipeline.sampling.vllm_weights import held_weights, repack_head


class VeriloopWorker:
    """Methods of a vLLM worker."""

    model_runner: Any
    vllm_config: Any

    def veriloop_load(self, folder: str) -> None:
        """Replace the weights by those of the safetensors files in `folder`."""
        paths = sorted(Path(folder).glob("*.safetensors"))
        if not paths:
            raise FileNotFoundError(
                f"the server sees no weights in {folder}; cluster.samplers.folder must be mounted "
                "there on every machine"
            )
        self.model_runner.reload_weights(weights_iterator=_read(paths))
        if self._tied:
            repack_head(self.model_runner.get_model())

    def veriloop_digests(self, shapes: Mapping[str, Sequence[int]]) -> list[tuple[str, Digest]]:
        """(name, digest) of every copy that the engine computes with of these weights."""
        sizes = {name: tuple(shape) for name, shape in shapes.items()}
        return digests(held_weights(self.model_runner.get_model(), sizes, tied=self._tied))

    @property
    def _tied(self) -> bool:
        return bool(self.vllm_config.model_config.hf_config.tie_word_embeddings)


def _read(paths: Sequence[Path]) -> Iterator[tuple[str, Tensor]]:
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name)
