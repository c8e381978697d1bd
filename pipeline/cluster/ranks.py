"""The processes that take an optimizer step together. Without torchrun it is this one alone."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

Item = TypeVar("Item")


class Ranks:
    """One process, which shares nothing. `Gang` has the same methods for several."""

    rank = 0
    count = 1

    def shard(self, model: Any) -> None:
        """Divide a model's weights among the ranks, in place."""

    def deal(self, items: Sequence[Item], empty: Callable[[], Item]) -> Sequence[Item]:
        """This rank's items. All ranks get equally many, so that they take part in the same
        collectives; where one is short, it gets `empty()`."""
        del empty
        return items

    def summed(self, values: Tensor) -> Tensor:
        """The sum over ranks of tensors of one shape."""
        return values

    def stacked(self, values_K: Tensor) -> Tensor:
        """The values of all ranks, [ranks, K]."""
        return values_K[None]

    def dismiss(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """End the other ranks, as an exit callback."""

    def tell(self, *order: Any) -> None:
        """Call the other ranks to what this one does next."""


ALONE = Ranks()
_joined: Ranks = ALONE


def joined() -> Ranks:
    """The ranks that this process trains with."""
    return _joined


def set_joined(ranks: Ranks) -> None:
    """Make these the ranks of this process."""
    global _joined
    _joined = ranks
