"""The processes that take an optimizer step together; without torchrun, one process."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")


class Ranks:
    """A single process. `RankGroup` has the same methods for several."""

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

    def together(self, function: Callable[..., Result], model: Any, *values: Any) -> Result:
        """`function(model, *values, ranks)`, which every rank calls with its part of the model.

        `function` is importable, and its values can be pickled.
        """
        return function(model, *values, self)

    def close(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """End the other ranks, as an exit callback."""

    def command(self, *message: Any) -> None:
        """Have the other ranks take part in what this one does next."""


SINGLE = Ranks()
_current: Ranks = SINGLE


def current_ranks() -> Ranks:
    """The ranks that this process trains with."""
    return _current


def set_current_ranks(ranks: Ranks) -> None:
    """Make these the ranks of this process."""
    global _current
    _current = ranks
