"""AdamW with moments of 8 bits: refused without its library, and what it does with it."""

import copy
import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.sharded import is_sharded, whole
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.training import optimizer as training
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


def test_a_rate_that_is_a_tensor_follows_the_schedule(monkeypatch):
    """As AdamW8bit keeps it, whose step is compiled."""
    warm = {"learning_rate": 0.1, "warmup_steps": 4, "schedule": "cosine"}
    plain, kept = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    kept.load_state_dict(plain.state_dict())

    def adamw(parameters, lr, **settings):
        return torch.optim.AdamW(parameters, lr=torch.tensor(lr), **settings)

    monkeypatch.setattr(training, "_adamw_8bit", lambda: adamw)
    optimizers = [
        Optimizer(one, OptimizerConfig(moments=moments, **warm))
        for one, moments in ((plain, "float32"), (kept, "8bit"))
    ]
    for done in range(8):
        for one, optimizer in zip((plain, kept), optimizers, strict=True):
            one(torch.eye(3)[done % 3]).square().sum().backward()
            optimizer.step(done / 8, done)
        assert_close(kept.state_dict(), plain.state_dict(), atol=1e-6, rtol=1e-5)
    (group,) = optimizers[1].state()[0]["param_groups"]
    assert isinstance(group["lr"], torch.Tensor)


def test_whole_moments_are_divided_as_their_parameters_are(tmp_path):
    """On a mesh of one process, whose tensors are DTensors as those of many are."""
    plain, divided = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    divided.load_state_dict(plain.state_dict())
    first, unused = Optimizer(plain, config("float32")), plain.bias
    plain(torch.ones(1, 3)).sum().backward()
    unused.grad = None  # has no moments yet
    first.step(0.0, 0)
    saved = copy.deepcopy(first.state())
    divided.load_state_dict(plain.state_dict())
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1
    )
    try:
        fully_shard(divided, mesh=init_device_mesh("cpu", (1,)))
        second = Optimizer(divided, config("float32"))
        second.load(saved)
        (weight,) = second.state()[0]["state"].values()
        assert is_sharded(weight["exp_avg"]) and is_sharded(weight["exp_avg_sq"])
        assert not is_sharded(weight["step"])
        for one, optimizer in ((plain, first), (divided, second)):
            one(torch.arange(3.0)[None]).sum().backward()
            optimizer.step(0.5, 1)
        found = {name: whole(p.detach()) for name, p in divided.named_parameters()}
        assert all(torch.equal(found[name], p) for name, p in plain.named_parameters())
    finally:
        dist.destroy_process_group()


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
