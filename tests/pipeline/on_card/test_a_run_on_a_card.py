"""R1-Zero from the first sync to the last checkpoint, sampler and trainer on one card."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.runs import checkpoint, tensor_store
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling import torch_engine
from veriloop.pipeline.sampling.static_engine import StaticSampler
from veriloop.stages import rl, zero

LEARNED = ("reward", "loss", "kl", "grad_norm", "entropy", "sync/moved")


def recipe(device, **trainer):
    return ZeroRecipe.model_validate({
        "name": "test", "start": "given", "steps": 2, "tensorboard": False,
        "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 5},
        "algorithm": {"reference_every": 1, "kl_coefficient": 0.01},
        "optimizer": {"learning_rate": 1e-3},
        "trainer": {"device": device, **trainer},
        "sampler": {"engine": "torch", "device": device, "cache_gib": 0.1,
                    "sleep": device == "cuda"},
        "evaluation": {"problems": 1, "samples": 1},
        "checkpoint": {"every": 1, "keep": 9},
    })  # fmt: skip


def low_ids(rollout, verdicts):
    """A reward that an untrained model earns now and then."""
    del verdicts
    return sum(i < 150 for i in rollout.response_ids) / len(rollout.response_ids)


@pytest.fixture
def trained(tiny_checkpoint, one_pool, staged, monkeypatch, request, tmp_path):
    """Function: the loop of a run in `tmp_path`/name. Models are loaded before there is a card, as
    its stand-in cannot load any."""
    start = tiny_checkpoint()
    models = [load_policy(start) for _ in range(4)]
    for module in (rl, torch_engine):
        monkeypatch.setattr(module, "load_policy", lambda *_, **__: models.pop())
    request.getfixturevalue("card")

    def run(name, told):
        with ExitStack() as stack:
            loop = rl.open_loop(stack, told, zero.task(told), tmp_path / name, start, None)
            loop.collector.task = replace(loop.task, reward=low_ids)
            loop.run(lambda: 0.0)
        return loop

    return run


def learned(loop):
    rows = list(read_metrics(loop.deps.directory / "metrics.jsonl"))
    assert len(rows) == 2
    return rows, {(n, i): row[n] for i, row in enumerate(rows) for n in LEARNED}


@pytest.mark.slow
def test_a_whole_run_learns_what_it_learns_on_the_cpu_and_is_saved(trained, card):
    _, want = learned(trained("cpu", recipe("cpu")))
    assert not card.ran
    loop = trained("card", recipe("cuda"))
    rows, got = learned(loop)
    assert got == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in want.items()}
    assert any(value for (name, _), value in got.items() if name == "grad_norm")
    assert isinstance(loop.deps.sampler, StaticSampler)
    assert device_of(loop.policy).type == device_of(loop.learner.reference.model).type == "cuda"
    assert {"embedding", "_fused_adamw_"} <= card.ran
    assert all({"memory/card", "system/gpu/memory"} <= row.keys() for row in rows)
    last = checkpoint.latest(loop.deps.directory)
    assert last.name == "step_000002" and (last / tensor_store.FOLDER).is_dir()
    assert checkpoint.load_state(last)["step"] == 2


@pytest.mark.slow
def test_a_whole_run_in_half_precision_with_adapters_keeps_every_proof(trained, card):
    trainer = {"compute": "bfloat16", "lora": {"rank": 2}, "gradient_checkpointing": True,
               "recompute": "cheap"}  # fmt: skip
    rows, got = learned(trained("half", recipe("cuda", **trainer)))
    assert {"_varlen_attn", "_varlen_attn_backward", "mm"} <= card.ran
    assert all(row["sync/max"] <= 1e-4 for row in rows)  # its sampler computes in float32
    assert all(got["grad_norm", step] > 0 for step in (0, 1))
