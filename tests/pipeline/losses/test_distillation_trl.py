"""The generalised JSD against TRL's own code on the same tensors, where TRL is installed."""

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.distillation import generalised_jsd, token_share

pytest.importorskip("trl", reason="TRL is not installed")

pytestmark = pytest.mark.filterwarnings("default", "ignore:You are importing from .trl.exp")
CLOSE = {"atol": 1e-5, "rtol": 0}
MASK = torch.arange(6) < torch.tensor([5, 1, 3, 6])[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.9, 2.0])
@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_jsd_is_that_of_trl_in_value_and_gradient(beta, temperature):
    from trl.experimental.gkd import GKDTrainer

    noise = torch.Generator().manual_seed(4)
    student, teacher = (2 * torch.randn(4, 6, 11, generator=noise) for _ in range(2))
    student.requires_grad_()
    labels = torch.where(MASK, 1, -100)
    theirs = GKDTrainer.generalized_jsd_loss(
        student, teacher, labels=labels, beta=beta, temperature=temperature, num_items_in_batch=20
    )
    values = generalised_jsd(student[MASK], teacher[MASK], beta=beta, temperature=temperature)
    ours = token_share(values, 20)
    assert_close(ours, theirs, **CLOSE)
    (mine,), (other,) = (torch.autograd.grad(loss, student) for loss in (ours, theirs))
    assert_close(mine, other, **CLOSE)
    assert other.norm() > 1e-3
