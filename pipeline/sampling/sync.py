"""Sync weights to the sampler and verify them.

A sampler with stale weights raises no error and corrupts training. So after every sync the digests
of the weights that it holds must equal those of the weights sent. It also samples a few tokens,
which the trainer scores. In float32 the log-probs must agree. A sampler of lower precision rounds;
there an unusual difference is a warning.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.fused_layers import in_float32
from veriloop.pipeline.model.packed_attention import HALF
from veriloop.pipeline.model.packing import lay_out, response_mask
from veriloop.pipeline.model.policy import plain_weights, score
from veriloop.pipeline.model.probe import compute_dtype
from veriloop.pipeline.model.sharded import SINGLE
from veriloop.pipeline.sampling.gap_history import RATIO, UNEQUAL_RATIO, GapHistory
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    HasCopies,
    Sampler,
    Sampling,
    SendAgainError,
    digest_tensor,
    fetched,
)
from veriloop.pipeline.types import Graded

BFLOAT16_TOLERANCE = 0.03  # nats on average, for the rounding of trainer or sampler
NAMES_SHOWN = 3  # tensors in an error
PROBED = 8  # tokens that are sampled after each prompt to compare
RESCORED = 2  # sequences of a check that the next check scores again


class SyncError(StageError):
    """The sampler does not hold the policy's weights or compute its probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """Differences of log-probs between sampler and trainer, in nats, on freshly sampled tokens."""

    tokens: int
    max: float
    mean: float
    moved: float | None  # mean change of the policy since the last check; None at the first
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """Completions sampled with new weights, not yet checked."""

    version: int
    prompts: tuple[tuple[int, ...], ...]
    completions: tuple[Completion, ...]
    engines: tuple[str, ...]  # names; each has as many of the completions, in this order

    def engine_at(self, token: int) -> str:
        """The name of the engine that sampled a token, counted over all completions."""
        ends = list(accumulate(len(completion.ids) for completion in self.completions))
        return self.engines[bisect_right(ends, token) * len(self.engines) // len(ends)]


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
        max_tokens: int = PROBED,
        command: Callable[..., None] = SINGLE.command,
    ) -> None:
        """`tolerance` is that of `SamplerConfig`, in nats. Up to `max_tokens` tokens are sampled
        after a prompt, for which the sampler must have room. `command` calls the other ranks of a
        sharded policy to take part in what needs its weights."""
        self._policy, self._sampler = policy, sampler
        self._temperature, self._tolerance = temperature, tolerance
        self._max_tokens, self._command = max_tokens, command
        self._last: _Tokens | None = None
        self._gaps = GapHistory(max(tolerance, BFLOAT16_TOLERANCE))
        self._unread = ""  # what the sampler holds of the weights that no digest covers
        self._warned = False  # of them

    def __call__(self, version: int, prompts: Sequence[Sequence[int]]) -> SyncReport:
        """Send the weights and verify them."""
        return self.compare(self.send(version, prompts))

    def send(self, version: int, prompts: Sequence[Sequence[int]]) -> Fresh:
        """Send the weights, verify their digests, and sample a few tokens after `prompts`, for
        `compare`."""
        while True:
            shapes: dict[str, tuple[int, ...]] = {}
            noted: list[tuple[str, Tensor]] = []
            outgoing = self._outgoing(shapes, noted)
            with suppress(SendAgainError):  # each time with fewer engines
                self._sampler.load_weights(outgoing, version)
                break
            deque(outgoing, maxlen=0)  # the other ranks gather every weight
        deque(outgoing, maxlen=0)  # a sampler that did not take all of them holds others
        self._check_digests(version, shapes, noted)
        return self._sampled(version, prompts)

    def _outgoing(
        self, shapes: dict[str, tuple[int, ...]], noted: list[tuple[str, Tensor]]
    ) -> Iterator[tuple[str, Tensor]]:
        """The weights in the sampler's precision, one at a time; adds their shapes and digests."""
        dtype = getattr(torch, self._sampler.dtype)
        self._command("send_weights")
        for name, parameter in plain_weights(self._policy):
            weight = parameter.to(dtype)
            del parameter  # a merged weight is a copy
            shapes[name] = tuple(weight.shape)
            noted.append((name, digest_tensor(weight)))
            yield name, weight
            del weight  # before the next is computed

    def _check_digests(
        self, version: int, shapes: dict[str, tuple[int, ...]], noted: list[tuple[str, Tensor]]
    ) -> None:
        sent = dict(fetched(noted))
        self._unread = ""
        for engine, held in self._held(shapes):
            self._check_held(f"after {version} optimizer steps the {engine} sampler", sent, held)

    def _held(
        self, shapes: dict[str, tuple[int, ...]]
    ) -> Sequence[tuple[str, list[tuple[str, Digest]]]]:
        """(name, digests) of each engine."""
        if isinstance(self._sampler, HasCopies):
            return self._sampler.digests_of_each(shapes)
        return [(self._sampler.name, self._sampler.digests(shapes))]

    def _check_held(
        self, where: str, sent: dict[str, Digest], held: list[tuple[str, Digest]]
    ) -> None:
        wrong = dict.fromkeys(name for name, digest in held if sent[name] != digest)
        if wrong:
            raise SyncError(
                f"{where} holds other weights than were sent: {_named(wrong, sent)} differ. "
                "Possible causes: a lost, incomplete or misdirected transfer, or weights that "
                "something else changed"
            )
        unread = sent.keys() - {name for name, _ in held}
        if not unread:
            return
        self._unread = _named([name for name in sent if name in unread], sent)
        if not self._exact:
            raise SyncError(
                f"{where} cannot read back {self._unread}, and tokens sampled in "
                f"{self._sampler.dtype} do not prove their sync: set sampler.dtype to float32, or "
                "use another engine"
            )

    @property
    def _exact(self) -> bool:
        return self._sampler.dtype == "float32"

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
        if isinstance(self._sampler, HasCopies):
            by_engine = self._sampler.sample_of_each(prompts, sampling)
        else:
            by_engine = [(self._sampler.name, self._sampler.sample(prompts, sampling))]
        return Fresh(
            version=version,
            prompts=tuple(map(tuple, prompts)) * len(by_engine),
            completions=tuple(group[0] for _, groups in by_engine for group in groups),
            engines=tuple(name for name, _ in by_engine),
        )

    def compare(self, fresh: Fresh) -> SyncReport:
        """Score the sampler's tokens with the trainer.

        Raises SyncError for another version, for log-probs that are not finite and, if the sampler
        computes in float32, for a difference beyond the tolerance. `moved` is the policy's change
        since the last check, on tokens of that check: about what stale weights would show.
        """
        pairs = zip(fresh.prompts, fresh.completions, strict=True)
        sequences = tuple((*prompt, *completion.ids) for prompt, completion in pairs)
        lengths = tuple(map(len, fresh.prompts))
        trained_M, entropy_M = self._score(sequences, lengths)
        sampled_M = torch.tensor(
            [logp for completion in fresh.completions for logp in completion.logp]
        )
        gap_M = (trained_M - sampled_M).abs()
        kept = sum(len(completion.ids) for completion in fresh.completions[:RESCORED])
        moved = None
        if (last := self._last) is not None:
            # Alone: in one batch its rounding would depend on whether there was a check before.
            again_M, _ = self._score(last.sequences, last.prompts)
            moved = (again_M - last.logp_M).abs().mean().item()
        self._last = _Tokens(sequences[:RESCORED], lengths[:RESCORED], trained_M[:kept])
        report = SyncReport(
            tokens=len(gap_M), max=gap_M.max().item(), mean=gap_M.mean().item(), moved=moved
        )
        self._check(report, fresh, fresh.engine_at(int(gap_M.argmax())))
        if not self._exact:
            scores, least = (trained_M, entropy_M), UNEQUAL_RATIO
            if compute_dtype(self._policy.base_model) in HALF:
                # rounding flattens a distribution, which to float32 looks like a temperature
                scores, least = self._score(sequences, lengths, exact=False), RATIO
            self._check_temperature(sampled_M, *scores, least, fresh.version)
        return replace(report, warnings=tuple(self._warnings(gap_M, moved)))

    def _warnings(self, gap_M: Tensor, moved: float | None) -> Iterator[str]:
        if self._unread and not self._warned:
            self._warned = True
            yield (
                f"the {self._sampler.name} sampler cannot read back {self._unread}; only the "
                "log-probs of fresh tokens verify their sync"
            )
        if not self._exact and (unusual := self._gaps.judge(gap_M, moved)):
            yield unusual

    def _check(self, report: SyncReport, fresh: Fresh, worst: str) -> None:
        """`worst`: the engine with the largest difference."""
        version = fresh.version
        if self._sampler.version != version:
            raise SyncError(
                f"the sampler holds version {self._sampler.version} of the policy, not {version}"
            )
        unequal = self._exact and report.max > self._tolerance
        if unequal or not math.isfinite(report.max):
            raise SyncError(
                f"after {version} optimizer steps the {worst} sampler and the trainer "
                f"disagree on {report.tokens} fresh tokens: max {report.max:.2e}, mean "
                f"{report.mean:.2e} nats, allowed {self._tolerance:.0e}. Possible causes: stale "
                f"weights, a temperature other than {self._temperature}, or a lower precision"
            )

    def _check_temperature(
        self, sampled_M: Tensor, logp_M: Tensor, entropy_M: Tensor, least: float, version: int
    ) -> None:
        ratio = self._gaps.temperature_ratio(sampled_M - logp_M, logp_M + entropy_M, least)
        if ratio is not None:
            raise SyncError(
                f"after {version} optimizer steps the {self._sampler.name} sampler's log-probs of "
                f"fresh tokens are those of a temperature of {self._temperature / ratio:.2g}, "
                f"not {self._temperature}"
            )

    @torch.no_grad()
    def _score(
        self, sequences: Sequence[Sequence[int]], prompts: Sequence[int], *, exact: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The trainer's log-probs and entropies of all response tokens, in the order of the
        sequences; `exact`: in float32, to compare weights and not rounding."""
        packed = lay_out(sequences, [[b] for b in range(len(sequences))])  # few: a row each
        mask_RT = response_mask(packed, prompts)
        self._command("score_empty")
        with in_float32(self._policy) if exact else nullcontext():
            scores = score(
                self._policy,
                packed.ids_RT,
                packed.positions_RT,
                packed.targets_RT,
                mask_RT,
                temperature=self._temperature,
                chunk=4096,
            )
        logp_M, entropy_M = (values_M.cpu() for values_M in scores)
        return logp_M, entropy_M


def _named(names: Collection[str], of: Collection[str]) -> str:
    """Their number and the first few of them."""
    first = ", ".join(list(names)[:NAMES_SHOWN])
    more = "" if len(names) <= NAMES_SHOWN else ", ..."
    return f"{len(names)} of {len(of)} tensors ({first}{more})"


def batch_tolerance(
    trainer: TrainerConfig, sampler: SamplerConfig, graded: Sequence[Graded], done: int
) -> float | None:
    """Nats by which trainer and sampler may differ in log-probs, on average over a step's tokens.

    None if another policy than that of `done` optimizer steps sampled some rollout. Allows for the
    rounding of whichever computes in bfloat16.
    """
    if any(g.rollout.policy_version != done for g in graded):
        return None
    if trainer.compute == sampler.dtype == "float32":
        return sampler.tolerance
    return max(sampler.tolerance, BFLOAT16_TOLERANCE)
