"""Each name in a recipe reaches its own equation, with the recipe's own numbers."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.losses import kl
from veriloop.pipeline.losses.gspo import gspo, gspo_token, mean_log_ratio
from veriloop.pipeline.losses.mismatch import geometric_mean_mask, masked_importance_weight
from veriloop.pipeline.losses.policy_gradient import (
    cispo,
    clip_masks,
    clipped_surrogate,
    policy_gradient,
    truncated_importance_weight,
)
from veriloop.pipeline.losses.trust_region import penalised_surrogate
from veriloop.pipeline.rl.objective import _of_user, correction, drift, objective
from veriloop.pipeline.types import Signals


@pytest.fixture
def tokens(tiny_llama, sampled, whole):
    """(log-probs now, signals, batch): three rollouts, moved away from what was sampled."""
    part = whole(sampled(tiny_llama(), 3), torch.tensor([1.0, -2.0, -0.5]), row=64)
    (batch,), (one,) = part.batches, part.signals
    torch.manual_seed(1)
    return one.old_M + 0.4 * torch.randn_like(one.old_M), one, batch


def asked(name, tokens, **parts):
    more = {"policy_gradient": {"minibatches": 1}, "kl_penalty": {"old_kl_coefficient": 1.0}}
    config = AlgorithmConfig(objective=name, **more.get(name, {}), **parts)
    logp, signals, batch = tokens
    return objective(config, logp, signals, batch, old_kl_coefficient=0.7)


def test_objectives_per_token(tokens):
    logp, one, _ = tokens
    plain = (logp, one.old_M, one.advantages_M)
    value, low, high = clipped_surrogate(*plain, low=0.1, high=0.3, dual=1.05)
    assert not torch.equal(value, clipped_surrogate(*plain, low=0.1, high=0.3)[0])
    found = asked("clip", tokens, clip_low=0.1, clip_high=0.3, dual_clip=1.05)
    assert_close(found.values_M, value)
    assert torch.equal(found.low_M, low) and torch.equal(found.high_M, high)
    assert low.any() and high.any()
    assert_close(asked("policy_gradient", tokens).values_M, policy_gradient(logp, one.advantages_M))
    assert_close(asked("ratio", tokens).values_M, (logp - one.old_M).exp() * one.advantages_M)
    assert_close(asked("kl_penalty", tokens).values_M, penalised_surrogate(*plain, beta=0.7)[0])
    found = asked("cispo", tokens, clip_high=0.2)
    assert_close(found.values_M, cispo(*plain, high=0.2))
    assert torch.equal(found.high_M, clip_masks(*plain, low=0.2, high=0.2)[1])
    assert not found.low_M.any() and found.low_M.dtype == torch.bool


@pytest.mark.parametrize(
    ("name", "pure", "other"), [("gspo", gspo, gspo_token), ("gspo_token", gspo_token, gspo)]
)
def test_objectives_of_whole_sequences(tokens, name, pure, other):
    """Their values are the same, and the gradients of each token are not."""
    logp, one, batch = tokens
    tokens = logp.requires_grad_(), one, batch
    sequence = batch.sequence_RT[batch.mask_RT]

    def wanted(by, **bounds):
        return by(logp, one.old_M, one.advantages_M, sequence, batch.lengths_B, **bounds)

    def gradient(values):
        return torch.autograd.grad((values * torch.arange(len(logp))).sum(), logp)[0]

    value, low, high = wanted(pure, low=0.05, high=0.01)
    assert low.any() or high.any()
    found = asked(name, tokens, clip_low=0.05, clip_high=0.01)
    assert_close(found.values_M, value)
    assert torch.equal(found.low_M, low) and torch.equal(found.high_M, high)
    wide = asked(name, tokens, clip_low=0.9, clip_high=0.9).values_M  # nothing is clipped
    slope = gradient(wide)
    assert_close(slope, gradient(wanted(pure, low=0.9, high=0.9)[0]))
    assert not torch.allclose(slope, gradient(wanted(other, low=0.9, high=0.9)[0]))


MINE = """
def by_response(inputs):
    lengths_M = inputs.lengths_B[inputs.sequence_M]
    return (inputs.logp_M - inputs.old_M) * inputs.advantages_M / lengths_M * inputs.options["by"]
"""


def test_a_users_objective_is_given_each_tokens_response(tokens, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    logp, one, batch = tokens
    logp = logp.requires_grad_()
    name = f"{tmp_path}/mine.py:by_response"
    found = asked(name, (logp, one, batch), objective_options={"by": 3.0})
    lengths_M = batch.lengths_B.repeat_interleave(batch.lengths_B)
    assert_close(found.values_M, (logp - one.old_M) * one.advantages_M / lengths_M * 3.0)
    for mask_M in (found.low_M, found.high_M):
        assert mask_M.dtype == torch.bool and mask_M.shape == logp.shape and not mask_M.any()


def test_corrections_for_the_sampler(tokens):
    logp, _, batch = tokens
    sampler = batch.sampler_logp_RT[batch.mask_RT]
    sequence = batch.sequence_RT[batch.mask_RT]

    def asked(name, **parts):
        config = AlgorithmConfig(old_logp="trainer", mismatch=name, mismatch_cap=1.2, **parts)
        return correction(config, logp, batch)

    capped = truncated_importance_weight(logp, sampler, 1.2)
    assert_close(asked("truncate"), capped)
    masked = masked_importance_weight(logp, sampler, low=0.8, high=1.2)
    assert_close(asked("mask_tokens", mismatch_floor=0.8), masked)
    gaps = mean_log_ratio(logp, sampler, sequence, batch.lengths_B).abs().unique()
    bound = gaps[:2].mean().item()  # between the sequence that agrees best and the next
    low, high = math.exp(-bound), math.exp(bound)
    kept = geometric_mean_mask(logp, sampler, sequence, batch.lengths_B, low=low, high=high)
    assert kept.any() and not kept.all()
    assert_close(asked("mask_sequences", mismatch_sequence=bound), capped * kept)


@pytest.mark.parametrize("length", [32, 256, 2048])
def test_by_default_a_sequence_of_other_probabilities_is_masked_and_one_rounded_to_bf16_is_not(
    length,
):
    """The trainer in float32; samplers whose logits are rounded, or are those at a temperature of
    1.5, as after a lost sync or a setting that did not arrive."""
    generator = torch.Generator().manual_seed(0)
    sequences, entries = 16, 300
    logits = 3 * torch.randn(sequences * length, entries, generator=generator)
    samplers = {"rounded": logits.bfloat16().float(), "other": logits / 1.5}
    sequence_M = torch.arange(sequences).repeat_interleave(length)
    masked = {}
    for name, sampler in samplers.items():
        ids = torch.multinomial(sampler.softmax(-1), 1, generator=generator)
        old_M = logits.log_softmax(-1).gather(1, ids)[:, 0]
        sampler_M = sampler.log_softmax(-1).gather(1, ids)[:, 0]
        batch = SimpleNamespace(
            sampler_logp_RT=sampler_M[None], sequence_RT=sequence_M[None],
            mask_RT=torch.ones_like(sampler_M, dtype=torch.bool)[None],
            lengths_B=torch.full((sequences,), length),
        )  # fmt: skip
        config = AlgorithmConfig(old_logp="trainer", mismatch="mask_sequences")
        masked[name] = (correction(config, old_M, batch) == 0).float().mean().item()
    assert masked == {"rounded": 0.0, "other": 1.0}


def test_estimators_of_the_drift(tokens):
    logp, one, _ = tokens
    reference = one.old_M - 0.3
    for name in ("k1", "k2", "k3"):
        assert_close(drift(name, logp, reference, one.old_M), getattr(kl, name)(logp, reference))
    assert_close(
        drift("k3_corrected", logp, reference, one.old_M),
        kl.k3_corrected(logp, reference, one.old_M),
    )
    values = [drift(n, logp, reference, one.old_M) for n in ("k1", "k2", "k3", "k3_corrected")]
    assert all(not torch.allclose(a, b) for i, a in enumerate(values) for b in values[:i])
    signals = Signals(advantages_M=one.advantages_M, old_M=one.old_M)
    assert signals.reference_M is None


def test_a_function_of_the_user_is_blamed_for_its_own_numbers_alone(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def plain(inputs):\n    return 2 * inputs.logp_M\n\n"
        "def broken(inputs):\n    return inputs.logp_M * float('inf')\n"
    )
    finite_M = torch.tensor([-1.0, -2.0], requires_grad=True)
    with pytest.raises(StageError, match="broken returns values that are not finite"):
        _of_user(f"{path}:broken", SimpleNamespace(logp_M=finite_M))
    lost_M = torch.tensor([-1.0, float("nan")], requires_grad=True)
    assert _of_user(f"{path}:plain", SimpleNamespace(logp_M=lost_M)).values_M[0] == -2.0
