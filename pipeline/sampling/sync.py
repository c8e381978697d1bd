"""Sync weights to the sampler and verify them.

A sampler with stale weights raises no error and corrupts training. So after every sync it samples a
few tokens, the trainer scores them, and the log-probs must agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.fused_layers import in_float32
from veriloop.pipeline.model.lora import merged
from veriloop.pipeline.model.packing import best_fit, lay_out, response_mask
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.sampling.sampler import Completion, Sampler, Sampling
from veriloop.pipeline.types import Graded

BFLOAT16_TOLERANCE = 0.03  # nats on average, for the rounding of a trunk in bfloat16
RESCORED = 2  # sequences of a check that the next check scores again


class SyncError(StageError):
    """The sampler does not compute the policy's probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """Differences of log-probs between sampler and trainer, in nats, on freshly sampled tokens."""

    tokens: int
    max: float
    mean: float
    moved: float | None  # mean change of the policy since the last check; None at the first


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """Completions sampled with new weights, not yet checked."""

    version: int
    prompts: tuple[tuple[int, ...], ...]
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    sequences: tuple[tuple[int, ...], ...]  # prompt and response
    prompts: tuple[int, ...]  # lengths
    logp_M: Tensor  # of the trainer, for all response tokens in order


class WeightSync:
    """Sends the weights of a policy to a sampler and verifies them each time."""

    def __init__(
        self,
        policy: Any,
        sampler: Sampler,
        *,
        temperature: float,
        tolerance: float,
        max_tokens: int = 8,
    ) -> None:
        self._policy, self._sampler = policy, sampler
        self._temperature, self._tolerance = temperature, tolerance
        self._max_tokens = max_tokens
        self._last: _Tokens | None = None

    def __call__(self, version: int, prompts: Sequence[Sequence[int]]) -> SyncReport:
        """Send the weights and verify them."""
        return self.compare(self.send(version, prompts))

    def send(self, version: int, prompts: Sequence[Sequence[int]]) -> Fresh:
        """Send the weights and sample a few tokens after `prompts`, for `compare`."""
        self._sampler.load_weights(merged(self._policy), version)
        return self._sampled(version, prompts)

    def prove(self, version: int, prompts: Sequence[Sequence[int]]) -> SyncReport:
        """Verify the current weights on tokens sampled after `prompts`."""
        return self.compare(self._sampled(version, prompts))

    def _sampled(self, version: int, prompts: Sequence[Sequence[int]]) -> Fresh:
        sampling = Sampling(
            per_prompt=1,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            seed=version,
        )
        completions = (group[0] for group in self._sampler.sample(prompts, sampling))
        return Fresh(
            version=version,
            prompts=tuple(map(tuple, prompts)),
            completions=tuple(completions),
        )

    def compare(self, fresh: Fresh) -> SyncReport:
        """Score the sampler's tokens with the trainer; raises SyncError beyond the tolerance.

        `moved` is the policy's change since the last check, on tokens of that check: below the
        tolerance a stale sampler could not be detected.
        """
        pairs = zip(fresh.prompts, fresh.completions, strict=True)
        sequences = tuple((*prompt, *completion.ids) for prompt, completion in pairs)
        lengths = tuple(map(len, fresh.prompts))
        last = self._last or _Tokens((), (), torch.empty(0))
        logp_M = self._score((*sequences, *last.sequences), (*lengths, *last.prompts))
        sampled_M = torch.tensor(
            [logp for completion in fresh.completions for logp in completion.logp]
        )
        trained_M, again_M = logp_M.split([len(sampled_M), len(last.logp_M)])
        gap_M = (trained_M - sampled_M).abs()
        kept = sum(len(completion.ids) for completion in fresh.completions[:RESCORED])
        moved = (again_M - last.logp_M).abs().mean().item() if last.sequences else None
        self._last = _Tokens(sequences[:RESCORED], lengths[:RESCORED], trained_M[:kept])
        report = SyncReport(
            tokens=len(gap_M), max=gap_M.max().item(), mean=gap_M.mean().item(), moved=moved
        )
        self._check(report, fresh.version)
        return report

    def _check(self, report: SyncReport, version: int) -> None:
        if self._sampler.version != version:
            raise SyncError(
                f"the sampler holds version {self._sampler.version} of the policy, not {version}"
            )
        if not report.max <= self._tolerance:  # NaN fails this too
            raise SyncError(
                f"after {version} optimizer steps the {self._sampler.name} sampler and the trainer "
                f"disagree on {report.tokens} fresh tokens: max {report.max:.2e}, mean "
                f"{report.mean:.2e} nats, allowed {self._tolerance:.0e}. Possible causes: stale "
                f"weights, a temperature other than {self._temperature}, or a lower precision"
            )

    @torch.no_grad()
    def _score(self, sequences: Sequence[Sequence[int]], prompts: Sequence[int]) -> Tensor:
        """The trainer's log-probs of all response tokens, in the order of the sequences."""
        sizes = [len(s) - 1 for s in sequences]
        rows = best_fit(sizes, max(sizes))
        packed = lay_out(sequences, rows)
        mask_RT = response_mask(packed, prompts)
        with in_float32(self._policy):  # compares weights, not rounding
            logp_M, _ = score(
                self._policy,
                packed.ids_RT,
                packed.positions_RT,
                packed.targets_RT,
                mask_RT,
                temperature=self._temperature,
                chunk=4096,
            )
        order_M = packed.sequence_RT[mask_RT].argsort(stable=True)
        return logp_M.cpu()[order_M]


def batch_tolerance(
    trainer: TrainerConfig, sampler: SamplerConfig, graded: Sequence[Graded], done: int
) -> float | None:
    """Nats by which trainer and sampler may differ in log-probs, on average over a step's tokens.

    None if another policy than that of `done` optimizer steps sampled some rollout. `WeightSync`
    compares weights in float32, whatever `trainer.compute` is; this allows for its rounding.
    """
    if any(g.rollout.policy_version != done for g in graded):
        return None
    if trainer.compute == "float32":
        return sampler.tolerance
    return max(sampler.tolerance, BFLOAT16_TOLERANCE)
