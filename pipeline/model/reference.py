"""The frozen reference policy of the KL term, replaced every N optimizer steps."""

import copy
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.config.checkpoints import VOLATILE
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.probe import compute_dtype
from veriloop.pipeline.model.sharded import SINGLE, Ranks, own_part, sharded_state, summed_like

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of a weight
_CHUNK = 1 << 22  # weights hashed at a time
_SPREAD = 0x9E3779B97F4A7C1  # mixes the bits of neighbouring indices


class StaleReferenceError(StageError):
    """The reference is overdue or its weights have changed."""


@torch.no_grad()
def fingerprint(model: Any, rounded_like: Any = None) -> str:
    """Hash of every parameter's bits and their positions, computed on the parameters' device.

    The same for shards on any number of ranks. `rounded_like`: a copy of the model, to whose dtypes
    the parameters are rounded first.
    """
    like = model if rounded_like is None else rounded_like
    named = [
        (name, _checksum(parameter.to(other.dtype)))
        for (name, parameter), other in zip(
            model.named_parameters(), like.parameters(), strict=True
        )
    ]
    digest = sha256("".join(f"{name};" for name, _ in named).encode())
    sums_P = summed_like(next(model.parameters()), torch.stack([bits for _, bits in named]))
    digest.update(sums_P.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def deciding_config(model: Any) -> str:
    """What of a model's config decides its numbers, such as the base of its positions, as JSON."""
    values = model.config.to_dict()
    kept = {key: value for key, value in values.items() if key not in VOLATILE}
    return json.dumps(kept, sort_keys=True, default=str)


def _checksum(parameter: Tensor) -> Tensor:
    """Sum of the bit patterns, each times an odd number by index, modulo 2^64; a scalar. Of a
    sharded parameter this is its shard's part of the sum."""
    own, offset = own_part(parameter)
    bits_P = own.reshape(-1).view(_BITS[own.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=own.device)
    for first in range(0, len(bits_P), _CHUNK):
        part_C = bits_P[first : first + _CHUNK].to(torch.int64)
        start = offset + first
        index_C = torch.arange(start, start + len(part_C), device=own.device)
        total += (part_C * ((index_C * _SPREAD) | 1)).sum()
    return total


def frozen_copy(policy: Any) -> Any:
    """A frozen copy of the policy; parameters frozen already are shared. On a GPU in the dtype that
    it computes in."""
    dtype = compute_dtype(policy) if device_of(policy).type == "cuda" else None
    copies = {
        id(p): nn.Parameter(p.detach().clone().to(dtype or p.dtype), requires_grad=False)
        if p.requires_grad
        else p
        for p in policy.parameters()
    }
    return copy.deepcopy(policy, copies).eval()


def sharing_copy(model: Any) -> Any:
    """A copy with its own trained parameters that shares the frozen ones."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


class Reference:
    """A frozen copy of the policy from an earlier optimizer step."""

    def __init__(self, policy: Any, every: int, ranks: Ranks = SINGLE) -> None:
        """The policy is not sharded yet; the copy is divided among `ranks`."""
        self._own = {name for name, p in policy.named_parameters() if p.requires_grad}
        self.model = frozen_copy(policy)
        ranks.shard(self.model)
        self.every = every  # optimizer steps; 0: never replaced
        self.replaced_at = 0  # optimizer steps done when it was last copied
        self.fingerprint = fingerprint(self.model)

    def replace_when_due(self, policy: Any, done: int) -> bool:
        """Copy the policy's weights if `every` optimizer steps have passed; returns whether."""
        if not self.every or done - self.replaced_at < self.every:
            return False
        self._copy(policy)
        self.replaced_at = done
        self.fingerprint = fingerprint(policy, rounded_like=self.model)
        return True

    def check(self, done: int) -> None:
        """Raise StaleReferenceError if it is overdue or its weights have changed since the copy."""
        age = done - self.replaced_at
        if self.every and age >= self.every:
            raise StaleReferenceError(
                f"the reference is {age} optimizer steps old; it must be replaced every "
                f"{self.every}"
            )
        current = fingerprint(self.model)
        if current != self.fingerprint:
            raise StaleReferenceError(
                f"the reference's weights hash to {current}, but {self.fingerprint} was copied at "
                f"optimizer step {self.replaced_at}"
            )

    @torch.no_grad()
    def _copy(self, policy: Any) -> None:
        for own, new in zip(self.model.parameters(), policy.parameters(), strict=True):
            own.copy_(new)

    def state(self) -> dict[str, Any]:
        return {
            "weights": {k: v for k, v in self.model.state_dict().items() if k in self._own},
            "replaced_at": self.replaced_at,
            "fingerprint": self.fingerprint,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        own = self.model.state_dict()
        self.model.load_state_dict(own | sharded_state(self.model, state["weights"]))
        self.replaced_at = state["replaced_at"]
        same = all(own[name].dtype == weight.dtype for name, weight in state["weights"].items())
        self.fingerprint = state["fingerprint"] if same else fingerprint(self.model)
