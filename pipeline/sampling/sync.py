"""Give the sampler the policy's weights, and prove that it has them.

A sampler with stale weights raises nothing and trains towards nonsense. So after every sync it
writes a few fresh tokens, the trainer scores the same tokens, and the two must agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeline.compute import in_float32
from pipeline.failures import StageError
from pipeline.lora import merged
from pipeline.packing import best_fit, lay_out, response_mask
from pipeline.policy import score
from pipeline.sampling.sampler import Completion, Sampler, Sampling

KEPT = 2  # sequences of a proof that the next one scores again


class SyncError(StageError):
    """The sampler does not compute the policy's probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """Differences of log-probs in nats, sampler against trainer, on the proof's tokens."""

    tokens: int
    max: float
    mean: float
    moved: float | None  # mean change of the policy since the last proof; None at the first one


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """What the sampler wrote with the weights it was given; nobody has looked at it yet."""

    version: int
    prompts: tuple[tuple[int, ...], ...]
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    sequences: tuple[tuple[int, ...], ...]  # prompt and response
    prompts: tuple[int, ...]  # lengths
    logp_M: Tensor  # the trainer's, of all response tokens in order


class WeightSync:
    """Carries weights from one policy to one sampler, with a proof each time."""

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
        """Send the weights, then `prove`."""
        return self.compare(self.send(version, prompts))

    def send(self, version: int, prompts: Sequence[Sequence[int]]) -> Fresh:
        """Send the weights, and have a few tokens written after `prompts`, to be compared."""
        self._sampler.load_weights(merged(self._policy), version)
        return self._written(version, prompts)

    def prove(self, version: int, prompts: Sequence[Sequence[int]]) -> SyncReport:
        """`compare` both on tokens sampled now after `prompts`."""
        return self.compare(self._written(version, prompts))

    def _written(self, version: int, prompts: Sequence[Sequence[int]]) -> Fresh:
        sampling = Sampling(
            per_prompt=1,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            seed=version,
        )
        completions = (group[0] for group in self._sampler.sample(prompts, sampling))
        asked = tuple(map(tuple, prompts))
        return Fresh(version=version, prompts=asked, completions=tuple(completions))

    def compare(self, fresh: Fresh) -> SyncReport:
        """Score as the trainer what the sampler wrote; raises SyncError past the tolerance.

        `moved` says how far the policy went since the last proof, on tokens of that proof: where
        it is below the tolerance, a stale sampler could not have been told from a fresh one.
        """
        pairs = zip(fresh.prompts, fresh.completions, strict=True)
        sequences = tuple((*prompt, *one.ids) for prompt, one in pairs)
        lengths = tuple(map(len, fresh.prompts))
        last = self._last or _Tokens((), (), torch.empty(0))
        logp_M = self._score((*sequences, *last.sequences), (*lengths, *last.prompts))
        sampled_M = torch.tensor([logp for one in fresh.completions for logp in one.logp])
        trained_M, again_M = logp_M.split([len(sampled_M), len(last.logp_M)])
        gap_M = (trained_M - sampled_M).abs()
        kept = sum(len(one.ids) for one in fresh.completions[:KEPT])
        moved = (again_M - last.logp_M).abs().mean().item() if last.sequences else None
        self._last = _Tokens(sequences[:KEPT], lengths[:KEPT], trained_M[:kept])
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
                f"{report.mean:.2e} nats, allowed {self._tolerance:.0e}. Stale weights, another "
                f"temperature than {self._temperature}, or a lower precision would look like this"
            )

    @torch.no_grad()
    def _score(self, sequences: Sequence[Sequence[int]], prompts: Sequence[int]) -> Tensor:
        """The trainer's log-probs of all response tokens, in the order of the sequences."""
        sizes = [len(s) - 1 for s in sequences]
        rows = best_fit(sizes, max(sizes))
        packed = lay_out(sequences, rows)
        mask_RT = response_mask(packed, prompts)
        with in_float32(self._policy):  # whether weights arrived is not a matter of rounding
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
