"""A key-value cache with room to grow: a new token is written beside the others, none is copied.

Axes: N rows, H heads, T positions, D width of a head.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 64  # positions that are set aside when the old ones are full


class RoomyLayer(DynamicLayer):
    """`DynamicLayer` whose keys and values are views of larger tensors, [N, H, T, D]."""

    _whole: tuple[Tensor, Tensor] | None = None  # what keys and values are views of

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Add the newest positions; returns all of them."""
        del args, kwargs
        held = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        wanted = held + key_states.shape[-2]
        if self._whole is None or self._whole[0].shape[-2] < wanted:
            self._whole = tuple(  # type: ignore[assignment]
                _with_room(old, new, held, wanted + ROOM)
                for old, new in ((self.keys, key_states), (self.values, value_states))
            )
        assert self._whole is not None
        for whole, new in zip(self._whole, (key_states, value_states), strict=True):
            whole[:, :, held:wanted] = new
        self.keys, self.values = (whole[:, :, :wanted] for whole in self._whole)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._whole = None
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._whole = None
        super().batch_select_indices(indices)


def _with_room(old: Tensor | None, new: Tensor, held: int, room: int) -> Tensor:
    made = new.new_empty(*new.shape[:2], room, new.shape[-1])
    if held and old is not None:
        made[:, :, :held] = old
    return made


def roomy_cache(config: Any) -> DynamicCache:
    """An empty cache for a model; layers that attend to a window only keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [
        RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
