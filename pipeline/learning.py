"""What learns: the policy with all that its algorithm keeps beside it, over a whole rollout."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from random import Random
from typing import Any

from torch import Tensor

from pipeline.assemble import minibatches
from pipeline.clock import span
from pipeline.compute import batch_tolerance
from pipeline.critic import Critic
from pipeline.failures import RecipeError
from pipeline.losses.baselines import RunningMean
from pipeline.losses.process import Steps
from pipeline.losses.trust_region import adapted_beta
from pipeline.optimizer import Optimizer
from pipeline.pretraining import pretraining
from pipeline.records import Graded, Update
from pipeline.reference import Reference
from pipeline.rl_config import RLRecipe
from pipeline.scribe import Scribe
from pipeline.signals import Estimator, score_parts
from pipeline.steps import steps_of
from pipeline.task import StepScores
from pipeline.token_trace import SeenTokens, TokenTrace
from pipeline.trust_region import distance
from pipeline.unlearned import scored, unlearned
from pipeline.update import Learner, update
from pipeline.ways import shares


class Learning:
    """Turns graded rollouts into updates. `step_scores` is asked for advantage `process`."""

    def __init__(
        self, recipe: RLRecipe, policy: Any, scribe: Scribe, step_scores: StepScores | None
    ) -> None:
        self.recipe, self.policy = recipe, policy
        self.scribe, self.step_scores = scribe, step_scores
        self.algorithm = algorithm = recipe.algorithm
        self.done = 0  # optimizer steps
        self.reference = (
            Reference(policy, algorithm.reference_every) if algorithm.kl_coefficient else None
        )
        self.critic = None
        if algorithm.critic != "none":
            own, rate = algorithm.critic == "separate", algorithm.critic_learning_rate
            self.critic = Critic(policy, own_trunk=own, learning_rate=rate)
        self.estimator = Estimator(algorithm)
        self.trace = TokenTrace()
        self.old_kl_coefficient = algorithm.old_kl_coefficient
        self.learner = Learner(
            policy=policy,
            optimizer=Optimizer(policy, recipe.optimizer),
            algorithm=algorithm,
            chunk=recipe.trainer.logits_chunk,
            critic=self.critic,
            trace=self.trace,
            pretraining=(
                pretraining(recipe, policy, scribe.tokenizer) if algorithm.ptx_coefficient else None
            ),
        )

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of turn `step`, and each rollout's mean advantage, [N]."""
        algorithm, chunk = self.algorithm, self.learner.chunk
        trainer = self.recipe.trainer
        self.trace.clear()
        if self.reference is not None:
            self.reference.check(self.done)
        skipped = self._skipped(graded)
        with span("assemble"):
            parts = minibatches(
                graded,
                algorithm,
                trainer,
                max_tokens=self.recipe.rollout.max_tokens,
                shuffle=shuffle,
                scored=lambda share: scored(share, graded, skipped),
                share_prompts=trainer.share_prompts and shares(self.policy),
            )
        reference = None if self.reference is None else self.reference.model
        with span("score"):
            parts = score_parts(self.policy, reference, self.critic, parts, algorithm, chunk)
        parts, advantages_N = self.estimator(
            graded,
            parts,
            steps_N=self._steps(graded),
            beyond_N=self._beyond(graded),
        )
        tolerance = batch_tolerance(trainer, self.recipe.sampler, graded, self.done)
        updates: list[Update] = []
        for i, part in enumerate(parts):
            updates.append(
                update(
                    self.learner,
                    part,
                    progress=(step + i / len(parts)) / self.recipe.steps,
                    done=self.done,
                    old_kl_coefficient=self.old_kl_coefficient,
                    policy_rests=step < algorithm.critic_warmup,
                    tolerance=tolerance if i == 0 else None,
                )
            )
            self.done += 1
        if algorithm.old_kl_target and parts:
            moved = sum(distance(self.policy, part, chunk) for part in parts) / len(parts)
            self.old_kl_coefficient = adapted_beta(
                self.old_kl_coefficient, moved, algorithm.old_kl_target
            )
        return updates, advantages_N

    def seen(self) -> Mapping[int, SeenTokens]:
        """Of the last turn."""
        return self.trace.seen

    def renew_reference(self) -> None:
        """Replace the reference when it is time to."""
        if self.reference is not None:
            self.reference.replace_when_due(self.policy, self.done)
            self.reference.check(self.done)

    def numbers(self) -> dict[str, float]:
        """What the algorithm has come to, beside what each update tells."""
        adaptive = self.algorithm.old_kl_target > 0
        return {"optimizer_steps": float(self.done)} | (
            {"old_kl_coefficient": self.old_kl_coefficient} if adaptive else {}
        )

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "optimizer": self.learner.optimizer.state(),
            "reference": None if self.reference is None else self.reference.state(),
            "critic": None if self.critic is None else self.critic.state(),
            "past": asdict(self.estimator.past),
            "old_kl_coefficient": self.old_kl_coefficient,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.done = state["done"]
        self.learner.optimizer.load(state["optimizer"])
        if self.reference is not None:
            self.reference.load(state["reference"])
            self.reference.check(self.done)
        if self.critic is not None:
            self.critic.load(state["critic"])
        self.estimator.past = RunningMean(**state["past"])
        self.old_kl_coefficient = state["old_kl_coefficient"]

    def _skipped(self, graded: Sequence[Graded]) -> frozenset[int]:
        if not self.recipe.trainer.skip_zero_advantages:
            return frozenset()
        return unlearned(graded, self.algorithm, self.estimator.past)

    def _beyond(self, graded: Sequence[Graded]) -> Tensor | None:
        if self.critic is None:
            return None
        trainer = self.recipe.trainer
        return self.critic.beyond(self.policy, graded, row=trainer.row, rows=trainer.rows)

    def _steps(self, graded: Sequence[Graded]) -> list[Steps | None] | None:
        if self.algorithm.advantage != "process":
            return None
        if self.step_scores is None:
            raise RecipeError(
                "algorithm.advantage=process needs scores of single steps, which this task lacks"
            )
        return [steps_of(one, self.step_scores, self.scribe.tokenizer) for one in graded]
