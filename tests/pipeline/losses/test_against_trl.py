"""The same tensors through TRL's own losses, where TRL is installed: values and gradients."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.advantages import group_advantages
from veriloop.pipeline.losses.aggregate import aggregate
from veriloop.pipeline.losses.gspo import gspo
from veriloop.pipeline.losses.kl import k3, k3_corrected
from veriloop.pipeline.losses.policy_gradient import (
    cispo,
    clipped_surrogate,
    policy_gradient,
    with_entropy_bonus,
)
from veriloop.pipeline.model.logprob import entropy, token_logp
from veriloop.pipeline.types import StepCounts

trl = pytest.importorskip("trl", reason="TRL is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "default", "ignore:TRL currently supports", "ignore:.torch.jit.script_method"
    ),
]

LENGTHS = torch.tensor([5, 1, 3, 6])
MASK = torch.arange(6) < LENGTHS[:, None]
SEQUENCE = torch.arange(4)[:, None].expand(4, 6)
OWNER = SEQUENCE[MASK]
COUNTS = StepCounts(sequences=4, tokens=15, max_length=9)
CLIP = {"low": 0.2, "high": 0.28}


@pytest.fixture
def step():
    """Four answers of a policy that has moved since they were sampled."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, 11, generator=generator, dtype=torch.float64)
    targets = torch.randint(11, (4, 6), generator=generator)
    logp = token_logp(logits, targets, 1.0)
    old, reference = (
        logp + 0.4 * torch.randn(4, 6, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return SimpleNamespace(
        logits=logits.requires_grad_(),
        targets=targets,
        old=old.detach(),
        reference=reference.detach(),
        advantages=torch.tensor([1.5, -0.7, -1.1, 0.6], dtype=torch.float64),
        weights=(torch.rand(4, 6, generator=generator, dtype=torch.float64) + 0.5).detach(),
    )


def theirs(step, **options):
    """TRL's GRPO loss and metrics, its trainer reduced to what its loss reads."""
    settings = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "entropy_coef": 0.0,
        "delta": None,
        "use_bias_correction_kl": False,
        "use_vllm": False,
        **options,
    }
    logp = trl.trainer.utils.selective_log_softmax(step.logits, step.targets)
    entropies = trl.trainer.utils.entropy_from_logits(step.logits)
    trainer = SimpleNamespace(
        **settings,
        args=SimpleNamespace(**settings, steps_per_generation=1),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, entropies, None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        vllm_importance_sampling_correction=True,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=COUNTS.max_length,
        _entropy_bonus_enabled=settings["entropy_coef"] != 0,
        use_adaptive_entropy=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(
            num_processes=1,
            sync_gradients=True,
            gather=lambda x: x,
            reduce=lambda x, reduction: x,
        ),
    )
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(4, 1, dtype=torch.int64),
        "completion_ids": step.targets,
        "completion_mask": MASK.long(),
        "advantages": step.advantages,
        "old_per_token_logps": step.old,
        "ref_per_token_logps": step.reference,
        "importance_sampling_ratio": step.weights,
        "num_items_in_batch": MASK.sum(),
    }
    loss = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    (gradient,) = torch.autograd.grad(loss, step.logits)
    return loss, gradient, {k: v[0] for k, v in trainer._metrics["train"].items()}


def ours(step, objective, mode):
    """The loss of a function of (logp, old, reference, advantages, entropies), each [M]."""
    logp = token_logp(step.logits, step.targets, 1.0)[MASK]
    nats = entropy(step.logits, 1.0)[MASK]
    made = objective(logp, step.old[MASK], step.reference[MASK], step.advantages[OWNER], nats)
    values = torch.zeros(4, 6, dtype=torch.float64).masked_scatter(MASK, -made)
    loss = aggregate(values, MASK, SEQUENCE, LENGTHS, COUNTS, mode)
    return loss, torch.autograd.grad(loss, step.logits)[0]


def same(step, objective, mode, **options):
    loss, gradient, metrics = theirs(step, **options)
    for mine, other in zip(ours(step, objective, mode), (loss, gradient), strict=True):
        assert_close(mine, other, atol=1e-9, rtol=1e-9)
    assert gradient.norm() > 0.01
    return metrics


def surrogate(logp, old, reference, advantages, nats):
    return clipped_surrogate(logp, old, advantages, **CLIP)[0]


@pytest.mark.parametrize(
    ("loss_type", "mode"),
    [("grpo", "sequence_mean"), ("dapo", "token_mean"), ("dr_grpo", "constant")],
)
def test_the_clipped_surrogate_under_every_aggregation(step, loss_type, mode):
    metrics = same(step, surrogate, mode, loss_type=loss_type)
    logp = token_logp(step.logits, step.targets, 1.0)[MASK]
    _, low, high = clipped_surrogate(logp, step.old[MASK], step.advantages[OWNER], **CLIP)
    assert metrics["clip_ratio/low_mean"] == pytest.approx(low.double().mean().item())
    assert metrics["clip_ratio/high_mean"] == pytest.approx(high.double().mean().item())
    assert low.any() and high.any()


@pytest.mark.parametrize("corrected", [False, True])
def test_k3_in_the_loss_plain_and_corrected(step, corrected):
    def with_kl(logp, old, reference, advantages, nats):
        kl = k3_corrected(logp, reference, old) if corrected else k3(logp, reference)
        return surrogate(logp, old, reference, advantages, nats) - 0.3 * kl

    same(step, with_kl, "sequence_mean", beta=0.3, use_bias_correction_kl=corrected)


def test_the_dual_clip(step):
    step.old[1, 0] -= 2.0  # a ratio far past 1 + high with a negative advantage

    def dual(logp, old, reference, advantages, nats):
        return clipped_surrogate(logp, old, advantages, **CLIP, dual=1.7)[0]

    same(step, dual, "token_mean", loss_type="dapo", delta=1.7)
    plain, _ = ours(step, surrogate, "token_mean")
    assert abs(plain - ours(step, dual, "token_mean")[0]) > 0.01


def test_cispo(step):
    """TRL's epsilon is the bound itself, ours its distance from 1."""

    def clipped(logp, old, reference, advantages, nats):
        return cispo(logp, old, advantages, high=0.28)

    same(step, clipped, "token_mean", loss_type="cispo", epsilon_high=1.28)


@pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.2, 0.28)])
def test_gspo(step, low, high):
    def by_sequence(logp, old, reference, advantages, nats):
        return gspo(logp, old, advantages, OWNER, LENGTHS, low=low, high=high)[0]

    metrics = same(
        step,
        by_sequence,
        "sequence_mean",
        importance_sampling_level="sequence",
        epsilon_low=low,
        epsilon_high=high,
    )
    logp = token_logp(step.logits, step.targets, 1.0)[MASK]
    _, below, above = gspo(
        logp, step.old[MASK], step.advantages[OWNER], OWNER, LENGTHS, low=low, high=high
    )
    clipped = len(OWNER[below | above].unique()) / 4
    assert metrics["clip_ratio/region_mean"] == pytest.approx(clipped) and clipped > 0


def test_weights_for_the_sampler_multiply_the_objective(step):
    def weighted(logp, old, reference, advantages, nats):
        return surrogate(logp, old, reference, advantages, nats) * step.weights[MASK]

    same(step, weighted, "sequence_mean", use_vllm=True)


def test_the_entropy_bonus(step):
    def bonus(logp, old, reference, advantages, nats):
        return with_entropy_bonus(surrogate(logp, old, reference, advantages, nats), nats, 0.2)

    same(step, bonus, "token_mean", loss_type="dapo", entropy_coef=0.2)


def test_rloo_on_its_own_samples_has_the_gradient_of_reinforce(step):
    """TRL clips the ratio of whole answers; where it is 1 its gradient is the sum over tokens."""
    logp = trl.trainer.utils.selective_log_softmax(step.logits, step.targets)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, torch.zeros(4, 6), None),
        aux_loss_enabled=False,
        epsilon_low=0.2,
        epsilon_high=0.2,
        beta=0.0,
        model=SimpleNamespace(training=True),
        _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x),
    )
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(4, 1, dtype=torch.int64),
        "completion_ids": step.targets,
        "completion_mask": MASK.long(),
        "advantages": step.advantages,
        "old_logps": (logp.detach() * MASK).sum(1),
    }
    loss = trl.RLOOTrainer._compute_loss(trainer, None, inputs)
    (gradient,) = torch.autograd.grad(loss, step.logits)
    mine = policy_gradient(token_logp(step.logits, step.targets, 1.0)[MASK], step.advantages[OWNER])
    assert_close(torch.autograd.grad(-mine.sum() / 4, step.logits)[0], gradient)


REWARDS = [1e4, 0.0, 3e4, 5e4, 7e4, 7e4, 7e4, 7e4, 2e4, float("nan"), 1e4, 6e4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "mine"),
    [
        ("GRPO", {"scale_rewards": "group"}, {"scale": "group", "correction": 1}),
        ("GRPO", {"scale_rewards": "none"}, {"scale": "none"}),
        ("RLOO", {}, {"scale": "none", "leave_one_out": True}),
    ],
)
def test_advantages_as_trls_trainers_compute_them(tiny_checkpoint, tmp_path, name, options, mine):
    """Rewards so large that TRL's 1e-4 beside the std does not show; one has no verdict."""
    from datasets import Dataset

    config = getattr(trl, f"{name}Config")(
        output_dir=str(tmp_path),
        per_device_train_batch_size=12,
        num_generations=4,
        max_completion_length=4,
        report_to=[],
        use_cpu=True,
        bf16=False,
        beta=0.0,
        **options,
    )
    trainer = getattr(trl, f"{name}Trainer")(
        model=str(tiny_checkpoint(tied=False)),
        reward_funcs=lambda completions, **_: [None if r != r else r for r in REWARDS],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1 + 1 ="] * 12}),
    )
    made = trainer._generate_and_score_completions([{"prompt": "1 + 1 ="} for _ in range(12)])
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    got = group_advantages(rewards, torch.arange(3).repeat_interleave(4), ~rewards.isnan(), **mine)
    assert_close(made["advantages"].double(), got, atol=1e-5, rtol=1e-5)
    assert (got != 0).sum() == 7
