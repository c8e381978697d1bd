"""The micro-batches of an optimizer step, on one process or dealt to several ranks."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import Tensor

from veriloop.pipeline.cluster.deal import counted
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.training.measurements import Tally

Part = TypeVar("Part")


def accumulated(
    parts: Iterable[Part],
    share: Callable[[Part, Tally], Tensor],
    ranks: Ranks = SINGLE,
    *,
    backward: bool = True,
) -> dict[str, float]:
    """Backward passes of the parts' shares of a loss; its total as "loss", and those that `share`
    adds to the tally. The sums are those of all `ranks`."""
    tally = Tally()
    for part, tally.weight in counted(ranks, [*parts]):
        loss = share(part, tally)
        tally.add("loss", loss)
        if backward:
            (loss if tally.weight else 0.0 * loss).backward()
    return tally.totals(ranks.stacked if ranks.count > 1 else None)
