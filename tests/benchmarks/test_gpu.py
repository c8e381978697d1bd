"""The benchmark of a card: its miniature without one, its arithmetic, what it calls a shortfall."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.chdir(ROOT)
    import gpu

    return gpu


@pytest.fixture
def sections(gpu):
    import gpu_sections

    return gpu_sections


@pytest.mark.slow
def test_the_miniature_measures_what_a_processor_can_and_names_the_rest(
    gpu, monkeypatch, capsys, tmp_path
):
    import gpu_sampling

    monkeypatch.setattr(gpu_sampling, "PUBLISHED", tmp_path / "a-model")  # minutes on a CPU
    words = ["benchmarks/gpu.py", "--device", "cpu", "--json", str(tmp_path / "made.json")]
    monkeypatch.setattr(sys, "argv", words)
    assert gpu.main() == 0
    said = capsys.readouterr().out
    for what in gpu.NEEDS_A_CARD:
        assert f"not measured on cpu: {what}" in said
    found = json.loads((tmp_path / "made.json").read_text())["results"]
    update, sampler = found["update:tiny"], found["sampler:eager"]
    assert 0 < update["mfu"] < 1 and update["roof"] == "measured" and update["peak_gib"] is None
    assert sum(update["parts"].values()) > 0 and update["kinds"]["matrix products"] > 0
    assert "part: backward" in said and "output head, both passes" in said
    assert update["tokens_s"] > 0 and sampler["tokens_s"] > 0 and "sleep_s" not in sampler
    sharded, sent = found["sharded"], found["ipc"]
    assert sharded["plain_norm"] == pytest.approx(sharded["fsdp_norm"], rel=1e-3)
    assert sharded["slower"] > 0 < sent["send_s"] and sent["digests_agree"]
    assert "weights by ipc" in said
    own, zero = found["torch:eager"], found["zero"]
    assert own["tokens_s"] > 0 and own["mean_nats"] < 1e-5 and not own["graphs"]
    assert list(zero) == ["cpu"] and len(zero["cpu"]["curve"]) == 2
    assert not gpu_sampling.shortfalls(found) and "R1-Zero: reward at step" in said
    assert "left_out" in found["published"]


def test_without_a_card_nothing_runs_unless_the_processor_is_asked_for(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["benchmarks/gpu.py"])
    with pytest.raises(SystemExit, match="no card is here; --device cpu"):
        gpu.main()


def test_operations_are_six_for_each_weight_that_multiplies_and_attention(sections):
    tied, untied = (
        sections.model_of("tiny", "meta", tie_word_embeddings=one) for one in (True, False)
    )
    blocks = sum(p.numel() for n, p in tied.named_parameters() if "layers" in n) + 64
    assert sections.operations(tied, 100) == 6 * (blocks + 2048 * 64) + 6 * 2 * 64 * 100
    assert sections.operations(untied, 100) == sections.operations(tied, 100)
    tied._lora = "adapters"  # what is frozen has no gradient of its own
    assert sections.operations(tied, 100) == 4 * (blocks + 2048 * 64) + 6 * 2 * 64 * 100


@pytest.mark.parametrize(
    ("name", "flops"),
    [("NVIDIA H200", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA H100 80GB HBM3", 989e12),
     ("NVIDIA L40S", 362e12), ("NVIDIA L4", 121e12)],
)  # fmt: skip
def test_a_card_is_known_by_its_whole_name(sections, monkeypatch, name, flops):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    assert sections.roof(None, "cuda:0")[0] == flops


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void cutlass::device_kernel<flash::FlashAttnBwdSm90>", "attention"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_TNT", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("triton_red_fused__to_copy_add_mul_12", "compiled"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::index_elementwise_kernel", "other"),
    ],
)
def test_a_kernel_is_of_the_kind_that_its_name_tells(gpu, name, kind):
    import gpu_waterfall

    assert gpu_waterfall.kind_of(name) == kind


def test_a_model_that_fills_the_card_recomputes_more_or_is_left_out(gpu, sections, monkeypatch):
    card = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(sections, "update", lambda name, device, **told: told["recompute"])
    found = [gpu._fitting(sections, name, "cuda:0", False) for name in ("0.5B", "7B+adapters")]
    assert found == ["cheap", "cheap"]
    assert "there are 80" in gpu._fitting(sections, "7B", "cuda:0", False)["left_out"]
    monkeypatch.setattr(card, "total_memory", 40 * 2**30)
    assert gpu._fitting(sections, "7B+adapters", "cuda:0", False) == "all"


def good():
    update = {"model": "1.5B", "mfu": 0.5, "peak_gib": 20.0, "predicted_gib": 21.0}
    return {
        "update:1.5B": update,
        "vocabularies": [{"vocabulary": 1, "rest_gib": 1.0}, {"vocabulary": 2, "rest_gib": 1.1}],
        "sharded": {"dtype": "bfloat16", "slower": 1.02, "plain_norm": 1.0, "fsdp_norm": 1.001},
        "ipc": {"gib": 3.0, "send_s": 0.5, "digests_agree": True},
        "sampler:eager": {"tokens_s": 100.0, "wake_s": 1.0},
        "sampler:graphs": {"tokens_s": 200.0, "wake_s": 1.0},
        "torch:graphs": {"model": "0.5B", "dtype": "bfloat16", "graphs": True, "tokens_s": 9000.0,
                         "mean_nats": 0.01},
        "zero": {"cpu": {"curve": [0.1] * 10}, "gpu": {"curve": [0.12] * 10}},
        "published": {"cpu": {"curve": [0.1] * 10}, "gpu": {"curve": [0.12] * 10}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("section", "change", "said"),
    [
        ("update:1.5B", {"mfu": 0.2}, "update of 1.5B: mfu 0.20, aim 0.4"),
        ("update:1.5B", {"peak_gib": 30.0}, "memory of 1.5B: 30.0 GiB, predicted 21.0"),
        ("sampler:graphs", {"tokens_s": 110.0}, "CUDA graphs: 1.10 times"),
        ("sampler:eager", {"wake_s": 9.0}, "waking with new weights: 9.0 s, aim 5.0"),
        ("torch:graphs", {"tokens_s": 7000.0}, "torch sampler: 7000 tokens/s at 0.5B, aim 8000"),
        ("torch:graphs", {"mean_nats": 0.1}, "torch sampler: 1.0e-01 nats from the trainer in bfl"),
        ("zero", {"gpu": {"curve": [0.9] * 3}}, "R1-Zero: reward 0.900 on the GPU, 0.100 on the"),
        ("published", {"gpu": {"curve": [0.9] * 3}}, "R1-Zero of SmolLM2-135M-Instruct: reward 0"),
        ("sharded", {"slower": 1.2}, "FSDP2 of one rank: 1.200 times the time of a plain"),
        ("sharded", {"fsdp_norm": 1.1}, "FSDP2 of one rank: the gradient's norm is off by 1.0e-01"),
        ("sharded", {"fsdp_norm": float("nan")}, "FSDP2 of one rank: the gradient's norm is off b"),
        ("ipc", {"send_s": 2.0}, "ipc: 3.0 GiB in 2.00 s, aim 1.0"),
        ("ipc", {"digests_agree": False}, "ipc: the other process has other weights than"),
        ("update:7B", {"failed": "update:7B: out of memory"}, "update:7B: out of memory"),
    ],
)
def test_what_is_missed_is_reported(gpu, section, change, said):
    assert gpu.shortfalls(good()) == []
    found = good()
    found[section] = found.get(section, {}) | change
    (missed,) = gpu.shortfalls(found)
    assert missed.startswith(said)


def test_memory_that_grows_with_the_vocabulary_is_reported(gpu):
    found = good()
    found["vocabularies"][1]["rest_gib"] = 1.5
    assert gpu.shortfalls(found) == ["memory: 0.50 GiB more at a vocabulary of 2, at most 0.25"]


def test_without_vllm_its_sections_are_left_out_and_said_to_be(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda _: None)
    left = gpu.section("sampler:graphs", "cuda:0", quick=True)
    assert left == {"left_out": "vLLM is not installed"}
    found = {"sampler:eager": left, "sampler:graphs": left}
    assert gpu.shortfalls(found) == [] and "vLLM is not installed" in gpu.shown(found)


def test_curves_of_both_runs_are_shown_side_by_side(gpu):
    run = {"before": 0.1, "after": 0.5, "seconds": 9.0}
    runs = {"cpu": run | {"curve": [0.1, 0.2]}, "gpu": run | {"curve": [0.1, 0.3]}}
    said = gpu.shown({"zero": runs})
    assert [line.split() for line in said.splitlines()[-4:-3]] == [["1", "0.2", "0.3"]]


def test_a_published_model_that_is_not_at_hand_is_left_out_and_named(gpu, monkeypatch, tmp_path):
    import gpu_sampling

    monkeypatch.setattr(gpu_sampling, "PUBLISHED", tmp_path / "models" / "a-model")
    found = {"published": gpu.section("published", "cuda:0", quick=True)}
    assert found["published"] == {"left_out": "a-model is not in models"}
    assert gpu.shortfalls(found) == [] and "a-model is not in models" in gpu.shown(found)


@pytest.mark.slow
def test_the_run_of_a_published_model_earns_something_for_brevity(
    gpu, monkeypatch, tiny_checkpoint
):
    import gpu_sampling

    monkeypatch.setattr(gpu_sampling, "PUBLISHED", tiny_checkpoint())
    found = {"published": gpu.section("published", "cpu", quick=True)}
    curve = found["published"]["cpu"]["curve"]
    assert len(curve) == 2 and all(0 < reward <= 1 for reward in curve)
    assert "SmolLM2-135M-Instruct: reward at step" in gpu.shown(found)


def test_sections_after_the_time_are_left_out_and_the_others_keep_their_order(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "measured", lambda name, device, quick: {"name": name})
    results = gpu.all_measured(["ipc", "zero"], "cuda:0", False, float("inf"), at_once=2)
    assert results == {"ipc": {"name": "ipc"}, "zero": {"name": "zero"}}
    late = gpu.all_measured(["ipc"], "cuda:0", False, 0.0, at_once=1)
    assert late == {"ipc": {"left_out": "no time was left"}} and gpu.shortfalls(late) == []


@pytest.fixture
def published(gpu):
    import gpu_published

    return gpu_published


def run_published(published, monkeypatch, path, *words):
    """The settings by stage that the script runs with these words; no stage runs."""
    recipes = []

    def record(folder, recipe, seed, **_):
        recipes.append(recipe)
        steps(R1Recipe.model_validate(recipe))  # raises RecipeError where a run would
        return {}

    monkeypatch.setattr(published, "run", record)
    monkeypatch.setattr(sys, "argv", ["gpu_published.py", "--folder", str(path), *words])
    assert published.main() == 0
    return {stage["name"]: stage["set"] for stage in recipes[0]["stages"]}


def test_chosen_stages_of_a_published_model_read_their_files(published, monkeypatch, tmp_path):
    files = ["--svamp", "s.jsonl", "--gsm8k", "train.jsonl", "test.jsonl"]
    stages = run_published(
        published, monkeypatch, tmp_path, "--stages", "cold_start", "reasoning_rl", *files
    )
    assert list(stages) == ["cold_start", "reasoning_rl"]
    assert stages["reasoning_rl"]["sets.gsm8k.test"] == "test.jsonl"
    assert stages["cold_start"]["sets.svamp.path"] == "s.jsonl"
    assert stages["cold_start"]["data.rows"] == 4000


def test_a_quick_run_of_a_published_model_is_small(published, monkeypatch, tmp_path):
    stages = run_published(published, monkeypatch, tmp_path, "--quick")
    assert list(stages) == [stage.name for stage in read(published.LIST).stages]
    assert stages["reasoning_rl"]["steps"] == 1 and stages["cold_start"]["data.rows"] == 64


def test_a_stage_that_was_interrupted_is_reported_as_far_as_it_came(published):
    steps = [{"step": n, "reward": n / 10, "step_time": 9.0 - n, "time/sample": 1.0, "x": 1.0}
             for n in range(4)]  # fmt: skip
    before = {"pass@1/svamp": 0.25, "greedy/svamp": 0.5, "loss": 2.0}
    stage = {"status": "stopped", "before": before, "curve": steps}
    record = published.record_of(stage)
    means = {"step_time": 6.5, "time/sample": 1.0}  # the first two steps are left out
    assert record["mean_of_a_step"] == means and record["rewards"] == [0.0, 0.1, 0.2, 0.3]
    assert record["after"] == {} and record["steps"] == 4
    lines = published.shown({"reasoning_rl": record}).splitlines()
    assert lines[2:] == ["before reasoning_rl  -          -           0.250, 0.500  -      -"]
