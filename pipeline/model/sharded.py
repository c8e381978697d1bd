"""The ranks that train together, one without torchrun, and tensors in shards on them (DTensor).

Plain tensors pass through every function unchanged. Whatever makes a tensor whole is a collective:
all ranks call it for the same tensors in the same order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from veriloop.pipeline.model.device import synchronize

OPEN, CLOSE, LEAVE = "open", "close", "leave"  # commands: begin a stage, end it, end

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
        """`function(model, *values, ranks)`, which every rank calls with its part of the model,
        one that `shard` divided.

        `function` is importable, and its values can be pickled.
        """
        return function(model, *values, self)

    def close(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """Have the other ranks end the stage, as an exit callback."""

    def command(self, *message: Any) -> None:
        """Have the other ranks take part in what this one does next."""


SINGLE = Ranks()
_joined: Ranks = SINGLE
_alone = False


def joined_ranks() -> Ranks:
    """The ranks of this command, of which a stage may train with this one only."""
    return _joined


def current_ranks() -> Ranks:
    """The ranks that this process trains with."""
    return SINGLE if _alone else _joined


def set_current_ranks(ranks: Ranks) -> None:
    """Make these the ranks of this process."""
    global _joined
    _joined = ranks


@contextmanager
def alone() -> Iterator[None]:
    """Train in this process only, while the other ranks wait for it."""
    global _alone
    _alone = True
    try:
        yield
    finally:
        _alone = False


def is_sharded(tensor: Any) -> bool:
    """Whether this is a DTensor; asked without importing torch.distributed."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Tensor:
    """All of a tensor, on every rank."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def own_part(tensor: Any) -> tuple[Tensor, int]:
    """This rank's part of a tensor and the index of its first element in the flattened whole."""
    if not is_sharded(tensor):
        return tensor, 0
    mesh = tensor.device_mesh
    rows = -(-len(tensor) // mesh.size())  # as torch.chunk divides; the last ranks may get fewer
    first = min(rows * mesh.get_local_rank(), len(tensor))
    return tensor.to_local(), first * (tensor.numel() // len(tensor))


def summed_like(tensor: Any, values: Tensor) -> Tensor:
    """The sum of `values` over the ranks among which `tensor` is divided."""
    if is_sharded(tensor):
        import torch.distributed as dist

        dist.all_reduce(values, group=tensor.device_mesh.get_group())
    return values


def shard_like(values: Tensor, like: Any) -> Tensor:
    """This rank's shard of `values`, which every rank holds whole, laid out as `like` is."""
    if not is_sharded(like) or is_sharded(values):
        return values
    from torch.distributed.tensor import distribute_tensor

    values = values.detach().to(like.device)
    return distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)


def sharded_state(module: nn.Module, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state of whole tensors, laid out as the module's own."""
    own = module.state_dict()
    if not any(map(is_sharded, own.values())):
        return state
    return {name: shard_like(values, own.get(name)) for name, values in state.items()}


def whole_state(module: nn.Module) -> dict[str, Tensor]:
    """`module.state_dict()`; that of a sharded one with whole tensors on the CPU."""
    state = module.state_dict()
    if not any(map(is_sharded, state.values())):
        return state
    return gathered(module.state_dict(keep_vars=True))  # the same object for tied weights


def whole_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, weight) of every parameter, one at a time whole."""
    for name, parameter in model.named_parameters():
        yield name, whole(parameter.detach())


def gathered(state: Any, *, keep: bool = True) -> Any:
    """Nested dicts, lists and tuples with whole tensors, all on the CPU, in place of sharded ones.

    One tensor at a time is whole on the device. A rank that does not `keep` the result takes part
    and gets its sharded tensors replaced by None.
    """
    seen: dict[int, Tensor | None] = {}

    def visit(value: Any) -> Any:
        if is_sharded(value):
            if id(value) not in seen:
                full = whole(value.detach())
                synchronize(full.device)  # tensor by tensor, as rank 0 does
                # a copy: of one rank this is its shard itself, which training changes
                seen[id(value)] = full.to("cpu", copy=True) if keep else None
            return seen[id(value)]
        if isinstance(value, dict):
            return {key: visit(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(visit, value))
        if isinstance(value, Tensor):  # such as AdamW's number of steps
            return value.detach().cpu() if keep else value.detach()
        return value

    return visit(state)
