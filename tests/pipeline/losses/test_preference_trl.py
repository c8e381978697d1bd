"""The preference losses against TRL's own code on the same tensors, where TRL is installed."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.preference import cpo, dpo, ipo, kto, kto_reference_point, orpo, simpo
from veriloop.pipeline.losses.reward_model import bradley_terry, centring

trl = pytest.importorskip("trl", reason="TRL is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "default", "ignore:TRL currently supports", "ignore:.torch.jit.script_method"
    ),
]
PAIRS, TOKENS = 5, 6
CLOSE = {"atol": 1e-5, "rtol": 0}
ALONE = SimpleNamespace(
    device=torch.device("cpu"),
    gather=lambda x: x,
    gather_for_metrics=lambda x: x,
)


def answers(seed=0):
    """Token log-probs [2 P, T] of chosen and then rejected answers, their mask and sums."""
    noise = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([1, 2, 3, 6, 4, 6, 3, 2, 5, 1])
    mask = torch.arange(TOKENS) < lengths[:, None]
    logps = [-2 * torch.rand(2 * PAIRS, TOKENS, generator=noise) * mask for _ in range(2)]
    return logps[0], logps[1], mask, lengths


def says(logp):
    """A model whose outputs are these token log-probs."""
    nothing = torch.zeros_like(logp)

    def model(**_):
        return SimpleNamespace(
            log_probs=logp, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
        )

    model.training = True
    return model


def inputs(mask):
    """What TRL's collator hands over: the prompt is one token."""
    completion = torch.cat([torch.zeros(len(mask), 1, dtype=torch.int64), mask.long()], 1)
    ids = torch.ones(completion.shape, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": completion}


def in_trl(loss_type, beta, smoothing=0.0):
    from trl import DPOTrainer

    logp, ref, mask, _ = answers()
    trainer = SimpleNamespace(
        accelerator=ALONE,
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        label_smoothing=smoothing,
        beta=beta,
        use_weighting=False,
        model=SimpleNamespace(training=True),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
    )
    chosen, rejected = ref.sum(1).chunk(2)
    told = inputs(mask) | {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
    return DPOTrainer._compute_loss(trainer, says(logp), told, False), trainer


def ours():
    logp, ref, _, lengths = answers()
    sums = (*logp.sum(1).chunk(2), *ref.sum(1).chunk(2))
    return sums, tuple(lengths.chunk(2))


@pytest.mark.parametrize("smoothing", [0.0])
def test_dpo_is_that_of_trl(smoothing):
    theirs, _ = in_trl("sigmoid", 0.3, smoothing)
    assert_close(dpo(*ours()[0], beta=0.3, pairs=PAIRS, label_smoothing=smoothing), theirs, **CLOSE)


def test_length_averaged_ipo_is_that_of_trl():
    theirs, _ = in_trl("ipo", 0.3)
    sums, lengths = ours()
    assert_close(ipo(*sums, tau=0.3, pairs=PAIRS, lengths=lengths), theirs, **CLOSE)


@pytest.mark.parametrize(
    ("kind", "smoothing"), [("sigmoid", 0.0), ("sigmoid", 0.2), ("simpo", 0.0), ("ipo", 0.0)]
)
def test_cpo_and_simpo_are_those_of_trl(kind, smoothing):
    from trl.experimental.cpo import CPOTrainer

    (chosen, rejected, *_), lengths = ours()
    if kind != "sigmoid":
        chosen, rejected = chosen / lengths[0], rejected / lengths[1]
    trainer = SimpleNamespace(
        alpha=0.0,
        accelerator=ALONE,
        loss_type=kind,
        simpo_gamma=0.5,
        beta=0.7,
        label_smoothing=smoothing,
    )
    theirs = CPOTrainer.cpo_loss(trainer, chosen, rejected)[0].mean()
    zero = torch.zeros_like(chosen)
    got = {
        "sigmoid": lambda: cpo(
            chosen, rejected, beta=0.7, pairs=PAIRS, cloning=0.0, label_smoothing=smoothing
        ),
        "simpo": lambda: simpo(chosen, rejected, beta=0.7, gamma=0.5, pairs=PAIRS),
        "ipo": lambda: ipo(chosen, rejected, zero, zero, tau=0.7, pairs=PAIRS),
    }[kind]()
    assert_close(got, theirs, **CLOSE)


def test_orpo_is_that_of_trl():
    from trl.experimental.orpo import ORPOTrainer

    (chosen, rejected, *_), lengths = ours()
    chosen, rejected = chosen / lengths[0], rejected / lengths[1]
    trainer = SimpleNamespace(beta=0.4, accelerator=ALONE)
    odds = ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)[0]
    theirs = -chosen.mean() - odds.mean()
    assert_close(orpo(chosen, rejected, weight=0.4, pairs=PAIRS), theirs, **CLOSE)


@pytest.mark.parametrize("turned", [False, True], ids=["z0 above 0", "z0 clamped"])
def test_kto_and_its_reference_point_are_those_of_trl(turned):
    from trl import KTOTrainer

    logp, ref, mask, _ = answers()
    far, ref_far = (answers(1)[i].sum(1) for i in ((1, 0) if turned else (0, 1)))
    liked = torch.tensor([True, False, True, True, False, False, True, False, True, False])
    trainer = SimpleNamespace(
        accelerator=ALONE,
        calculate_KL=True,
        aux_loss_enabled=False,
        precompute_ref_logps=True,
        loss_type="kto",
        beta=0.3,
        desirable_weight=1.2,
        undesirable_weight=0.9,
        model=SimpleNamespace(training=True),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        _compute_kl_logps=lambda model, batch: far,
    )
    told = inputs(mask) | {"label": liked, "ref_logps": ref.sum(1), "ref_KL_logps": ref_far}
    theirs = KTOTrainer._compute_loss(trainer, says(logp), told, False)
    point = kto_reference_point(far, ref_far)
    assert_close(point.item(), trainer._metrics["train"]["kl"][0], **CLOSE)
    got = kto(
        logp.sum(1), ref.sum(1), liked, point, beta=0.3, weights=(1.2, 0.9), examples=2 * PAIRS
    )
    assert_close(got, theirs, **CLOSE)


@pytest.mark.parametrize("weight", [None, 0.3])
def test_the_reward_models_loss_is_that_of_trl(weight):
    from trl import RewardTrainer

    rewards = torch.randn(2 * PAIRS, 1, generator=torch.Generator().manual_seed(0))

    def model(**_):
        return SimpleNamespace(logits=rewards)

    trainer = SimpleNamespace(
        accelerator=ALONE,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(center_rewards_coefficient=weight),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
    )
    told = {"attention_mask": torch.ones(2 * PAIRS, 2)}
    theirs = RewardTrainer.compute_loss(trainer, model, told)
    chosen, rejected = rewards.squeeze(1).chunk(2)
    got = bradley_terry(chosen, rejected, pairs=PAIRS)
    got = got + centring(chosen, rejected, weight=weight or 0.0, pairs=PAIRS)
    assert_close(got, theirs, **CLOSE)
