"""Checks that sampler and trainer assign the same log-probs to the same tokens.

Each check also measures the effect of the mistake that it looks for: if that effect is too small
on this model, the result is a warning instead of a pass.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.doctor.checkpoint_under_test import MAX_TOKENS, CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, warn
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    OnComplete,
    OnContinued,
    Sampler,
    Sampling,
    Unfinished,
)
from veriloop.pipeline.sampling.sync import SyncError, SyncReport, WeightSync

TOLERANCE = SamplerConfig().tolerance  # nats, as for every weight sync of a run
VISIBLE = 10.0  # times the tolerance: smaller effects look like rounding
WARM = 0.7  # any temperature but 1
NOISE = 0.05  # perturbation of the weights, relative to each tensor's spread
INCONCLUSIVE = "try a checkpoint with sharper predictions: on this one the mistake would not show"


def log_probs(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """At temperature 1, on tokens sampled for this check."""
    name = "log-probs, T=1"
    report = _compare(checkpoint, checkpoint.sampler, 1.0)
    measured = f"{_gap(report)} ({checkpoint.sampler.name} against trainer, float32)"
    if report.max <= TOLERANCE:
        yield ok(name, measured, report.max)
    else:
        fix = "fix weights and logits first; then try --sampler torch to see if the engine is wrong"
        yield fail(name, f"{measured}, allowed {TOLERANCE:.0e}", fix, report.max)


def temperature(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """At another temperature, by which both must divide the logits."""
    name = f"log-probs, T={WARM}"
    report = _compare(checkpoint, checkpoint.sampler, WARM)
    forgotten = _compare(checkpoint, _FixedTemperature(checkpoint.sampler, WARM), 1.0)
    measured = f"{_gap(report)}; ignoring the temperature would show {forgotten.max:.1e}"
    fix = "the engine must return log-probs after the temperature (logprobs_mode)"
    yield within_tolerance(name, measured, report.max, forgotten.max, fix)


def within_tolerance(name: str, measured: str, gap: float, mistake: float, fix: str) -> Finding:
    """A failure for a gap beyond the tolerance or NaN; a warning if the mistake itself, whose gap
    on this model is `mistake`, would hardly show."""
    if not gap <= TOLERANCE:
        return fail(name, f"{measured}, allowed {TOLERANCE:.0e}", fix, gap)
    if mistake < VISIBLE * TOLERANCE:
        return warn(name, measured, INCONCLUSIVE, gap)
    return ok(name, measured, gap)


def weight_sync(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Perturbed weights must reach the sampler, and so must the restored ones."""
    policy, sampler = checkpoint.policy, checkpoint.sampler
    original = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=float("inf"),
                      max_tokens=MAX_TOKENS)  # fmt: skip
    start = sampler.version
    fix = "install the locked vLLM, or use --sampler.engine torch: this engine keeps old weights"
    try:
        _perturb(policy.parameters())
        unsynced = sync.prove(start, checkpoint.prompts)
        perturbed = sync(start + 1, checkpoint.prompts)
        _restore(policy.named_parameters(), original)
        restored = sync(start + 2, checkpoint.prompts)
    except SyncError as failure:
        yield fail("weight sync", str(failure), fix)
        return
    finally:
        _restore(policy.named_parameters(), original)
    measured = f"{_gap(perturbed)} after perturbed weights, {restored.max:.1e} after the original "
    measured += f"ones; a lost sync would show {unsynced.max:.1e}"
    worst = max(perturbed.max, restored.max)
    yield within_tolerance("weight sync", measured, worst, unsynced.max, fix)


class _FixedTemperature:
    """A sampler that ignores the requested temperature and uses its own."""

    def __init__(self, sampler: Sampler, temperature: float) -> None:
        self.name, self.dtype = sampler.name, sampler.dtype
        self.version, self.pid = sampler.version, sampler.pid
        self._sampler, self._temperature = sampler, temperature

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        raise NotImplementedError("only samples")

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        raise NotImplementedError("only samples")

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        sampling = replace(sampling, temperature=self._temperature)
        return self._sampler.sample(prompts, sampling, on_complete)

    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        raise NotImplementedError("only samples")

    def sleep(self) -> None:
        raise NotImplementedError("only samples")

    def close(self) -> None:
        self._sampler.close()


def _compare(checkpoint: CheckpointUnderTest, sampler: Sampler, temperature: float) -> SyncReport:
    sync = WeightSync(checkpoint.policy, sampler, temperature=temperature,
                      tolerance=float("inf"), max_tokens=MAX_TOKENS)  # fmt: skip
    return sync.prove(sampler.version, checkpoint.prompts)


def _gap(report: SyncReport) -> str:
    return f"{report.tokens} tokens differ by {report.max:.1e} nats at most"


@torch.no_grad()
def _perturb(weights: Iterable[Tensor]) -> None:
    noise = torch.Generator().manual_seed(1)
    for weight in weights:
        scale = NOISE * (weight.std() if weight.ndim > 1 else weight.abs().mean())
        weight.add_(torch.randn(weight.shape, generator=noise) * scale)


@torch.no_grad()
def _restore(weights: Iterable[tuple[str, Tensor]], original: dict[str, Tensor]) -> None:
    for name, weight in weights:
        weight.copy_(original[name])
