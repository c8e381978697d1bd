"""The policy learner: the updates of one turn, and the state its algorithm keeps across turns."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.losses.advantages import RunningMean
from veriloop.pipeline.losses.process import Steps
from veriloop.pipeline.losses.trust_region import adapted_beta
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import supports_shared_prompts
from veriloop.pipeline.model.reference import Reference
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.critic import Critic, critic_optimizer
from veriloop.pipeline.rl.estimator import (
    AdvantageEstimator,
    forwarded,
    require_finite,
    score_parts,
    without_gradient,
)
from veriloop.pipeline.rl.minibatches import Minibatch, minibatches, with_signals_of
from veriloop.pipeline.rl.ptx import pretraining
from veriloop.pipeline.rl.trust_region import distance
from veriloop.pipeline.rl.update import TokenTrace, UpdateContext, update
from veriloop.pipeline.rollouts.generate import RolloutGenerator, response_text
from veriloop.pipeline.sampling.sync import batch_tolerance
from veriloop.pipeline.training.measurements import span
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.types import Graded, SeenTokens, Update

OVERLAP = 8  # tokens
HALF = "\ufffd"  # decoded from bytes that are no complete character


class PolicyLearner:
    """Updates `policy` from graded rollouts."""

    reads_rewards = True

    def __init__(
        self,
        recipe: RLRecipe,
        policy: Any,
        generator: RolloutGenerator,
        ranks: Ranks = SINGLE,
    ) -> None:
        """Divides the policy among `ranks`, after reference and critic have copied it."""
        self.ranks = ranks
        self.recipe, self.policy = recipe, policy
        self.generator = generator
        self.algorithm = algorithm = recipe.algorithm
        self.done = 0  # optimizer steps
        self.refused: list[str] = []  # why optimizer steps of the last turn were not taken
        self.reference = None
        if algorithm.kl_coefficient:
            self.reference = Reference(policy, algorithm.reference_every, ranks)
        self.critic = None
        if algorithm.critic != "none":
            self.critic = Critic(
                policy,
                own_trunk=algorithm.critic == "separate",
                optimizer=critic_optimizer(algorithm, recipe.optimizer),
                start=self._critic_start(),
                ranks=ranks,
            )
        ranks.shard(policy)
        self.estimator = AdvantageEstimator(algorithm)
        self.trace = TokenTrace()
        self.old_kl_coefficient = algorithm.old_kl_coefficient
        self.context = UpdateContext(
            policy=policy,
            optimizer=Optimizer(policy, recipe.optimizer),
            algorithm=algorithm,
            chunk=recipe.trainer.logits_chunk,
            critic=self.critic,
            trace=self.trace,
            ranks=ranks,
            pretraining=(
                pretraining(recipe, policy, generator.tokenizer, ranks)
                if algorithm.ptx_coefficient
                else None
            ),
        )

    def _critic_start(self) -> ScalarHead | None:
        """The reward model that the critic starts from, prepared as the policy is.

        Raises RecipeError if it has another tokenizer: it reads the policy's ids.
        """
        folder = self.algorithm.critic_start
        if not folder:
            return None
        path = find_checkpoint(folder, "algorithm.critic_start")
        head = ScalarHead(path, empty=self.ranks.count > 1)
        head.require_tokenizer(self.generator.tokenizer)
        prepare(head.model, self.recipe.trainer)
        return head

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of turn `step`, and each rollout's mean advantage, [N]."""
        algorithm, chunk = self.algorithm, self.context.chunk
        self.trace.clear()
        self.refused = []
        if self.reference is not None:
            self.reference.check(self.done)
        skipped = self._skipped(graded)
        parts = self._minibatches(graded, skipped, shuffle)
        reference = None if self.reference is None else self.reference.model
        with span("score"):
            parts = score_parts(
                self.policy, reference, self.critic, parts, algorithm, chunk, self.ranks
            )
        try:
            require_finite(parts, self.done)
        except NonFiniteError as failure:
            if self.recipe.nonfinite == "stop":
                raise
            self.refused.append(str(failure))
            return [], torch.zeros(len(graded))
        parts, advantages_N = self.estimator(
            graded,
            parts,
            steps_N=self._steps(graded),
        )
        tolerance = batch_tolerance(self.recipe.trainer, self.recipe.sampler, graded, self.done)
        updates: list[Update] = []
        total = len(parts) * algorithm.epochs
        for i, part in enumerate(self._epochs(parts, graded, skipped, shuffle)):
            progress = (step + i / total) / self.recipe.steps
            updates += self._updated(part, progress, step, tolerance if i == 0 else None)
            self.done += 1
        # Without a step of the policy its KL says nothing.
        if algorithm.old_kl_target and updates and step >= algorithm.critic_warmup:
            self._adapt_old_kl([distance(self.policy, part, chunk, self.ranks) for part in parts])
        return updates, advantages_N

    def _adapt_old_kl(self, kls: Sequence[float]) -> None:
        """The next weight of the penalty on KL(old || policy), from that of each mini-batch."""
        kl = sum(kls) / len(kls)
        if not math.isnan(kl):
            target = self.algorithm.old_kl_target
            self.old_kl_coefficient = adapted_beta(self.old_kl_coefficient, kl, target)
            return
        failure = f"KL(old || policy) is {kl} after optimizer step {self.done}"
        if self.recipe.nonfinite == "stop":
            raise NonFiniteError(failure)
        self.refused.append(failure)

    def _minibatches(
        self, graded: Sequence[Graded], skipped: frozenset[int], shuffle: Random
    ) -> list[Minibatch]:
        """The mini-batches of one pass over the rollouts, in an order drawn from `shuffle`."""
        trainer = self.recipe.trainer
        with span("assemble"):
            return minibatches(
                graded,
                self.algorithm,
                trainer,
                max_tokens=self.recipe.rollout.max_tokens,
                shuffle=shuffle,
                select=lambda share: forwarded(share, graded, skipped),
                share_prompts=trainer.share_prompts and self._prompts_can_be_shared(),
                ranks=self.ranks.count,
            )

    def _prompts_can_be_shared(self) -> bool:
        trunk = None if self.critic is None else self.critic.trunk
        return all(map(supports_shared_prompts, [self.policy, *([] if trunk is None else [trunk])]))

    def _epochs(
        self,
        parts: Sequence[Minibatch],
        graded: Sequence[Graded],
        skipped: frozenset[int],
        shuffle: Random,
    ) -> Iterator[Minibatch]:
        """The mini-batches of every epoch. Each but the first deals the rollouts anew; advantages,
        old log-probs and values stay those from before the first update."""
        yield from parts
        for _ in range(1, self.algorithm.epochs):
            yield from with_signals_of(parts, self._minibatches(graded, skipped, shuffle))

    def _updated(
        self, part: Minibatch, progress: float, step: int, tolerance: float | None
    ) -> list[Update]:
        """One optimizer step; [] for one that `nonfinite: skip` leaves out."""
        try:
            taken = update(
                self.context,
                part,
                progress=progress,
                done=self.done,
                old_kl_coefficient=self.old_kl_coefficient,
                critic_only=step < self.algorithm.critic_warmup,
                tolerance=tolerance,
            )
        except NonFiniteError as failure:
            if self.recipe.nonfinite == "stop":
                raise
            self.refused.append(str(failure))
            return []
        return [taken]

    def token_trace(self) -> Mapping[int, SeenTokens]:
        """Per-token values of the last turn by index of the trained rollout, in its last update."""
        return self.trace.seen

    def renew_reference(self) -> None:
        """Replace the reference with the policy if `reference_every` is due."""
        if self.reference is not None:
            self.reference.replace_when_due(self.policy, self.done)
            self.reference.check(self.done)

    def metrics(self) -> dict[str, float]:
        """Metrics of the turn that no single update has."""
        metrics = {"optimizer_steps": float(self.done)}
        if self.algorithm.old_kl_target > 0:
            metrics["old_kl_coefficient"] = self.old_kl_coefficient
        return metrics

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "optimizer": self.context.optimizer.state(),
            "reference": None if self.reference is None else self.reference.state(),
            "critic": None if self.critic is None else self.critic.state(),
            "past": asdict(self.estimator.past),
            "old_kl_coefficient": self.old_kl_coefficient,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.done = state["done"]
        self.context.optimizer.load(state["optimizer"])
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
        return without_gradient(graded, self.algorithm, self.estimator.past)

    def _steps(self, graded: Sequence[Graded]) -> list[Steps | None] | None:
        if self.algorithm.advantage != "process":
            return None
        return [token_steps(g, self.generator.tokenizer) for g in graded]


def turn_random(purpose: str, seed: int, turn: int) -> Random:
    """The random generator for one purpose in one turn, the same in every process."""
    return Random(f"{purpose}/{seed}/{turn}")


def token_steps(graded: Graded, tokenizer: Any) -> Steps | None:
    """(index of the last token, score) of each step of a response.

    The characters at which steps end are mapped to the tokens that complete them. Of steps that end
    within one token the last counts. None if a verifier failed: such a response is not trained on.
    """
    if graded.reward is None or graded.steps is None:
        return None
    offsets = character_offsets(graded.rollout.response_ids, tokenizer)
    by_token = {bisect_left(offsets, end): value for end, value in graded.steps}
    return sorted((index, value) for index, value in by_token.items() if index < len(offsets))


def character_offsets(ids: tuple[int, ...], tokenizer: Any) -> list[int]:
    """How many characters of the decoded text are complete after each token.

    A window of a few tokens is decoded at a time. It overlaps the one before, as some tokenizers
    drop a space at the start of a text.
    """
    offsets, start, before = list[int](), 0, 0  # of the window, and the characters before its text
    for end in range(1, len(ids) + 1):
        text = response_text(ids[start:end], tokenizer, ())
        last, size = end == len(ids), end - start
        offsets.append(before + len(text if last else text.rstrip(HALF)))
        if size >= 3 * OVERLAP or (size >= 2 * OVERLAP and not text.endswith(HALF)):
            start = end - OVERLAP
            before += len(text) - len(response_text(ids[start:end], tokenizer, ()))
    return offsets
