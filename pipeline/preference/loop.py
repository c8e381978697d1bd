"""The training loop of every preference schedule: rounds of examples, each with its reference.

Everything random is drawn from (seed, round, epoch), so a resumed run repeats an uninterrupted one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.preference.datasets import PreferenceDataset
from veriloop.pipeline.preference.examples import Example, shuffled
from veriloop.pipeline.preference.labelling import read_round, write_round
from veriloop.pipeline.preference.objective import imbalance, weights
from veriloop.pipeline.preference.online import OnlineSampler
from veriloop.pipeline.preference.reference_pass import (
    ids_key,
    keep_pass,
    log_probs,
    pass_key,
    read_pass,
    reference_pass,
    require_scored,
)
from veriloop.pipeline.preference.step import PreferenceObjective, learn, measure
from veriloop.pipeline.rollouts.grade import (
    VerifierFailuresError,
    check_failures,
    verdicts_of,
)
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.record import read_start
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.trainer import Trainer, TrainerDeps
from veriloop.pipeline.types import Graded

CACHE = Path("outputs/cache/reference")
KEY_METRICS = ("loss", "rewards/margins", "rewards/accuracies", "logps/chosen", "grad_norm")


class PreferenceLoop:
    """Trains `policy`, initially the start checkpoint, as `recipe` says.

    `online` is None for a recipe without problems; `start` is a frozen copy of `policy` for one
    that `keeps_start`.
    """

    def __init__(
        self,
        recipe: PreferenceRecipe,
        dataset: PreferenceDataset,
        policy: Any,
        deps: TrainerDeps,
        online: OnlineSampler | None = None,
        start: Any = None,
    ) -> None:
        self.recipe, self.dataset, self.policy, self.deps = recipe, dataset, policy, deps
        self.online = online
        self.optimizer = Optimizer(policy, recipe.optimizer)
        self.trainer = Trainer(self, recipe, policy, deps)
        self.step = 0  # optimizer steps
        self.round, self.round_step = 0, 0  # round_step: optimizer steps within the round
        self.reference_key = ""  # of the round's reference pass
        self.held_out_key = ""  # of the start's reference pass over the held-out examples
        self.ids, self.held_out_ids = "", ""  # what the two passes scored, see `ids_key`
        self.start = start
        self._examples: list[Example] = []
        self._reference: list[Tensor] | None = None
        self._sampled: dict[str, float] = {}  # metrics of the round's sampling, logged once
        self._answers: Sequence[Graded] = ()  # of the round's sampling, logged once

    @property
    def rounds(self) -> int:
        return self.recipe.schedule.rounds

    @property
    def finished(self) -> bool:
        return self.round >= self.rounds

    def progress(self) -> str:
        return f"step {self.step}, in round {self.round + 1}"

    def run(self, seconds: Callable[[], float]) -> dict[str, dict[str, Any]]:
        """Take the remaining steps, as `Trainer.run` does.

        Returns {"before": ..., "after": ...}, the metrics on the held-out examples.
        """
        before = self._evaluate_start()
        self.trainer.run(self._optimizer_steps(), seconds)
        after = self._evaluate()
        self._write_evaluations({"before": before, "after": after})
        return {"before": before, "after": after}

    def state(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "at": self.round_step,
            "done": self.step,
            "key": self.reference_key,
            "held_out_key": self.held_out_key,
            "ids": self.ids,
            "held_out_ids": self.held_out_ids,
            "optimizer": self.optimizer.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.round, self.round_step, self.step = state["round"], state["at"], state["done"]
        self.reference_key, self.held_out_key = state["key"], state["held_out_key"]
        # earlier versions recorded no ids
        self.ids, self.held_out_ids = state.get("ids", ""), state.get("held_out_ids", "")
        self.optimizer.load(state["optimizer"])

    def _optimizer_steps(self) -> Iterator[None]:
        while self.round < self.rounds:
            self._open_round()
            batches = self._batches()
            for at in range(self.round_step, len(batches)):
                self._optimizer_step(batches, at)
                self.round_step = at + 1
                if self.round_step == len(batches):
                    self.round, self.round_step = self.round + 1, 0
                yield
            if not batches:
                self.round += 1

    def _open_round(self) -> None:
        """Set the round's examples and their reference log-probs; read them when resuming in it."""
        resumed = self.round_step > 0
        if self.recipe.schedule.samples:
            self._examples = self._sample(resumed)
        else:
            self._examples = list(self.dataset.rounds[self.round])
        if warning := imbalance(self._examples, self.recipe.loss):
            self.deps.console.note(f"WARNING: {warning}")
        self._reference = None
        if not (self.recipe.loss.has_reference and self._examples):
            return
        if self.start is not None:
            self._reference = self.deps.ranks.together(
                log_probs, self.start, self._examples, self.recipe.trainer
            )
            return
        shared = self.recipe.schedule.name == "offline"  # the start's numbers serve other runs too
        if resumed:
            require_scored(self._examples, self.ids, "the training examples")
            folder = self._path("reference") / self.reference_key
            if shared and not folder.is_dir():  # as earlier versions left it
                folder = CACHE / self.reference_key
            self._reference = read_pass(self._examples, folder)
            return
        ranks = self.deps.ranks
        self.reference_key = pass_key(self.policy, self.deps.tokenizer, self._examples, ranks)
        self.ids = ids_key(self._examples)
        folder = (CACHE if shared else self._path("reference")) / self.reference_key
        self._reference = reference_pass(
            self.policy,
            self._examples,
            self.recipe.trainer,
            folder,
            self.deps.console.note,
            ranks,
        )
        if shared:
            keep_pass(folder, self._path("reference") / self.reference_key)

    def _sync(self, online: OnlineSampler) -> None:
        for warning in online.sync(self.step):
            self.deps.console.note(f"WARNING: after {self.step} optimizer steps {warning}")

    def _sample(self, resumed: bool) -> list[Example]:
        path = self._path("rounds") / f"round_{self.round + 1:04d}.json"
        if resumed:
            self._sampled, self._answers = {}, ()
            return read_round(path)
        assert self.online is not None, "a recipe that samples has problems"
        self._sync(self.online)
        examples, self._answers, self._sampled = self.online.round(self.round)
        self._check_verifiers(self._answers)
        write_round(path, examples)
        self.deps.console.samples(self._answers)
        if not examples:
            self.deps.console.note(f"round {self.round + 1}: no answers to tell apart")
        return examples

    def _check_verifiers(self, graded: Sequence[Graded]) -> None:
        """Raise VerifierFailuresError if verifiers failed on too many, after they were kept."""
        verdicts, share = verdicts_of(graded), self.recipe.verifier_error_share
        try:
            check_failures(f"round {self.round + 1}", verdicts, share)
        except VerifierFailuresError as failure:
            path = self.deps.record.write_refused(self.step + 1, graded)
            raise VerifierFailuresError(
                f"{failure}. The round's rollouts are in {path}"
            ) from failure

    def _batches(self) -> list[list[int]]:
        """Indices of the examples of each optimizer step of the round."""
        schedule, size = self.recipe.schedule, self.recipe.batch
        batches: list[list[int]] = []
        for epoch in range(schedule.epochs):
            order = list(range(len(self._examples)))
            if schedule.name != "curriculum":
                order = shuffled(self._examples, f"batches/{self.recipe.seed}/{self.round}/{epoch}")
            batches += [order[i : i + size] for i in range(0, len(order), size)]
        return batches

    def _optimizer_step(self, batches: Sequence[Sequence[int]], at: int) -> None:
        batch = batches[at]
        metrics = learn(
            self.policy,
            self.optimizer,
            [self._examples[i] for i in batch],
            None if self._reference is None else [self._reference[i] for i in batch],
            self._objective(weights(self._examples, self.recipe.loss)),
            progress=(self.round + at / len(batches)) / self.rounds,
            done=self.step,
            ranks=self.deps.ranks,
        )
        self.step += 1
        epoch = (at + 1) / len(batches) * self.recipe.schedule.epochs
        sampled, self._sampled = self._sampled, {}
        answers, self._answers = self._answers, ()
        metrics |= {"round": float(self.round + 1), "epoch": epoch} | sampled
        self.trainer.log(metrics, answers)

    def _objective(self, class_weights: tuple[float, float]) -> PreferenceObjective:
        return PreferenceObjective(
            loss=self.recipe.loss, trainer=self.recipe.trainer, weights=class_weights
        )

    def _evaluate_start(self) -> dict[str, Any]:
        """The start's metrics: evaluated when the run begins, read from disk when it resumes."""
        path = self._path("evaluations.json")
        if self.step:
            return read_start(path)["before"]
        before = self._evaluate()
        self._write_evaluations({"before": before})
        return before

    def _write_evaluations(self, evaluations: Mapping[str, Any]) -> None:
        text = json.dumps(evaluations, indent=1)
        write_atomically(self._path("evaluations.json"), lambda fresh: fresh.write_text(text))

    def _evaluate(self) -> dict[str, Any]:
        """Loss, margins and accuracy on the held-out examples, against the start.

        With problems in the recipe, also the policy's accuracy on the held-out problems.
        """
        held_out, ranks, trainer = self.dataset.held_out, self.deps.ranks, self.recipe.trainer
        reference = None
        if self.recipe.loss.has_reference:
            if self.step:
                require_scored(held_out, self.held_out_ids, "the held-out examples")
            else:
                self.held_out_key = pass_key(self.policy, self.deps.tokenizer, held_out, ranks)
                self.held_out_ids = ids_key(held_out)
            folder = self._path("held_out") / self.held_out_key
            reference = (
                read_pass(held_out, folder)
                if self.step
                else reference_pass(self.policy, held_out, trainer, folder, ranks=ranks)
            )
        loss = self.recipe.loss
        class_weights = loss.desirable_weight or 1.0, loss.undesirable_weight or 1.0
        metrics: dict[str, Any] = dict(
            ranks.together(
                measure, self.policy, held_out, reference, self._objective(class_weights)
            )
        )
        if self.online is not None:
            self._sync(self.online)
            metrics |= self.online.evaluate(
                self.deps.evaluations_of(self.policy, self.recipe.sampler.dtype, self.step),
                lambda graded: self.deps.record.write_evaluated(self.step, graded),
            )
        summary = ", ".join(
            f"{name} {metrics[name]:.3f}"
            for name in ("rewards/accuracies", "rewards/margins", "pass@1", "format")
            if name in metrics
        )
        self.deps.console.note(f"held out, after step {self.step}: {summary}")
        return metrics

    def _path(self, name: str) -> Path:
        return self.deps.directory / name
