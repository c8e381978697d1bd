"""Extension of vLLM's worker: loads weights, from a folder or as they are sent, and reports their
digests.

    vllm serve ... --worker-extension-cls veriloop.pipeline.sampling.vllm_worker.VeriloopWorker

vLLM mixes the class into its worker, whose methods are then called through /collective_rpc.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors import safe_open
from torch import Tensor

from veriloop.pipeline.sampling.sampler import Digest, digests
from veriloop.pipeline.sampling.transfer.receiver import Receiver
from veriloop.pipeline.sampling.transfer.records import Invitation
from veriloop.pipeline.sampling.vllm_weights import discard_partial, held_weights, repack_head


class VeriloopWorker:
    """Methods of a vLLM worker."""

    model_runner: Any
    vllm_config: Any
    rank: int  # in this server
    device: Any

    veriloop_receiver: Receiver | None = None

    def veriloop_load(self, folder: str) -> None:
        """Replace the weights by those of the safetensors files in `folder`."""
        paths = sorted(Path(folder).glob("*.safetensors"))
        if not paths:
            raise FileNotFoundError(
                f"the server sees no weights in {folder}; cluster.samplers.folder must be mounted "
                "there on every machine"
            )
        self._reload(_read(paths))

    def veriloop_receive(self, invitation: Mapping[str, Any]) -> None:
        """Replace the weights by those that the trainer sends, see `transfer.records.Invitation`.

        A transfer that breaks leaves a mixture of old and new weights, which the next one replaces.
        """
        invited = msgspec.convert(invitation, Invitation)
        try:
            receiver = self._receiver(invited)
            self._reload(receiver.weights(invited.sync))
            receiver.confirm(invited.sync)
        except BaseException:
            self._hang_up()
            raise

    def _receiver(self, invitation: Invitation) -> Receiver:
        known = self.veriloop_receiver
        if known is not None and known.group_id == invitation.group:
            return known
        if invitation.sync > 1:
            raise RuntimeError(
                "the server has lost its connection to the trainer: it was restarted"
            )
        self._hang_up()
        self.veriloop_receiver = Receiver(invitation, self.rank, self.device)
        return self.veriloop_receiver

    def _hang_up(self) -> None:
        if self.veriloop_receiver is not None:
            self.veriloop_receiver.close()
            self.veriloop_receiver = None

    def _reload(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        model = self.model_runner.get_model()
        discard_partial(model)  # of a transfer that broke
        self.model_runner.reload_weights(weights_iterator=weights)
        if self._tied:
            repack_head(model)

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
