"""The recipe of the tiny base model."""

from dataclasses import asdict
from typing import Literal, Self

from pydantic import model_validator

from veriloop.data.corpus import Mix
from veriloop.pipeline.config.fields import Count, Part, Seed, Share, nearest_divisor
from veriloop.pipeline.config.sections import Compute, OptimizerConfig


class TinyModel(Part):
    """A randomly initialised Llama. Engines need a head size (hidden / heads) of 32, 64, ..."""

    hidden: Count = 96
    """Width."""
    layers: Count = 4
    """Blocks."""
    heads: Count = 3
    """Attention heads."""
    feed_forward: Count = 288
    """Width of the MLP."""
    vocabulary: Count = 512
    """Entries of the tokenizer."""
    tied: bool = False
    """Share the embedding's weights with the output head."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % self.heads:
            nearest = nearest_divisor(self.hidden, self.heads)
            raise ValueError(
                f"heads={self.heads} does not divide hidden={self.hidden}; nearest: {nearest}"
            )
        return self


SHARED = (  # shares of the corpus that divide one whole
    ("own_language", "other_language"),
    ("programs", "general"),
    ("general_good", "general_wrong"),
    ("fact_lists", "bare_sums", "worked"),
)


class BaseRecipe(Part):
    """Pre-training of the tiny base model."""

    stage: Literal["base"] = "base"
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of weights, sampling and order of data."""
    model: TinyModel = TinyModel()
    """Shape of the model."""
    corpus: Mix = Mix()
    """Shares and error rates of the corpus."""
    tokenizer_documents: Count = 6000
    """Documents that the tokenizer is trained on."""
    steps: Count
    """Optimizer steps."""
    tokens_per_step: Count = 2048
    """Tokens per optimizer step."""
    row: Count = 128
    """Positions per packed row."""
    compute: Compute | Literal["auto"] = "float32"
    """Precision of both passes; weights stay float32.

    auto: bfloat16 on a CPU that has matrix instructions for it, else float32.
    """
    optimizer: OptimizerConfig
    """Learning rates, decay and schedule."""
    step_accuracy: Share = 0.7
    """Least accuracy with worked steps.

    Greedy accuracy on held-out problems, below which RL collapses.
    """

    @model_validator(mode="after")
    def _corpus_holds_shares(self) -> Self:
        for name, value in asdict(self.corpus).items():
            if not all(0.0 <= v <= 1.0 for v in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"corpus.{name}={value}: a share or rate must be in [0, 1]")
        for names in SHARED:
            shares = {name: getattr(self.corpus, name) for name in names}
            if sum(shares.values()) > 1.0 + 1e-9:
                summed = " + ".join(f"corpus.{name}={value}" for name, value in shares.items())
                raise ValueError(f"{summed}: these shares of one whole exceed 1")
        for name in ("habits", "layouts"):
            if not any(getattr(self.corpus, name)):
                raise ValueError(f"corpus.{name}: one of its shares must be above 0")
        return self
