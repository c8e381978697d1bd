"""How stages begin and end; the sandbox of verifiers that run programs is checked and recorded."""

import json
from contextlib import ExitStack

import pytest
import torch

from veriloop.pipeline.config.load import read, read_values, validate, with_flags
from veriloop.pipeline.config.sections import Judged
from veriloop.pipeline.config.sft import SFTRecipe
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.checkpoint_files import DamagedCheckpointError
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.sampling import prelaunch
from veriloop.sandbox import backends
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.stages import stage_run
from veriloop.stages.commands.lineage import described as stages_of
from veriloop.stages.commands.lineage import tree
from veriloop.stages.stage_run import (
    begin_stage,
    open_verifiers,
    other_sampler,
    sandbox_facts,
    slow_bfloat16,
)


@pytest.fixture
def recipe(tiny_checkpoint):
    values = {
        "name": "test",
        "start": str(tiny_checkpoint()),
        "data": {"source": "arithmetic", "rows": 20},
        "optimizer": {"learning_rate": 3e-3},
    }
    return SFTRecipe.model_validate(values)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_a_stage_does_not_begin_among_the_files_of_another(recipe, tmp_path, resume, listed):
    if listed:
        RunManifest(tmp_path / "run.json").begin_stage("sft", {})
    left = tmp_path / "sft" / "rollouts"
    left.mkdir(parents=True)
    if resume and listed:
        begin_stage(recipe, tmp_path, resume=True)
        return
    with pytest.raises(RecipeError, match=r"sft holds files of an earlier stage \(rollouts\)"):
        begin_stage(recipe, tmp_path, resume=resume)
    assert left.is_dir() and (tmp_path / "run.json").exists() is listed


def test_a_stage_ends_with_the_checkpoint_of_its_last_step(recipe, tmp_path):
    stage = begin_stage(recipe, tmp_path, resume=False)
    for step in (1, 3):
        checkpoint.save(stage.directory, step, write_model=lambda _: None, state={}, keep=9)
    last = tmp_path / "sft" / "checkpoints" / "step_000001"
    assert stage.finish(1, None, {}, {}, {}) == last
    (entry,) = json.loads((tmp_path / "run.json").read_text())["stages"]
    assert entry["outputs"]["checkpoint"] == str(last)
    with pytest.raises(DamagedCheckpointError, match="step_000002 is damaged"):
        stage.finish(2, None, {}, {}, {})


@pytest.mark.parametrize("began", ["torch", "vllm"])
@pytest.mark.parametrize("installed", [True, False])
def test_a_resumed_stage_samples_with_the_engine_it_began_with(
    recipe, tmp_path, monkeypatch, began, installed
):
    monkeypatch.setattr(prelaunch, "is_installed", lambda: installed)
    begin_stage(recipe, tmp_path, resume=False).note_sampler(began)
    if began == "vllm" and not installed:
        with pytest.raises(RecipeError, match="began with vLLM as its sampler, which is not"):
            begin_stage(recipe, tmp_path, resume=True)
        return
    for _ in range(2):  # also after a resumption that ended before it sampled
        begin_stage(recipe, tmp_path, resume=True)
        assert prelaunch.engine_of(recipe.sampler) == began
    begin_stage(recipe, tmp_path / "new", resume=False)
    assert prelaunch.engine_of(recipe.sampler) == ("vllm" if installed else "torch")


LAYERS = {"backend": "namespace", "tier": 1, "layers": {"seccomp": ""}}


@pytest.fixture
def described(monkeypatch):
    """The settings that were described."""
    settings = []

    def describe(setting):
        settings.append(setting)
        return LAYERS

    monkeypatch.setattr(backends, "describe", describe)
    return settings


def test_a_run_records_its_backend_and_layers(described, tmp_path, monkeypatch):
    opened = {}

    class Pool:
        def fingerprint(self, names):
            return dict.fromkeys(names, "1+ab")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def open_judges(names, service, **options):
        opened.update(options)
        return Pool()

    monkeypatch.setattr(stage_run, "open_judges", open_judges)
    config = Judged.model_validate({"sandbox": {"backend": "namespace"}})
    manifest = RunManifest(tmp_path / "run.json")
    manifest.begin_stage("zero", {})
    with ExitStack() as stack:
        open_verifiers(stack, config, ["code_tests", "number"], tmp_path / "zero")
    assert opened["sandbox"] == "namespace" and described == ["namespace"]
    manifest.end_stage("zero", 1.0, None, {}, {}, {})
    (entry,) = json.loads((tmp_path / "run.json").read_text())["stages"]
    assert entry["lineage"]["sandbox"] == LAYERS
    assert "programs in namespace (tier 1)" in tree(stages_of(tmp_path))


@pytest.mark.parametrize(
    ("names", "service"),
    [
        (["number", "think_format"], ""),
        ([], ""),
        (["code_tests"], "http://127.0.0.1:9"),
        (["code_tests"], ["http://127.0.0.1:9", "http://127.0.0.1:10"]),
    ],
)
def test_a_run_without_programs_of_its_own_needs_no_sandbox(described, names, service):
    assert sandbox_facts(Judged(verifier_service=service), names) == {}
    assert not described


def test_a_sandbox_that_is_not_available_ends_the_stage_before_it_begins(monkeypatch):
    def refuse(setting):
        raise SandboxUnavailableError(f"{setting}: tier 1 is not available here")

    monkeypatch.setattr(backends, "describe", refuse)
    with (
        pytest.raises(StageError, match="auto: tier 1 is not available here"),
        ExitStack() as stack,
    ):
        open_verifiers(stack, Judged(), ["code_tests"])


@pytest.mark.parametrize(
    ("name", "flags", "gpu", "slow"),
    [
        ("real/smollm2/reasoning_rl", {"avx2"}, False, "trainer.compute sampler.dtype"),
        ("real/smollm2/reasoning_rl", {"avx2"}, True, "trainer.compute"),
        ("real/smollm2/zero", {"avx2"}, False, "sampler.dtype"),
        ("real/smollm2/reasoning_rl", {"avx2", "avx512_bf16"}, False, ""),
        ("real/smollm2/reasoning_rl", set(), False, ""),
        ("tiny/zero", {"avx2"}, False, ""),
        ("tiny/reward_model", {"avx2"}, False, ""),
    ],
)
def test_bfloat16_on_a_processor_without_it_is_warned_of(monkeypatch, name, flags, gpu, slow):
    monkeypatch.setattr(stage_run, "cpu_flags", lambda: flags)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    settings = " and ".join(f"{key}=bfloat16" for key in slow.split())
    told = f"{settings}: this CPU has no instructions for it, so float32 is faster"
    assert slow_bfloat16(read(name)) == (told if slow else "")


def test_served_samplers_compute_elsewhere(monkeypatch):
    monkeypatch.setattr(stage_run, "cpu_flags", lambda: {"avx2"})
    recipe = read("real/smollm2/zero")
    samplers = recipe.cluster.samplers.model_copy(update={"urls": ("http://gpu:8000",)})
    cluster = recipe.cluster.model_copy(update={"samplers": samplers})
    assert slow_bfloat16(recipe.model_copy(update={"cluster": cluster})) == ""


def test_a_resumed_stage_that_changes_between_its_engine_and_servers_says_so():
    own = read("tiny/zero")
    flags = {"cluster.samplers.urls": ["http://a:1"], "sampler.engine": "vllm"}
    served = validate(with_flags(read_values("tiny/zero"), flags), "flags")
    assert other_sampler("torch", served).startswith(
        "before this stage was stopped its own engine, torch, sampled; now servers sample"
    )
    assert "servers sampled; now an engine of its own samples" in other_sampler("served", own)
    unchanged = [(None, served), (None, own), ("served", served), ("torch", own), ("vllm", own)]
    assert [other_sampler(*one) for one in unchanged] == [""] * 5
