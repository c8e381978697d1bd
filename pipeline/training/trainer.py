"""What all training loops share: checkpoints, resuming, stop requests and the metrics of a step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from veriloop.pipeline.config.sections import CheckpointConfig
from veriloop.pipeline.errors import Stopped
from veriloop.pipeline.model.device import trim_heap
from veriloop.pipeline.model.policy import policy_weights, sampled_as_saved, write_policy
from veriloop.pipeline.model.prepare import DTYPES
from veriloop.pipeline.model.sharded import SINGLE, Ranks, gathered, sharded_state
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.checkpoint_writer import CheckpointWriter
from veriloop.pipeline.runs.console import StageConsole
from veriloop.pipeline.runs.evaluation_store import FOLDER, EvaluationFolder
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.training import rng
from veriloop.pipeline.training.measurements import SystemUse
from veriloop.pipeline.training.stop import StopRequest
from veriloop.pipeline.types import Graded


class TrainerRecipe(Protocol):
    """The part of a recipe that the trainer reads."""

    @property
    def checkpoint(self) -> CheckpointConfig: ...
    def model_dump_json(self) -> str: ...


class TrainingLoop(Protocol):
    """What a Trainer drives."""

    @property
    def step(self) -> int: ...  # steps finished; names metrics and checkpoints
    @property
    def finished(self) -> bool: ...
    def progress(self) -> str: ...  # "step 3 of 10"
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerDeps:
    """What every training loop works with; opened and closed by the stage."""

    tokenizer: Any
    record: StageRecord
    console: StageConsole
    directory: Path
    start: Path  # the checkpoint that the run started from
    ranks: Ranks = SINGLE  # those that train the model

    def evaluations_of(self, model: Any, dtype: str, step: int) -> EvaluationFolder | None:
        """`evaluations`, for a sampler in `dtype` that takes the model's weights from memory. None
        if these are not the weights of its checkpoint."""
        same = sampled_as_saved(model, DTYPES[dtype])
        return self.evaluations(step) if same else None

    def evaluations(self, step: int) -> EvaluationFolder | None:
        """Those of the weights after `step` steps: 0, for the start, or as many as the last
        checkpoint has. None without a complete checkpoint of that step."""
        weights = checkpoint.of_step(self.directory, step) if step else self.start
        if weights is None:
            return None
        folder = self.directory.parent / FOLDER
        return EvaluationFolder(folder, self.record, step, weights, self.console.note)


class Trainer:
    """Runs the steps of `loop`, which trains `model`: saves it, resumes it and stops it."""

    def __init__(
        self, loop: TrainingLoop, recipe: TrainerRecipe, model: Any, deps: TrainerDeps
    ) -> None:
        self._loop, self._recipe, self._model, self._deps = loop, recipe, model, deps
        self._stop = StopRequest()
        self._system = SystemUse(deps.directory, lambda text: deps.console.note(text))
        self._writer = CheckpointWriter(deps.directory, recipe.checkpoint.keep)
        self._saved_step = -1

    @property
    def stop_requested(self) -> bool:
        """Whether the run ends after the current step."""
        return self._stop.requested

    def resume(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Continue the run whose last checkpoint has this state and these weights."""
        self._model.load_state_dict(sharded_state(self._model, weights))
        self._loop.load(state)
        rng.restore(state["rng"])
        self._saved_step = self._loop.step

    def run(
        self, steps: Iterable[None], seconds: Callable[[], float], *, save_last: bool = True
    ) -> None:
        """Take the remaining `steps`; save when `checkpoint.every` is due and after the last one.

        `seconds()` is the stage's wall time so far, kept in each checkpoint. After SIGINT or
        SIGTERM the current step is finished and saved, then Stopped is raised. Without
        `save_last` the caller saves the last step.
        """
        self._rewind_record()
        every = self._recipe.checkpoint.every
        with self._stop, self._system, self._writer:
            for _ in steps:
                if self._loop.finished:
                    continue
                if self.stop_requested:
                    self.save(seconds())
                    raise Stopped(f"stopped after {self._loop.progress()}")
                if every and self._loop.step % every == 0:
                    self._begin_save(seconds())
            if save_last and self._saved_step != self._loop.step:
                self._begin_save(seconds())

    def _rewind_record(self) -> None:
        """Record a resumption and remove what this run repeats. Raises RecipeError if rows of
        earlier steps are lost."""
        step, record = self._loop.step, self._deps.record
        torn = record.require_steps(step)
        if torn:
            self._deps.console.note(
                f"{record.metrics_path}: the last line was incomplete; its {torn} bytes are cut off"
            )
        if step:
            record.write_resume(step, torn)
        record.rewind(step)

    def save(self, seconds: float) -> Path:
        """Write a checkpoint of the current step and return its folder."""
        self._begin_save(seconds)
        return self._writer.finish()

    def _begin_save(self, seconds: float) -> None:
        """Write a checkpoint of the current step; of a model on a GPU during the next steps."""
        state, ranks = self._loop.state(), self._deps.ranks
        if ranks is not SINGLE:
            ranks.command("gather_state")
            state = gathered(state)
            ranks.command("gather_weights")
        self._writer.begin(
            self._loop.step,
            write_model=partial(write_policy, self._model, self._deps.tokenizer),
            weights=policy_weights(self._model),
            state=state
            | {
                "rng": rng.capture(),
                "recipe": self._recipe.model_dump_json(),
                "seconds": seconds,
            },
        )
        self._saved_step = self._loop.step
        trim_heap()

    def log(self, metrics: Mapping[str, float], samples: Sequence[Graded] = ()) -> None:
        """Write the metrics of the step that has just finished, and its use of the machine, to the
        record and the console; `samples` to its trackers."""
        metrics = {**metrics, **self._system.metrics()}
        self._deps.record.write_metrics(self._loop.step, metrics, samples)
        self._deps.console.step(self._loop.step, metrics)
