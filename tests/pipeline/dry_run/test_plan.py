"""The plan's numbers, worked by hand, and parameter counts against models that exist."""

import json
import re
import struct
from types import SimpleNamespace

import pytest

from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.config.pretraining import BaseRecipe, TinyModel
from veriloop.pipeline.config.rl import PreferenceRLRecipe, ZeroRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe
from veriloop.pipeline.dry_run.budget import BUCKET_BYTES, shown
from veriloop.pipeline.dry_run.plan import (
    parameters,
    plan,
    require_memory_of,
    shape_at,
    tiny_parameters,
)
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling.transfer.sender import BUCKET_BYTES as SENT_BYTES


def rows(recipe, output=None):
    """The plan as a dict, its rows being `name  value`."""
    lines = [line.strip() for line in plan(recipe, output).splitlines() if line]
    return {name: value.strip() for name, _, value in (line.partition("  ") for line in lines)}


def zero(start="nowhere", steps=10, algorithm=(), kind=ZeroRecipe, **parts):
    return kind.model_validate(
        {
            "name": "n",
            "start": str(start),
            "steps": steps,
            "rollout": {"prompts": 6, "per_prompt": 4, "max_tokens": 50},
            "optimizer": {"learning_rate": 1e-3},
            "algorithm": {"minibatches": 3, **dict(algorithm)},
            **parts,
        }
    )


def test_batch_arithmetic_by_hand():
    told = rows(zero())
    assert told["rollouts a step"] == "6 prompts x 4 responses = 24"
    assert told["optimizer steps"] == "3 a step, of 8 responses each"
    assert told["off-policy depth"].startswith("2 updates")
    assert told["whole run"] == "10 steps = 240 rollouts, 60 prompts, 30 optimizer steps"
    assert told["tokens"] == "at most 1,200 sampled a step, 12,000 in all"


def test_a_number_of_one_is_told_in_the_singular():
    one = {"rollout": {"prompts": 1, "per_prompt": 2, "max_tokens": 50}, "steps": 1}
    told = rows(zero(**one, algorithm={"minibatches": 2}, evaluation={"samples": 1}))
    assert told["rollouts a step"] == "1 prompt x 2 responses = 2"
    assert told["optimizer steps"] == "2 a step, of 1 response each"
    assert told["off-policy depth"].startswith("1 update between")
    assert told["whole run"] == "1 step = 2 rollouts, 1 prompt, 2 optimizer steps"
    assert "x (1 sample + 1 greedy) at both ends" in told["evaluation"]


def test_sampling_ahead_and_replaced_groups_are_counted():
    """Rollouts are begun before the 3 updates of the step before; a group is asked 3 times."""
    table = rows(zero(rollout={"prompts": 6, "per_prompt": 4, "max_tokens": 50, "ahead": 1}))
    assert table["off-policy depth"].startswith("5 updates")
    assert table["off-policy depth"].endswith("3 of them as rollout.ahead=1")
    table = rows(zero(algorithm={"dynamic_sampling": 2}))
    assert table["tokens"] == "at most 3,600 sampled a step, 36,000 in all"
    assert table["whole run"].endswith(
        "at most 30 optimizer steps; up to 3 times as many sampled, with dynamic_sampling"
    )


def test_answers_that_are_masked_leave_fewer_optimizer_steps():
    masked = rows(zero(algorithm={"truncated": "mask"}))
    assert masked["whole run"].endswith("60 prompts, at most 30 optimizer steps")


def test_epochs_multiply_the_optimizer_steps():
    told = rows(zero(algorithm={"epochs": 2, "reference_every": 7}))
    assert told["optimizer steps"] == "6 a step, of 8 responses each, in 2 epochs"
    assert told["off-policy depth"].startswith("5 updates")
    assert told["whole run"].endswith("60 optimizer steps")
    assert told["reference"].startswith("replaced every 12 optimizer steps")


def test_one_minibatch_is_on_policy():
    assert rows(zero(algorithm={"minibatches": 1}))["off-policy depth"].startswith("0 updates")


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"kl_coefficient": 0}, "none: the KL coefficient is 0"),
        ({"reference_every": 0}, "the starting policy, never replaced"),
        ({"reference_every": 6}, "replaced every 6 optimizer steps, 5 times"),
        ({"reference_every": 7}, "replaced every 9 optimizer steps (7 rounded up to whole "
                                 "rollouts), 3 times"),
        ({"reference_every": 1}, "replaced every 3 optimizer steps (1 rounded up to whole "
                                 "rollouts), 10 times"),
        ({"reference_every": 31}, "replaced every 33 optimizer steps (31 rounded up to whole "
                                  "rollouts), 0 times"),
    ],
)  # fmt: skip
def test_how_often_the_reference_is_replaced(algorithm, said):
    assert rows(zero(algorithm=algorithm))["reference"] == said


@pytest.mark.parametrize(("every", "done"), [(6, 5), (7, 3), (1, 10), (31, 0)])
def test_the_loop_replaces_the_reference_as_often_as_planned(every, done):
    from torch import nn

    from veriloop.pipeline.model.reference import Reference

    policy = nn.Linear(1, 1)
    reference = Reference(policy, every)  # looked at once a rollout, as the loop does
    assert sum(reference.replace_when_due(policy, n) for n in range(3, 31, 3)) == done


SHAPE = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "vocab_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip
BLOCK, ENDS = 4 * 1024**2 + 3 * 2 * 1024**2, 2 * 4096 * 1024


def of_eight(tmp_path, **more):
    """A recipe of 2 x 4 ranks, and the parameters of its model."""
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))
    found = rows(zero(tmp_path, cluster={"trainer": {"nodes": 2, "ranks": 4}}, **more))
    return found, int(found["parameters"].replace(",", ""))


def test_a_cluster_is_planned_by_rank(tmp_path):
    found, parameters = of_eight(tmp_path)
    launcher = "torchrun --nnodes 2 --nproc-per-node 4 -m -- veriloop"
    assert found["cluster"].startswith(f"2 x 4 = 8 ranks; on each machine `{launcher}`")
    assert found["cluster"].endswith("rank 0 samples, judges and writes")
    for name, size in (("weights", 4), ("optimizer moments", 8), ("reference", 4)):
        assert found[f"- {name}"].startswith(f"{shown(size * parameters / 8)}: ")
        assert "over 8 ranks" in found[f"- {name}"]
    whole = shown(4 * (3 * BLOCK + 2 * ENDS))
    assert found["- whole units"].startswith(f"{whole}: two blocks, embedding and head")
    assert "on the device of rank 0" in found["memory"]
    largest = shown(4 * 4 * 4096 * 1024)
    assert found["- start"].startswith(f"{largest}: the largest weight, in each of 4 processes")
    assert found["weight sync"].startswith(f"{4 * parameters / 2**20:,.1f} MiB gathered tensor by")
    alone = rows(zero(tmp_path))
    assert not {"cluster", "micro-batches", "- whole units", "weight sync"} & alone.keys()
    assert "over" not in alone["- weights"]


def test_the_reference_of_several_ranks_is_planned_in_float32(tmp_path):
    half = {"trainer": {"compute": "bfloat16", "device": "cuda"}}
    memory, parameters = of_eight(tmp_path, **half)
    assert memory["- reference"].startswith(f"{shown(4 * parameters / 8)}: float32")
    assert ": bf16" in rows(zero(tmp_path, **half))["- reference"]


def test_a_rank_of_adapters_holds_no_whole_gradients(tmp_path):
    found, _ = of_eight(tmp_path, trainer={"lora": {"rank": 4}})
    assert found["- whole units"].startswith(f"{shown(4 * (2 * BLOCK + ENDS))}: ")
    adapters = 4 * 4 * (8 * 1024 + 3 * (1024 + 2048))  # numbers: rank x layers x widths
    start = shown(4 * 4 * (4096 * 1024 + adapters))
    assert found["- start"].startswith(f"{start}: the largest weight and the adapters, in each")


def test_each_rank_loads_all_of_a_mixture_of_experts(tmp_path):
    shape = SHAPE | {"model_type": "mixtral", "num_local_experts": 2, "num_key_value_heads": 8}
    (model_at(tmp_path) / "config.json").write_text(json.dumps(shape))
    found = rows(zero(tmp_path, cluster={"trainer": {"nodes": 2, "ranks": 4}}))
    start = shown(4 * (4 + 4) * int(found["parameters"].replace(",", "")))  # with the reference
    assert found["- start"].startswith(f"{start}: with its copies, in each of 4 processes")


def test_ranks_with_servers_have_no_sampler(tmp_path):
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))
    servers = {"samplers": {"urls": ["http://a:8000"]}}
    found = rows(zero(tmp_path, cluster=servers | {"trainer": {"ranks": 2}}))
    assert found["cluster"].endswith("rank 0 judges and writes")
    assert not {"- sampler weights", "- sampler cache"} & found.keys()


@pytest.mark.parametrize(
    ("rows_of", "row", "most"),
    [(2, 64, 4), (1, 400, 2), (2, 400, 1)],  # 64 of <= 100 tokens over 8: one or four in a row
)
def test_the_most_micro_batches_of_a_rank(rows_of, row, most):
    found = rows(
        zero(
            rollout={"prompts": 16, "per_prompt": 8, "max_prompt": 50, "max_tokens": 50},
            algorithm={"minibatches": 2},
            trainer={"rows": rows_of, "row": row},
            cluster={"trainer": {"ranks": 8}},
        )
    )
    assert found["micro-batches"] == (
        f"at most {most} on a rank and optimizer step: 64 responses of at most 100 tokens, "
        f"{rows_of} row{'s' * (rows_of > 1)} of {max(row, 99)}"
    )


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"gpu_gib": 0.01}, "gpu_gib=0.01: the plan needs about"),
        ({"host_gib": 0.1}, "host_gib=0.1: the plan needs about"),
        ({"gpu_gib": 100, "host_gib": 100}, ""),
        ({}, ""),
    ],
)
def test_a_cluster_that_is_too_small_is_refused(limits, said, tmp_path):
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))
    recipe = zero(tmp_path, cluster={"trainer": {"ranks": 4} | limits})
    if not said:
        require_memory_of(recipe)
        return
    with pytest.raises(RecipeError, match=said):
        require_memory_of(recipe)


def test_ranks_on_the_cpu_need_the_memory_of_their_machine(tmp_path):
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))
    limits = {"trainer": {"ranks": 4, "host_gib": 1.0}}
    needed = []
    for servers in ({}, {"samplers": {"urls": ["http://a:8000"]}}):
        recipe = zero(tmp_path, cluster=limits | servers, trainer={"device": "cpu"})
        with pytest.raises(RecipeError, match=r"host_gib=1: .*optimizer moments") as refusal:
            require_memory_of(recipe)
        listed = re.findall(r"([a-z ]+?) ([\d.,]+) ([MG])iB", str(refusal.value).partition("(")[2])
        needed.append({name.strip(): float(size) for name, size, _ in listed})
    parameters = 4 * BLOCK + ENDS
    assert needed[0]["optimizer moments"] == pytest.approx(8 * parameters / 2**20, rel=0.01)
    assert needed[0]["sampler weights"] == pytest.approx(4 * parameters / 2**20, rel=0.01)
    assert "sampler weights" not in needed[1]


@pytest.mark.parametrize("limit", ["gpu_gib", "host_gib"])
def test_limits_on_memory_need_a_model_that_can_be_planned(limit):
    recipe = zero("nowhere", cluster={"trainer": {"ranks": 4, limit: 80}})
    with pytest.raises(RecipeError, match=rf"{limit}=80\b.*no config\.json .* for nowhere"):
        require_memory_of(recipe)
    require_memory_of(zero("nowhere", cluster={"trainer": {"ranks": 4}}))


def test_the_refusal_says_how_many_ranks_would_do(tmp_path):
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))

    def sized(ranks, gib):
        trainer = {"ranks": ranks, "gpu_gib": gib}
        sampler = {"samplers": {"urls": ["http://a:8000"]}}
        short = {"rows": 1, "row": 64}
        return zero(tmp_path, cluster=sampler | {"trainer": trainer}, trainer=short)

    with pytest.raises(RecipeError, match="5 times as many ranks would do") as refusal:
        require_memory_of(sized(2, 0.39))
    assert "whole units" in str(refusal.value)
    require_memory_of(sized(10, 0.39))
    with pytest.raises(RecipeError, match="2 times as many ranks"):
        require_memory_of(sized(8, 0.39))
    with pytest.raises(RecipeError, match=r"lower trainer\.rows or trainer\.row"):
        require_memory_of(sized(2, 0.2))


def test_servers_that_sample_are_named_with_the_bytes_that_they_load(tmp_path):
    saved(model_at(tmp_path) / "model.safetensors", a=[1024, 1024])
    urls = ["http://a:8000", "http://b:8000"]
    found = rows(zero(tmp_path, cluster={"samplers": {"urls": urls}}))
    assert found["servers"].startswith("2 vLLM: http://a:8000, http://b:8000; up to 512 requests")
    assert found["servers"].endswith(" each; a server silent for 900 s is left out")
    assert found["weight files"].startswith("4.0 MiB a sync in the run folder")
    assert not {"servers", "weight files"} & rows(zero(tmp_path)).keys()
    sent = rows(zero(tmp_path, cluster={"samplers": {"urls": urls, "weights": "gloo"}}))
    assert sent["weights"].startswith("4.0 MiB a sync through a process group of gloo; 120 s")
    assert "weight files" not in sent


def test_a_bucket_of_weights_is_counted_where_it_lies(tmp_path):
    (model_at(tmp_path) / "config.json").write_text(json.dumps(SHAPE))

    def found(weights):
        return rows(
            zero(tmp_path, cluster={"samplers": {"urls": ["http://a"], "weights": weights}})
        )

    assert BUCKET_BYTES == SENT_BYTES
    ways = ("files", "gloo", "nccl", "ipc")
    whole = {way: amount(found(way)["memory"].removeprefix("at most about ")) for way in ways}
    assert found("gloo")["- weight bucket"] == "256.0 MiB: for gloo, in the host's memory"
    assert found("nccl")["- weight bucket"] == "256.0 MiB: for nccl"
    assert whole["files"] == whole["gloo"]
    assert whole["nccl"] == whole["ipc"] == pytest.approx(whole["files"] + 256, abs=0.2)
    assert "- weight bucket" not in found("files")
    assert found("files")["- sync staging"].endswith("MiB: the largest weight, during sync")


def test_evaluations_at_the_ends_and_between():
    asked = {"problems": 100, "samples": 8, "every": 3, "during": 40}
    said = "100 held-out problems of arithmetic x (8 samples + 1 greedy) at both ends"
    assert rows(zero(evaluation=asked | {"every": 0}))["evaluation"] == said
    assert rows(zero(evaluation=asked))["evaluation"] == (
        f"{said}, 40 of them x 1 sample every 3 steps between, 3 times"
    )
    assert rows(zero(steps=9, evaluation=asked))["evaluation"].endswith("between, 2 times")
    assert "100 of them x 1 sample" in rows(zero(evaluation=asked | {"during": 500}))["evaluation"]


def test_base_arithmetic_by_hand():
    model = {"hidden": 4, "layers": 2, "heads": 2, "feed_forward": 8, "vocabulary": 100_000}
    recipe = BaseRecipe.model_validate(
        {"name": "n", "steps": 1000, "tokens_per_step": 500, "model": model,
         "optimizer": {"learning_rate": 1}}
    )  # fmt: skip
    # 2 * 100000 * 4 of words, twice (4 * 16 + 3 * 32 + 8) of blocks, 4 of the last norm
    assert tiny_parameters(recipe.model) == 800_000 + 2 * 168 + 4
    told = rows(recipe)
    assert told["parameters"] == "800,340"
    assert told["tokens"] == "1,000 steps x 500 = 500,000"
    assert told["arithmetic"] == "6 x parameters x tokens = 2.4 TFLOP"  # 6 * 800340 * 5e5
    assert told["training memory"].startswith("12.2 MiB")  # 16 * 800340 / 2**20


def test_a_tied_head_counts_once():
    tied, free = TinyModel(tied=True), TinyModel()
    assert tiny_parameters(free) - tiny_parameters(tied) == 512 * 96


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard", ["10GB", "60KB"])
def test_parameters_are_those_of_a_real_model(tied, shard, tmp_path):
    from veriloop.stages.base import untrained

    shape = TinyModel(hidden=32, layers=3, heads=2, feed_forward=56, vocabulary=300, tied=tied)
    model = untrained(shape, SimpleNamespace(bos_token_id=0, eos_token_id=1, pad_token_id=2))
    model.save_pretrained(tmp_path, max_shard_size=shard)
    files = list(tmp_path.glob("*.safetensors"))
    real = sum(p.numel() for p in model.parameters())
    assert (len(files) > 1) == (shard == "60KB")
    assert parameters(tmp_path) == tiny_parameters(shape) == real
    assert shape_at(str(tmp_path)).parameters == real


def saved(path, **shapes):
    """A safetensors file as far as its header goes."""
    header = {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_headers_of_the_files_that_are_loaded_are_added_up(tmp_path):
    saved(tmp_path / "a.safetensors", one=[3, 5], scalar=[])
    saved(tmp_path / "b.safetensors", two=[2, 2, 2], empty=[0, 9])
    shards = {"one": "a.safetensors", "scalar": "a.safetensors", "two": "b.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    saved(tmp_path / "consolidated.safetensors", one=[3, 5], scalar=[], two=[2, 2, 2])
    assert parameters(tmp_path) == 15 + 1 + 8 + 0
    saved(tmp_path / "model.safetensors", one=[3, 7])
    assert parameters(tmp_path) == 21
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "b.safetensors").unlink()
    assert parameters(tmp_path) is None
    for content in ("[]", '{"weight_map": {"one": 1}}', "{"):
        index.write_text(content)
        with pytest.raises(RecipeError, match=r"index.json has no weight_map"):
            parameters(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x10", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_that_is_no_safetensors_is_named(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(RecipeError, match=r"model.safetensors has no safetensors header"):
        parameters(tmp_path)


BASE = (
    "stage: base\nname: b\nsteps: 1\noptimizer: {learning_rate: 1}\nmodel: {hidden: 12, heads: 2}"
)


def test_parameters_of_a_base_recipe_and_of_nothing(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    expected = tiny_parameters(TinyModel(hidden=12, heads=2))
    assert shape_at(str(tmp_path / "base.yaml")).parameters == expected
    assert parameters(tmp_path) is None
    assert shape_at(str(tmp_path)) is None and shape_at("nowhere") is None


def test_only_a_base_recipe_can_be_started_from(tmp_path):
    path = tmp_path / "zero.yaml"
    path.write_text(zero().model_dump_json())  # JSON is YAML
    with pytest.raises(RecipeError, match=r"zero.yaml is a recipe for 'zero'; only a base"):
        plan(zero(path))
    with pytest.raises(RecipeError, match=r"no recipe .*none.yaml"):
        plan(zero(tmp_path / "none.yaml"))


CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
# embedding and head, 2 x 4; a layer's 1 + .5 + .5 + 1 of attention and 3 x 2, all of 2**20; norms
COUNT = (8 + 2 * 9) * 2**20 + 5 * 1024
MIB = {"bf16": 2 * COUNT / 2**20, "float32": 4 * COUNT / 2**20}


def amount(told):
    """The MiB that a row of memory begins with."""
    number, unit = told.split(":")[0].split()[:2]
    return float(number.replace(",", "")) * {"MiB": 1, "GiB": 1024}[unit]


def model_at(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


@pytest.mark.parametrize(
    ("tied", "trainer", "second"),
    [(True, {}, True), (False, {}, False), (True, {"lora": {"rank": 2}}, False)],
)
def test_a_second_gradient_of_the_embedding_is_named_where_there_is_one(
    tmp_path, tied, trainer, second
):
    found = rows(zero(model_at(tmp_path, tie_word_embeddings=tied), trainer=trainer))
    said = "with the second gradient of the tied embedding, during update"
    assert (said in found["- logits tiles"]) is second
    assert found["- logits tiles"].endswith("during update")


def test_memory_by_hand_from_a_config_alone(tmp_path):
    sampler = {"engine": "vllm", "dtype": "bfloat16", "cache_gib": 0.5}
    told = rows(zero(model_at(tmp_path), sampler=sampler, trainer={"row": 64, "rows": 2}))
    assert told["parameters"] == f"{COUNT:,}"
    whole = {"- weights": 1, "- gradients": 1, "- optimizer moments": 2, "- reference": 1}
    for name, times in whole.items():
        assert amount(told[name]) == pytest.approx(times * MIB["float32"], abs=0.06), name
    assert amount(told["- sampler weights"]) == pytest.approx(MIB["bf16"], abs=0.06)
    assert told["- sampler cache"] == "512.0 MiB: sampler.cache_gib"
    assert amount(told["- sync staging"]) == 2 * 4  # embedding or head, two bytes a weight
    assert "2 rows, 610 positions" in told["- activations"]  # of 256 + 50 tokens
    parts = [amount(rest) for name, rest in told.items() if name[:2] == "- " and "sync" not in name]
    total = sum(parts) - amount(told["- checkpoint staging"])
    assert amount(told["memory"].removeprefix("at most about ")) == pytest.approx(total, rel=0.01)
    assert told["memory"].endswith("on the trainer's device, during update")


@pytest.mark.parametrize(
    ("changes", "name", "mib"),
    [
        ({"algorithm": {"kl_coefficient": 0}}, "- reference", None),
        ({"algorithm": {"preset": "ppo"}}, "- critic", 2 * (MIB["float32"] - 16)),  # without a head
        ({"algorithm": {"preset": "ppo"}}, "- critic's moments", 2 * (MIB["float32"] - 16)),
        ({"algorithm": {"preset": "ppo"}, "optimizer": {"learning_rate": 1, "moments": "8bit"}},
         "- critic's moments", (MIB["float32"] - 16) / 2 * (1 + 4 / 256)),
        ({"algorithm": {"preset": "ppo_shared"}}, "- critic", None),
        ({"trainer": {"lora": {"rank": 4}}}, "- gradients", 4 * 4 * 2 * 16384 / 2**20),
        ({"trainer": {"lora": {"rank": 4}}}, "- reference", 4 * 4 * 2 * 16384 / 2**20),
        ({"sampler": {"engine": "vllm", "apart": True}}, "- shared weights", MIB["float32"]),
        ({"sampler": {"engine": "vllm"}}, "- shared weights", None),
        # keys and values of two layers, each 512 wide, of 4 sequences of 306 tokens
        ({"sampler": {"engine": "torch", "max_batch": 4}}, "- sampler cache",
         2 * 4 * 2 * 512 * 306 * 4 / 2**20),
        # on a GPU of 512 tokens, two multiples of 256; as many as there is room for
        ({"sampler": {"engine": "torch", "dtype": "bfloat16", "max_batch": 4}}, "- sampler cache",
         2 * 2 * 2 * 512 * 512 * 4 / 2**20),
        ({"sampler": {"engine": "torch", "device": "cuda", "cache_gib": 0.01}}, "- sampler cache",
         2 * 4 * 2 * 512 * 512 * 2 / 2**20),
        ({"sampler": {"engine": "torch", "device": "cuda", "max_batch": 64}}, "- sampler logits",
         4 * 64 * 4096 / 2**20),
        ({"sampler": {"engine": "torch", "device": "cpu"}}, "- sampler logits", None),
        # 18 * 2**20 weights of four and a half bits, and the adapters
        ({"trainer": {"lora": {"rank": 4, "base": "nf4"}}}, "- weights",
         MIB["float32"] - 4 * 18 + 18 * 4.5 / 8 + 4 * 4 * 2 * 16384 / 2**20),
        ({"trainer": {"device": "cpu"}}, "- checkpoint staging", None),
        ({"optimizer": {"learning_rate": 1, "muon_learning_rate": 1}}, "- optimizer moments",
         2 * MIB["float32"] - 4 * 18),
        ({"optimizer": {"learning_rate": 1, "moments": "8bit"}}, "- optimizer moments",
         MIB["float32"] / 2 * (1 + 4 / 256)),
    ],
)  # fmt: skip
def test_a_part_by_hand(changes, name, mib, tmp_path):
    told = rows(zero(model_at(tmp_path), **changes))
    if mib is None:
        assert name not in told
    else:
        assert amount(told[name]) == pytest.approx(mib, abs=0.06)


def test_a_sampler_that_sleeps_is_not_there_in_the_update(tmp_path):
    sampler = {"engine": "vllm", "cache_gib": 64.0}
    awake = rows(zero(model_at(tmp_path), sampler=sampler))
    asleep = rows(zero(model_at(tmp_path), sampler=sampler | {"sleep": True}))
    assert awake["memory"].endswith("during update")
    assert asleep["memory"].endswith("during sampling")
    assert amount(awake["- sampler cache"]) == amount(asleep["- sampler cache"]) == 64 * 1024


def test_a_static_cache_stays_until_its_sampler_sleeps(tmp_path):
    sampler = {"engine": "torch", "device": "cuda", "cache_gib": 64.0}
    awake = rows(zero(model_at(tmp_path), sampler=sampler))
    asleep = rows(zero(model_at(tmp_path), sampler=sampler | {"sleep": True}))
    assert "during" not in awake["- sampler cache"]
    assert asleep["- sampler cache"].endswith("during sampling")


def test_a_cache_on_a_cpu_is_there_in_the_update_where_the_next_step_is_sampled_meanwhile(tmp_path):
    sampler = {"engine": "torch", "device": "cpu"}
    rollout = {"prompts": 6, "per_prompt": 4, "max_tokens": 50}
    plans = [
        rows(zero(model_at(tmp_path), sampler=sampler, rollout={**rollout, "ahead": ahead}))
        for ahead in (0, 1)
    ]
    assert plans[0]["- sampler cache"].endswith("during sampling")
    assert plans[1]["- sampler cache"].endswith("at most")
    cache = amount(plans[1]["- sampler cache"])
    in_turn, at_once = (amount(plan["memory"].removeprefix("at most about ")) for plan in plans)
    assert cache == amount(plans[0]["- sampler cache"]) > 0
    assert plans[1]["memory"].endswith("during update") and at_once > max(in_turn, cache)


def test_a_teacher_and_a_reward_model_are_counted_by_their_own_configs(tmp_path):
    start, other = model_at(tmp_path / "start"), model_at(tmp_path / "other", num_hidden_layers=4)
    larger = 4 * (COUNT + 2 * (9 * 2**20 + 2048)) / 2**20
    distill = {"name": "n", "start": str(start), "optimizer": {"learning_rate": 1}, "steps": 1,
               "method": "on_policy", "teacher": str(other)}  # fmt: skip
    told = rows(DistillRecipe.model_validate(distill))
    assert amount(told["- teacher"]) == pytest.approx(larger, abs=0.06)
    told = rows(DistillRecipe.model_validate(distill | {"trainer": {"compute": "bfloat16"}}))
    assert amount(told["- teacher"]) == pytest.approx(larger / 2, abs=0.06)
    assert f"{other}, bf16" in told["- teacher"]
    general = {"problems": {"general": 1.0}, "reward": {"reward_model": str(other)}}
    told = rows(zero(start, kind=PreferenceRLRecipe, **general))
    assert amount(told["- reward model"]) == pytest.approx(larger - 16, abs=0.06)  # without a head
    (other / "config.json").unlink()
    told = rows(zero(start, kind=PreferenceRLRecipe, **general))
    assert f"without {other}, whose config.json is not found" in told["memory"]


def test_memory_of_preferences_by_hand(tmp_path):
    start = model_at(tmp_path)
    values = {"name": "n", "start": str(start), "optimizer": {"learning_rate": 1e-3}}
    values |= {"data": {"rows": 9, "max_prompt": 100, "max_completion": 301}}
    told = rows(PreferenceRecipe.model_validate(values))
    assert "32 rows, 12,800 positions" in told["- activations"]
    assert not {"- reference", "- sampler weights"} & told.keys()
    online = {"problems": {"arithmetic": 1}, "schedule": {"name": "online"}}
    told = rows(PreferenceRecipe.model_validate(values | online))
    assert amount(told["- reference"]) == pytest.approx(MIB["float32"], abs=0.06)
    assert amount(told["- sampler weights"]) == pytest.approx(MIB["float32"], abs=0.06)


def test_memory_is_unknown_where_the_model_is_not_here():
    told = rows(zero("models/none"))
    assert told["memory"] == "unknown: no config.json of a known layout for models/none"
    assert "parameters" not in told


def test_a_damaged_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RecipeError, match=r"config.json is not JSON"):
        plan(zero(tmp_path))


def test_problems_of_an_evaluation_are_counted_for_each_source():
    asked = {"sources": ["arithmetic", "programs"], "problems": 40, "during": 60, "every": 3}
    told = rows(zero(evaluation=asked))["evaluation"]
    assert told.startswith("40 of each of arithmetic, programs = 80 held-out problems x")
    assert "60 of them x 1 sample every 3 steps" in told


def test_a_source_with_fewer_problems_and_one_without_greedy_answers_are_counted_as_they_are(
    tmp_path,
):
    file = tmp_path / "few.jsonl"
    lines = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(40)]
    file.write_text("\n".join(map(json.dumps, lines)))
    sets = {"few": {"path": str(file), "of": "gsm8k", "held_out": 0.3}}
    asked = {"sources": ["arithmetic", "few"], "problems": 30, "during": 60, "every": 3}
    told = rows(zero(evaluation=asked, sets=sets))["evaluation"]
    held_out = int(told.split()[4])
    total = 30 + held_out
    assert told.startswith(f"30 of arithmetic + {held_out} of few = {total} held-out problems x (")
    assert 0 < held_out < 30 and f"{total} of them x 1 sample every 3 steps" in told
    general = {"sources": ["arithmetic", "general"], "problems": 30}
    told = rows(zero(evaluation=general))["evaluation"]
    assert (
        told.startswith("30 of each of arithmetic, general")
        and "+ 1 greedy except of general)" in told
    )
    alone = rows(zero(evaluation={"sources": ["general"], "problems": 30, "samples": 2}))
    assert alone["evaluation"] == "30 held-out problems of general x 2 samples at both ends"
    hub = {"sources": ["arithmetic", "gsm8k"], "problems": 30}
    told = rows(zero(evaluation=hub))["evaluation"]
    assert told.startswith("at most 30 of each of arithmetic, gsm8k = 60 held-out problems")


def test_the_run_folder_is_reported_when_there_is_one(tmp_path):
    assert rows(zero(), tmp_path)["run folder"] == str(tmp_path)
    assert "run folder" not in rows(zero())


BOTH = "<think> and <answer>"


@pytest.mark.parametrize(
    ("system", "weight", "missing"),
    [
        (None, 1.0, ""),
        ("", 1.0, BOTH),
        ("Be brief.", 0.5, BOTH),
        ("Think inside <think> tags.", 1.0, "<answer>"),
        ("<think>1</think><answer>2</answer>", 1.0, ""),
        ("", 0.0, ""),
    ],
)
def test_a_plan_warns_if_nothing_asks_for_the_rewarded_tags(system, weight, missing):
    rollout = {"prompts": 6, "per_prompt": 4, "max_tokens": 50, "template": "chat"}
    rollout |= {} if system is None else {"system": system}
    told = rows(zero(rollout=rollout, reward={"format": weight}))
    expected = (
        f"reward.format={weight:g}, and no text of template chat asks for {missing}; set "
        "rollout.system: r1, or reward.format: 0"
    )
    assert told.get("warning") == (expected if missing else None)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_the_models_own_template_may_ask_for_them(name, tmp_path):
    rollout = {"prompts": 6, "per_prompt": 4, "max_tokens": 50, "template": "chat", "system": ""}
    assert BOTH in rows(zero(tmp_path, rollout=rollout))["warning"]
    (tmp_path / name).write_text("Answer as <think>1</think><answer>2</answer>.")
    assert "warning" not in rows(zero(tmp_path, rollout=rollout))
    assert "warning" not in rows(zero("recipes/tiny/base.yaml", rollout=rollout))


def test_so_may_a_template_in_a_file(tmp_path):
    path = tmp_path / "mine.jinja"
    rollout = {"prompts": 6, "per_prompt": 4, "max_tokens": 50, "template": str(path)}
    path.write_text("{{ system }} {{ prompt }}")
    assert BOTH in rows(zero(rollout=rollout))["warning"]
    assert "warning" not in rows(zero(rollout=rollout | {"system": "r1"}))
    path.write_text("<think>, then <answer>. {{ prompt }}")
    assert "warning" not in rows(zero(rollout=rollout))


def cold_start(start, teacher, prompt=256, **parts):
    return ColdStartRecipe.model_validate(
        {
            "name": "n",
            "start": str(start),
            "teacher": str(teacher),
            "optimizer": {"learning_rate": 1},
            "collect": {"questions": 8, "max_prompt": prompt},
            "sampler": {"engine": "torch", "max_batch": 4},
            "evaluation": {"sources": ["arithmetic"], "problems": 4},
            "max_tokens": 50,
            **parts,
        }
    )


def test_the_cache_of_a_teacher_has_room_for_the_longest_prompt_and_answer(tmp_path):
    start, teacher = model_at(tmp_path / "start"), model_at(tmp_path / "teacher")
    cache = rows(cold_start(start, teacher, prompt=1000))["- sampler cache"]
    assert cache.endswith("4 sequences of 1,050 tokens at most, during sampling")
    assert amount(cache) == pytest.approx(2 * 4 * 2 * 512 * 1050 * 4 / 2**20, abs=0.06)


def test_the_larger_of_teacher_and_evaluated_student_is_counted(tmp_path):
    start = model_at(tmp_path / "start", num_hidden_layers=8)
    teacher = model_at(tmp_path / "teacher")
    student = 2 * 4 * 8 * 512 * 306 * 4 / 2**20
    cache = rows(cold_start(start, teacher))["- sampler cache"]
    assert amount(cache) == pytest.approx(student, abs=0.06)
    cache = rows(cold_start(start, teacher, examine=False))["- sampler cache"]
    assert amount(cache) == pytest.approx(student / 4, abs=0.06)


def test_a_plan_without_a_teachers_config_says_so(tmp_path):
    table = rows(cold_start(model_at(tmp_path), "nowhere"))
    assert table["memory"].endswith("without nowhere, whose config.json is not found")
    assert table["- sampler cache"].endswith("4 sequences of 306 tokens at most, during sampling")
    table = rows(cold_start(tmp_path, "nowhere", examine=False))
    assert "- sampler cache" not in table
