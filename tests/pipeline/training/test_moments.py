"""AdamW with moments of 8 bits: refused without its library, and what it does with it."""

import sys

import pytest
import torch

from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.training.optimizer import Optimizer, require_moments


def config(moments):
    return OptimizerConfig(learning_rate=1e-2, moments=moments)


@pytest.mark.slow
def test_without_torchao_it_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    refusal = r"optimizer.moments=8bit needs torchao .*: pip install torchao, or set float32"
    with pytest.raises(RecipeError, match=refusal):
        require_moments(config("8bit"))
    require_moments(config("float32"))


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))


def train(trained, optimizer, first, last):
    for step in range(first, last):
        x = torch.randn(32, 128, generator=torch.Generator().manual_seed(step))
        loss = ((trained(x) - 2 * x[:, :64]) ** 2).mean()
        loss.backward()
        optimizer.step(step / last, step)
    return loss.item()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's and the compiler's own
def test_it_learns_as_float32_does_in_a_quarter_of_the_memory_and_resumes_bit_for_bit(tmp_path):
    pytest.importorskip("torchao")
    losses = {}
    for moments in ("float32", "8bit"):
        trained = model()
        losses[moments] = train(trained, Optimizer(trained, config(moments)), 0, 60)
    assert losses["8bit"] == pytest.approx(losses["float32"], rel=0.05)
    whole, stopped = model(), model()
    first = Optimizer(whole, config("8bit"))
    train(whole, first, 0, 6)
    path = checkpoint.save(
        tmp_path,
        1,
        write_model=lambda folder: torch.save(whole.state_dict(), folder / "model.pt"),
        state={"optimizer": first.state()},
        keep=1,
    )
    assert (path / "trainer_state.pt").stat().st_size < 3 * sum(
        p.numel() for p in whole.parameters()
    )
    stopped.load_state_dict(torch.load(path / "model.pt"))
    second = Optimizer(stopped, config("8bit"))
    second.load(checkpoint.load_state(path)["optimizer"])
    for trained, optimizer in ((whole, first), (stopped, second)):
        train(trained, optimizer, 6, 9)
    assert all(map(torch.equal, whole.parameters(), stopped.parameters()))
