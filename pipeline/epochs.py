"""The loop of whatever learns from examples that do not change: epochs of shuffled batches, one
optimizer step each.

The order is drawn from (purpose, seed, epoch), so a run that is killed and resumed goes the same
way as one that never stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from pipeline import checkpoint, rng
from pipeline.config import CheckpointConfig, OptimizerConfig, TrainerConfig
from pipeline.console import StageConsole
from pipeline.failures import Stopped
from pipeline.optimizer import Optimizer
from pipeline.policy import save_policy
from pipeline.record import StageRecord
from pipeline.stop import StopRequest

Item = TypeVar("Item")
Numbers = Mapping[str, float]


class EpochRecipe(Protocol):
    """What the loop reads of a recipe."""

    @property
    def seed(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...  # examples an optimizer step
    @property
    def optimizer(self) -> OptimizerConfig: ...
    @property
    def trainer(self) -> TrainerConfig: ...
    @property
    def checkpoint(self) -> CheckpointConfig: ...
    def model_dump_json(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTools:
    """What the loop works with; opened and closed by the stage."""

    tokenizer: Any
    record: StageRecord
    console: StageConsole
    directory: Path


class EpochLoop(Generic[Item]):
    """Trains `model` on `train` as `recipe` says.

    `gradient(batch)` runs the backward pass of one optimizer step and returns its metrics;
    `measured()` adds others at the end of each epoch.
    """

    def __init__(
        self,
        recipe: EpochRecipe,
        train: Sequence[Item],
        model: Any,
        tools: EpochTools,
        gradient: Callable[[Sequence[Item]], Numbers],
        *,
        purpose: str,
        measured: Callable[[], Numbers] = dict,
    ) -> None:
        self.recipe, self.train, self.model, self.tools = recipe, train, model, tools
        self.optimizer = Optimizer(model, recipe.optimizer)
        self.done = 0  # optimizer steps
        self._gradient, self._purpose, self._measured = gradient, purpose, measured

    def resume(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Take up the run whose checkpoint held `state` and these weights."""
        self.model.load_state_dict(weights)
        self.done = state["done"]
        self.optimizer.load(state["optimizer"])
        rng.restore(state["rng"])

    def run(self, seconds: Callable[[], float]) -> None:
        """Every step that is left. `seconds` is the time the stage has taken so far, kept in each
        checkpoint. Raises Stopped after Ctrl-C, with everything saved."""
        self.tools.record.rewind(self.done)
        batches = self._batches()
        with StopRequest() as stop:
            for batch in batches[self.done :]:
                self._step([self.train[i] for i in batch], len(batches))
                every = self.recipe.checkpoint.every
                due = stop.asked or (every and self.done % every == 0)
                if due and self.done < len(batches):
                    self.save(seconds())
                if stop.asked and self.done < len(batches):
                    raise Stopped(f"stopped after step {self.done} of {len(batches)}")

    def save(self, seconds: float) -> Path:
        """A checkpoint of the model as it is now; the stage asks for the last one itself."""
        return checkpoint.save(
            self.tools.directory,
            self.done,
            write_model=lambda folder: save_policy(self.model, self.tools.tokenizer, folder),
            state={
                "done": self.done,
                "optimizer": self.optimizer.state(),
                "rng": rng.capture(),
                "recipe": self.recipe.model_dump_json(),
                "seconds": seconds,
            },
            keep=self.recipe.checkpoint.keep,
        )

    def _batches(self) -> list[list[int]]:
        """Indices of the examples of each optimizer step; the last of an epoch may be smaller."""
        size, batches = self.recipe.batch, []
        for epoch in range(self.recipe.epochs):
            order = list(range(len(self.train)))
            Random(f"{self._purpose}/{self.recipe.seed}/{epoch}").shuffle(order)
            batches += [order[i : i + size] for i in range(0, len(order), size)]
        return batches

    def _step(self, batch: Sequence[Item], steps: int) -> None:
        metrics = self._gradient(batch)
        norm, rate = self.optimizer.step(self.done / steps, self.done)
        self.done += 1
        numbers = {**metrics, "grad_norm": norm, "learning_rate": rate}
        if self.done % (steps // self.recipe.epochs) == 0:
            numbers |= self._measured()
        self.tools.record.write_metrics(self.done, numbers)
        self.tools.console.step(self.done, numbers)
