"""An engine kept between stages is as good as a new one, and only where it fits."""

import gc
import json
import shutil
from dataclasses import replace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, save_policy
from veriloop.pipeline.sampling import engine_process, torch_engine
from veriloop.pipeline.sampling.engine_cache import warm_samplers
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.sync import SyncError, WeightSync

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63)]
SAMPLING = Sampling(per_prompt=3, temperature=1.0, max_tokens=12, seed=7)
BOTH = [
    "torch",
    pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow]),
]


def config(engine="torch", **changes):
    return SamplerConfig(**{"engine": engine, "cache_gib": 0.1, "max_batch": 32, **changes})


def opened(folder, engine="torch", *, max_length=96, **changes):
    return open_sampler(config(engine, **changes), str(folder), max_length=max_length, say=print)


def ids(answers):
    return [[answer.ids for answer in group] for group in answers]


@pytest.fixture
def trained(tiny_checkpoint, tmp_path):
    """Factory: the tiny checkpoint after some training, saved as a stage saves it."""

    def make(seed=1, **shape):
        policy, tokenizer = load_policy(tiny_checkpoint(**shape)), load_tokenizer(tiny_checkpoint())
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in policy.parameters():
                p.add_(torch.randn(p.shape, generator=generator) * 0.1)
        save_policy(policy, tokenizer, tmp_path / f"trained-{seed}")
        return tmp_path / f"trained-{seed}"

    return make


@pytest.fixture
def started(monkeypatch):
    """The engines that were started, and of each whether it is closed."""
    opened_engines = []
    start = engine_process.start_engine

    def noted(*words, **settings):
        sampler = start(*words, **settings)
        close = sampler.close
        told = {"sampler": sampler, "length": settings["max_length"], "closed": False}

        def closing():
            told["closed"] = True
            close()

        sampler.close = closing
        opened_engines.append(told)
        return sampler

    monkeypatch.setattr(engine_process, "start_engine", noted)
    return opened_engines


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("engine", BOTH)
def test_a_warm_engine_samples_what_a_fresh_one_does(
    engine, tied, tiny_checkpoint, trained, started
):
    if engine == "vllm":
        pytest.importorskip("vllm")
    first, second = tiny_checkpoint(tied=tied), trained(tied=tied)
    fresh = opened(second, engine)
    wanted = fresh.sample(PROMPTS, SAMPLING)
    fresh.close()
    with warm_samplers():
        sampler = opened(first, engine)
        assert sampler.sample(PROMPTS, SAMPLING) != wanted
        sampler.load_weights(load_policy(first).named_parameters(), 5)
        sampler.close()
        again = opened(second, engine)
        assert (again.name, again.version, len(started)) == (engine, 0, 2)
        assert again.sample(PROMPTS, SAMPLING) == wanted
        sync = WeightSync(load_policy(second), again, temperature=0.8, tolerance=1e-4)
        assert sync.prove(0, PROMPTS).max <= 1e-4
        again.close()
        assert not started[1]["closed"]
    assert [one["closed"] for one in started] == [True, True]


def test_outside_every_engine_is_a_new_one_and_closes_for_good(tiny_checkpoint, started):
    for _ in range(2):
        opened(tiny_checkpoint()).close()
    assert [one["closed"] for one in started] == [True, True]


def test_an_engine_in_use_is_not_given_out_a_second_time(tiny_checkpoint, started):
    with warm_samplers():
        one, other = opened(tiny_checkpoint()), opened(tiny_checkpoint())
        assert len(started) == 2 and one._engine is not other._engine
        one.close()
        other.close()
        assert all(told["closed"] for told in started)  # of two, none is kept
        opened(tiny_checkpoint())
        assert len(started) == 3


@pytest.mark.slow
def test_an_engine_apart_and_one_of_this_process_wait_for_stages_that_take_turns(
    tiny_checkpoint, trained, started, forked_engines
):
    """As in the whole recipe: RL samples ahead, apart, and evaluations and teachers do not."""
    del forked_engines
    first, second = tiny_checkpoint(), trained()
    with warm_samplers():
        apart = opened(first, apart=True)
        process = apart.pid
        before = ids(apart.sample(PROMPTS, SAMPLING))
        apart.close()
        opened(first).close()
        again, here = opened(second, apart=True), opened(second)
        answers = [ids(sampler.sample(PROMPTS, SAMPLING)) for sampler in (again, here)]
        again.close()
        here.close()
        assert again.pid == process and len(started) == 1
        assert answers[0] == answers[1] != before
        assert not started[0]["closed"] and psutil.pid_exists(process)
    assert started[0]["closed"] and not psutil.pid_exists(process)


def test_what_was_closed_cannot_be_used_though_its_engine_lives(tiny_checkpoint, started):
    with warm_samplers():
        sampler = opened(tiny_checkpoint())
        sampler.close()
        sampler.close()  # as often as one likes
        for use in (lambda: sampler.version, lambda: sampler.sample(PROMPTS, SAMPLING)):
            with pytest.raises(RuntimeError, match="torch sampler is closed"):
                use()
        assert opened(tiny_checkpoint()).version == 0 and len(started) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"max_batch": 16}, {"cache_gib": 0.2}, {"max_length": 97}, {"ends": (200,)}, {"tied": True}],
    ids=str,
)
def test_an_engine_that_does_not_fit_is_closed_and_another_started(
    change, tiny_checkpoint, started
):
    shape = {key: change.pop(key) for key in ("ends", "tied") if key in change}
    with warm_samplers():
        opened(tiny_checkpoint()).close()
        opened(tiny_checkpoint(**shape), **change)
        assert len(started) == 2 and started[0]["closed"] and not started[1]["closed"]


def test_another_tokenizer_is_another_engine(tiny_checkpoint, tmp_path, started):
    shutil.copytree(tiny_checkpoint(), tmp_path / "other")
    path = tmp_path / "other/tokenizer.json"
    told = json.loads(path.read_text())
    told["added_tokens"][0]["lstrip"] = True
    path.write_text(json.dumps(told))
    with warm_samplers():
        opened(tiny_checkpoint()).close()
        opened(tmp_path / "other")
    assert len(started) == 2


def test_who_wrote_a_config_makes_no_difference(tiny_checkpoint, tmp_path, started):
    shutil.copytree(tiny_checkpoint(), tmp_path / "other")
    written = {"transformers_version": "9", "is_local": True, "_name_or_path": "x"}
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        told = json.loads((tmp_path / "other" / name).read_text())
        (tmp_path / "other" / name).write_text(json.dumps(told | written))
    with warm_samplers():
        opened(tiny_checkpoint()).close()
        opened(tmp_path / "other")
    assert len(started) == 1


def test_engines_are_opened_with_the_room_that_a_later_stage_needs(tiny_checkpoint, started):
    with warm_samplers(room=128):
        opened(tiny_checkpoint()).close()
        opened(tiny_checkpoint(), max_length=128).close()
        opened(tiny_checkpoint(), max_length=129)
    assert [one["length"] for one in started] == [128, 129]


def test_an_engine_that_keeps_old_weights_is_found_out_and_closed(
    tiny_checkpoint, trained, started, monkeypatch
):
    with warm_samplers():
        opened(tiny_checkpoint()).close()
        monkeypatch.setattr(torch_engine.TorchSampler, "load_weights", lambda *_: None)
        with pytest.raises(SyncError, match="the torch sampler holds other weights than were sent"):
            opened(trained())
        assert started[0]["closed"]
        opened(tiny_checkpoint())
        assert len(started) == 2


def test_a_sharded_checkpoint_fits_the_engine_of_a_whole_one(tiny_checkpoint, tmp_path, started):
    folder = shutil.copytree(tiny_checkpoint(), tmp_path / "sharded")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, half = sorted(weights), len(weights) // 2
    index = {}
    for n, part in enumerate((names[:half], names[half:]), 1):
        file = f"model-0000{n}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    told = {"metadata": {"total_size": 1}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(told))
    with warm_samplers():
        opened(tiny_checkpoint()).close()
        opened(folder)
    assert len(started) == 1


def test_an_engine_whose_answers_end_with_other_tokens_does_not_fit(
    tiny_checkpoint, tmp_path, started
):
    shutil.copytree(tiny_checkpoint(), tmp_path / "chat")
    end = load_tokenizer(tmp_path / "chat").convert_ids_to_tokens(0)
    with warm_samplers():
        opened(tmp_path / "chat").close()
        template = f"{{% for m in messages %}}{{{{ m.content }}}}{end}{{% endfor %}}"
        (tmp_path / "chat/chat_template.jinja").write_text(template)
        opened(tmp_path / "chat").close()
        opened(tmp_path / "chat").close()
    assert [told["sampler"]._ends.tolist() for told in started] == [[2], [0, 2]]


def test_a_warm_engine_is_told_to_sleep(tiny_checkpoint):
    with warm_samplers():
        sampler = opened(tiny_checkpoint())
        told = []
        sampler._engine.sleep = lambda: told.append("sleep")
        sampler.sleep()
        assert told == ["sleep"]


def test_on_a_machine_with_a_gpu_an_engine_that_cannot_sleep_is_closed(
    tiny_checkpoint, started, monkeypatch
):
    with warm_samplers():
        sampler = opened(tiny_checkpoint())
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        sampler.close()
        assert started[0]["closed"]


@pytest.mark.parametrize("before", ["awake", "asleep", "woken"])
def test_an_engine_that_can_sleep_waits_asleep(tiny_checkpoint, started, monkeypatch, before):
    with warm_samplers():
        sampler = opened(tiny_checkpoint())
        settings = sampler._kept.fit.settings.model_copy(update={"sleep": True})
        sampler._kept = replace(sampler._kept, fit=replace(sampler._kept.fit, settings=settings))
        told = []
        sampler._engine.sleep = lambda: told.append("sleep")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        if before != "awake":
            sampler.sleep()
        if before == "woken":
            sampler.load_weights(load_policy(tiny_checkpoint()).named_parameters(), 1)
        sampler.close()
        assert told == ["sleep"] * (2 if before == "woken" else 1)
        assert not started[0]["closed"]


@pytest.mark.vllm
@pytest.mark.slow
def test_answers_to_a_short_prompt_share_it_on_a_cpu(tiny_checkpoint):
    """vLLM's own blocks of 128 tokens would be whole for no prompt of sums."""
    vllm_engine = pytest.importorskip("veriloop.pipeline.sampling.vllm_engine")
    sampler = vllm_engine.VllmSampler(str(tiny_checkpoint()), max_length=96, cache_gib=0.1)
    engine, read = sampler._engine.llm_engine, []
    step = engine.step

    def noted():
        outputs = step()
        read.extend(output.num_cached_tokens for output in outputs)
        return outputs

    engine.step = noted
    prompt = [1, *range(40, 75)]
    for _ in range(2):
        sampler.sample([prompt], replace(SAMPLING, per_prompt=1))
    sampler.close()
    assert read == [0, 32]


@pytest.mark.vllm
@pytest.mark.slow
def test_a_closed_engine_that_someone_still_holds_ends_no_other(tiny_checkpoint):
    """vLLM ends the process groups, which all engines share, when an engine is collected."""
    vllm_engine = pytest.importorskip("veriloop.pipeline.sampling.vllm_engine")
    first = vllm_engine.VllmSampler(str(tiny_checkpoint()), max_length=96, cache_gib=0.1)
    held = first._engine.llm_engine
    first.close()
    second = vllm_engine.VllmSampler(str(tiny_checkpoint()), max_length=96, cache_gib=0.1)
    del held, first
    gc.collect()
    (answers,) = second.sample([[1, 40, 41]], SAMPLING)
    second.close()
    assert len(answers) == SAMPLING.per_prompt and all(answer.ids for answer in answers)
