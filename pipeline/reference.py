"""The frozen policy that the KL term looks back to, replaced every N optimizer steps."""

import copy
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch

from pipeline.failures import StageError


class StaleReferenceError(StageError):
    """The reference is not the policy it should be."""


def fingerprint(model: Any) -> str:
    """Hash of every parameter's bits."""
    digest = sha256()
    for name, parameter in model.named_parameters():
        digest.update(f"{name}:{tuple(parameter.shape)};".encode())
        digest.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


class Reference:
    """A copy of the policy as it was `age` optimizer steps ago."""

    def __init__(self, policy: Any, every: int) -> None:
        self.model = copy.deepcopy(policy).eval().requires_grad_(False)
        self.every = every  # optimizer steps; 0: never replaced
        self.replaced_at = 0  # optimizer steps done when it was last copied
        self.fingerprint = fingerprint(self.model)

    def replace_when_due(self, policy: Any, done: int) -> bool:
        """Copy the policy's weights if `done` optimizer steps make it time to."""
        if not self.every or done - self.replaced_at < self.every:
            return False
        self._copy(policy)
        self.replaced_at = done
        self.fingerprint = fingerprint(policy)
        return True

    def check(self, done: int) -> None:
        """Raise StaleReferenceError when it is overdue, or its weights are not those recorded."""
        age = done - self.replaced_at
        if self.every and age >= self.every:
            raise StaleReferenceError(
                f"the reference is {age} optimizer steps old; it is to be replaced every "
                f"{self.every}"
            )
        found = fingerprint(self.model)
        if found != self.fingerprint:
            raise StaleReferenceError(
                f"the reference's weights hash to {found}, but {self.fingerprint} was copied at "
                f"optimizer step {self.replaced_at}"
            )

    @torch.no_grad()
    def _copy(self, policy: Any) -> None:
        for own, new in zip(self.model.parameters(), policy.parameters(), strict=True):
            own.copy_(new)

    def state(self) -> dict[str, Any]:
        return {
            "weights": self.model.state_dict(),
            "replaced_at": self.replaced_at,
            "fingerprint": self.fingerprint,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["weights"])
        self.replaced_at = state["replaced_at"]
        self.fingerprint = state["fingerprint"]
