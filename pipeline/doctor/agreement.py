"""Sampler and trainer must give the same tokens the same log-probs, whatever is asked of them.

Each check also measures what its own mistake would look like here, since a check that could not
tell proves nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.config import SamplerConfig
from pipeline.doctor.finding import Finding, fail, ok, warn
from pipeline.doctor.patient import MAX_TOKENS, Patient
from pipeline.sampling.sampler import Completion, Sampler, Sampling, Told
from pipeline.sampling.sync import SyncReport, WeightSync

TOLERANCE = SamplerConfig().tolerance  # nats, as every sync of a run is held to
TELLING = 10.0  # times the tolerance: a mistake that shows less could not be told from rounding
WARM = 0.7  # a temperature that is not 1
SHAKE = 0.05  # of a tensor's own spread: what weights are moved by
TOO_EVEN = "try a checkpoint whose predictions are sharper: this one hardly tells"


def log_probs(patient: Patient) -> Iterator[Finding]:
    """At temperature 1, on tokens that the sampler writes now."""
    name = "log-probs, T=1"
    report = _compared(patient, patient.sampler, 1.0)
    told = f"{_gap(report)} ({patient.sampler.name} against trainer, float32)"
    if report.max <= TOLERANCE:
        yield ok(name, told, report.max)
    else:
        fix = "mend weights and logits first; else --sampler torch tells if the engine errs"
        yield fail(name, f"{told}, allowed {TOLERANCE:.0e}", fix, report.max)


def temperature(patient: Patient) -> Iterator[Finding]:
    """At another temperature: it divides logits in both, and both must do it."""
    name = f"log-probs, T={WARM}"
    report = _compared(patient, patient.sampler, WARM)
    forgotten = _compared(patient, _Asked(patient.sampler, WARM), 1.0)
    told = f"{_gap(report)}; one that forgets it would show {forgotten.max:.1e}"
    if not report.max <= TOLERANCE:
        fix = "the engine must return log-probs after the temperature (logprobs_mode)"
        yield fail(name, f"{told}, allowed {TOLERANCE:.0e}", fix, report.max)
    elif forgotten.max < TELLING * TOLERANCE:
        yield warn(name, told, TOO_EVEN, report.max)
    else:
        yield ok(name, told, report.max)


def weight_sync(patient: Patient) -> Iterator[Finding]:
    """Moved weights must show in the sampler, and so must the old ones, given back."""
    policy, sampler = patient.policy, patient.sampler
    kept = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=float("inf"),
                      max_tokens=MAX_TOKENS)  # fmt: skip
    start = sampler.version
    try:
        _shake(policy.parameters())
        lost = sync.prove(start, patient.prompts)
        there = sync(start + 1, patient.prompts)
    finally:
        _restore(policy.named_parameters(), kept)
    back = sync(start + 2, patient.prompts)
    yield _synced(lost, there, back)


def _synced(lost: SyncReport, there: SyncReport, back: SyncReport) -> Finding:
    name, worst = "weight sync", max(there.max, back.max)
    told = f"{_gap(there)} after moved weights, {back.max:.1e} after the old ones"
    told += f"; a lost sync would show {lost.max:.1e}"
    if not worst <= TOLERANCE:
        fix = "install the locked vLLM, or --sampler.engine torch: this engine keeps old weights"
        return fail(name, f"{told}, allowed {TOLERANCE:.0e}", fix, worst)
    if lost.max < TELLING * TOLERANCE:
        return warn(name, told, TOO_EVEN, worst)
    return ok(name, told, worst)


class _Asked:
    """An engine that samples at its own temperature, whatever it is asked for."""

    def __init__(self, sampler: Sampler, temperature: float) -> None:
        self.name, self.version, self.pid = sampler.name, sampler.version, sampler.pid
        self._sampler, self._temperature = sampler, temperature

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        raise NotImplementedError("only samples")

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, told: Told | None = None
    ) -> list[list[Completion]]:
        own = replace(sampling, temperature=self._temperature)
        return self._sampler.sample(prompts, own, told)

    def sleep(self) -> None:
        raise NotImplementedError("only samples")

    def close(self) -> None:
        self._sampler.close()


def _compared(patient: Patient, sampler: Sampler, temperature: float) -> SyncReport:
    sync = WeightSync(patient.policy, sampler, temperature=temperature,
                      tolerance=float("inf"), max_tokens=MAX_TOKENS)  # fmt: skip
    return sync.prove(sampler.version, patient.prompts)


def _gap(report: SyncReport) -> str:
    return f"{report.tokens} tokens differ by {report.max:.1e} nats at most"


@torch.no_grad()
def _shake(weights: Iterable[Tensor]) -> None:
    noise = torch.Generator().manual_seed(1)
    for weight in weights:
        size = SHAKE * (weight.std() if weight.ndim > 1 else weight.abs().mean())
        weight.add_(torch.randn(weight.shape, generator=noise) * size)


@torch.no_grad()
def _restore(weights: Iterable[tuple[str, Tensor]], kept: dict[str, Tensor]) -> None:
    for name, weight in weights:
        weight.copy_(kept[name])
