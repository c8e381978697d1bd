"""Training on a fixed set of examples: epochs of shuffled batches, one optimizer step each.

The order is drawn from (purpose, seed, epoch), so a resumed run repeats an uninterrupted one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from veriloop.pipeline.config.sections import CheckpointConfig, OptimizerConfig, TrainerConfig
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.trainer import Trainer, TrainerDeps

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


class EpochLoop(Generic[Item]):
    """Trains `model` on `examples` as `recipe` says.

    `gradient(batch)` runs the backward pass of one optimizer step and returns its metrics;
    `evaluate()` returns further metrics at the end of each epoch.
    """

    def __init__(
        self,
        recipe: EpochRecipe,
        examples: Sequence[Item],
        model: Any,
        deps: TrainerDeps,
        gradient: Callable[[Sequence[Item]], Numbers],
        *,
        purpose: str,
        evaluate: Callable[[], Numbers] = dict,
    ) -> None:
        self.recipe, self.examples, self.model, self.deps = recipe, examples, model, deps
        self.optimizer = Optimizer(model, recipe.optimizer)
        self.step = 0  # optimizer steps
        self.steps_per_epoch = -(-len(examples) // recipe.batch)
        self.trainer = Trainer(self, recipe, model, deps)
        self._gradient, self._purpose, self._evaluate = gradient, purpose, evaluate

    @property
    def steps(self) -> int:
        return self.recipe.epochs * self.steps_per_epoch

    @property
    def finished(self) -> bool:
        return self.step >= self.steps

    def progress(self) -> str:
        return f"step {self.step} of {self.steps}"

    def run(self, seconds: Callable[[], float]) -> None:
        """Take the remaining steps, as `Trainer.run` does; the stage saves the last one itself."""
        self.trainer.run(self._optimizer_steps(), seconds, save_last=False)

    def state(self) -> dict[str, Any]:
        return {"done": self.step, "optimizer": self.optimizer.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.step = state["done"]
        self.optimizer.load(state["optimizer"])

    def _batches(self) -> list[list[int]]:
        """Indices of the examples of each optimizer step; the last of an epoch may be smaller."""
        size, batches = self.recipe.batch, []
        for epoch in range(self.recipe.epochs):
            order = list(range(len(self.examples)))
            Random(f"{self._purpose}/{self.recipe.seed}/{epoch}").shuffle(order)
            batches += [order[i : i + size] for i in range(0, len(order), size)]
        return batches

    def _optimizer_steps(self) -> Iterator[None]:
        for batch in self._batches()[self.step :]:
            metrics = self._gradient([self.examples[i] for i in batch])
            progress = self.step / self.steps
            self.deps.ranks.command("step", progress, self.step)
            norm, rate = self.optimizer.step(progress, self.step)
            self.step += 1
            metrics = {**metrics, "grad_norm": norm, "learning_rate": rate}
            if self.step % self.steps_per_epoch == 0:
                metrics |= self._evaluate()
            self.trainer.log(metrics)
            yield
