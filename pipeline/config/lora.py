"""Low-rank adapters in recipes."""

from typing import Literal, Self

from pydantic import model_validator

from veriloop.pipeline.config.fields import Part, Positive, Whole


class LoraConfig(Part):
    """Low-rank adapters (LoRA), trained instead of the weights."""

    rank: Whole = 0
    """Rank of the adapters; 0: none, every weight is trained."""
    alpha: Positive = 16.0
    """Adapter outputs are scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Last parts of layer names, as q_proj. (): every linear layer."""
    base: Literal["full", "nf4"] = "full"
    """Frozen weights under adapters. nf4: in 4 bits, by bitsandbytes (QLoRA)."""

    @model_validator(mode="after")
    def _base_has_adapters(self) -> Self:
        if self.base != "full" and not self.rank:
            raise ValueError(
                f"base={self.base!r} without adapters: no weight is frozen; set rank, or base: full"
            )
        return self
