"""Numbers added up on the device that they come from, and fetched all at once.

A number that is asked for waits for everything a card still has to do; a step asks once.
"""

import torch
from torch import Tensor


class Tally:
    """Sums and maxima of scalars, by name, in float64."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar; its gradient is not kept."""
        self._held[name] = value.detach().double() + self._held.get(name, 0.0)

    def widen(self, name: str, values_M: Tensor) -> None:
        """Keep the largest of all values so far, 0 at least; a NaN stays."""
        found_M = values_M.detach().double()
        least = self._held.get(name, found_M.new_zeros(()))
        self._held[name] = torch.cat([least[None], found_M]).max()

    def told(self) -> dict[str, float]:
        """Everything that was noted, by name."""
        if not self._held:
            return {}
        return dict(zip(self._held, torch.stack([*self._held.values()]).tolist(), strict=True))
