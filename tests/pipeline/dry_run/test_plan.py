"""The plan's numbers, worked by hand, and parameter counts against models that exist."""

import json
import struct
from types import SimpleNamespace

import pytest

from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import BaseRecipe, TinyModel
from veriloop.pipeline.dry_run.plan import parameters, plan, tiny_parameters
from veriloop.pipeline.errors import RecipeError


def rows(recipe, output=None):
    """The plan as a dict, its rows being `name  value`."""
    lines = [line.strip() for line in plan(recipe, output).splitlines() if line]
    return {name: value.strip() for name, _, value in (line.partition("  ") for line in lines)}


def zero(start="nowhere", steps=10, algorithm=(), **parts):
    return ZeroRecipe.model_validate(
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
    assert told["optimizer steps"] == "3 a rollout of 8 responses each"
    assert told["off-policy depth"].startswith("2 updates")
    assert told["whole run"] == "10 steps = 240 rollouts, 60 prompts, 30 optimizer steps"
    assert told["tokens"] == "at most 1,200 sampled a step, 12,000 in all"


def test_epochs_multiply_the_optimizer_steps():
    told = rows(zero(algorithm={"epochs": 2, "reference_every": 7}))
    assert told["optimizer steps"] == "6 a rollout of 8 responses each, in 2 epochs"
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


def test_a_cluster_is_planned_by_rank(tmp_path):
    saved(tmp_path / "model.safetensors", a=[1024, 1024])
    found = rows(zero(tmp_path, cluster={"trainer": {"nodes": 2, "ranks": 4}}))
    launcher = "torchrun --nnodes 2 --nproc-per-node 4 -m veriloop"
    assert found["cluster"].startswith(f"2 x 4 = 8 ranks; on each machine `{launcher}`")
    # (16 + 4) * 2^20 / 8 / 2^20: policy and reference, over 8
    assert found["a rank holds"].startswith(
        "2.5 MiB in shards (weights, gradients, two moments: 16"
    )
    assert "4.0 MiB while the start loads" in found["a rank holds"]
    assert found["weight sync"].startswith("4.0 MiB gathered tensor by tensor, 4.0 MiB to")
    assert not {"cluster", "a rank holds", "weight sync"} & rows(zero(tmp_path)).keys()


def test_evaluations_at_the_ends_and_between():
    asked = {"problems": 100, "samples": 8, "every": 3, "during": 40}
    said = "100 held-out problems x (8 samples + 1 greedy) at both ends"
    assert rows(zero(evaluation=asked | {"every": 0}))["evaluation"] == said
    assert rows(zero(evaluation=asked))["evaluation"] == (
        f"{said}, 40 x 1 sample every 3 steps between, 3 times"
    )
    assert rows(zero(steps=9, evaluation=asked))["evaluation"].endswith("between, 2 times")
    assert "100 x 1 sample" in rows(zero(evaluation=asked | {"during": 500}))["evaluation"]


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
    assert parameters(str(tmp_path)) == tiny_parameters(shape) == real


def saved(path, **shapes):
    """A safetensors file as far as its header goes."""
    header = {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_headers_are_added_up(tmp_path):
    saved(tmp_path / "a.safetensors", one=[3, 5], scalar=[])
    saved(tmp_path / "b.safetensors", two=[2, 2, 2], empty=[0, 9])
    assert parameters(str(tmp_path)) == 15 + 1 + 8 + 0


@pytest.mark.parametrize("content", [b"", b"\x10", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_that_is_no_safetensors_is_named(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(RecipeError, match=r"model.safetensors has no safetensors header"):
        parameters(str(tmp_path))


BASE = (
    "stage: base\nname: b\nsteps: 1\noptimizer: {learning_rate: 1}\nmodel: {hidden: 12, heads: 2}"
)


def test_parameters_of_a_base_recipe_and_of_nothing(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    expected = tiny_parameters(TinyModel(hidden=12, heads=2))
    assert parameters(str(tmp_path / "base.yaml")) == expected
    assert parameters(str(tmp_path)) is None and parameters("nowhere") is None


def test_only_a_base_recipe_can_be_started_from(tmp_path):
    path = tmp_path / "zero.yaml"
    path.write_text(zero().model_dump_json())  # JSON is YAML
    with pytest.raises(RecipeError, match=r"zero.yaml is a recipe for 'zero'; only a base"):
        plan(zero(path))
    with pytest.raises(RecipeError, match=r"no recipe .*none.yaml"):
        plan(zero(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("changes", "per", "mib"),
    [
        ({}, 24, 24 + 512),
        ({"algorithm": {"kl_coefficient": 0}}, 20, 20 + 512),
        ({"sampler": {"cache_gib": 0.25, "dtype": "bfloat16"}}, 22, 22 + 256),
        ({"trainer": {"lora": {"rank": 4}}}, 8, 8 + 512),
    ],
)
def test_memory_by_hand(changes, per, mib, tmp_path):
    saved(tmp_path / "model.safetensors", weight=[1024, 1024])  # one MiB for each of its bytes
    told = rows(zero(tmp_path, **({"sampler": {"cache_gib": 0.5}} | changes)))
    assert told["parameters"] == "1,048,576"
    assert told["memory"].startswith(f"{per} bytes a parameter")
    assert f"= {mib:,}.0 MiB" in told["memory"]


@pytest.mark.parametrize(("rank", "per"), [(0, 16), (4, 4)])
def test_memory_of_preferences_by_hand(rank, per, tmp_path):
    saved(tmp_path / "model.safetensors", weight=[1024, 1024])
    values = {"name": "n", "start": str(tmp_path), "optimizer": {"learning_rate": 1e-3}}
    made = PreferenceRecipe.model_validate(values | {"trainer": {"lora": {"rank": rank}}})
    assert f"= {per}.0 MiB" in rows(made)["memory"]


def test_memory_is_unknown_where_the_model_is_not_here():
    told = rows(zero("models/none"))
    assert told["memory"] == "unknown: models/none is not found"
    assert "parameters" not in told


def test_the_run_folder_is_told_when_there_is_one(tmp_path):
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
