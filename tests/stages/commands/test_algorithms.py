"""`veriloop algorithms` tells what each preset is made of, and what it takes."""

from typing import get_args

import pytest

from veriloop.pipeline.config.preference import REFERENCE_FREE, LossName
from veriloop.pipeline.config.presets import PREFERENCES, PRESETS
from veriloop.pipeline.dry_run.memory import bytes_per_parameter, parse_size
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.cli import main
from veriloop.stages.commands.algorithms import command


def test_every_preset_is_listed_with_its_idea_and_its_paper(capsys):
    assert main(["algorithms"]) == 0
    told = capsys.readouterr().out
    for name, preset in (PRESETS | PREFERENCES).items():
        assert f"\n{name}: {preset.idea}\n" in told and preset.paper in told


def test_compositions_name_what_sets_presets_apart(capsys):
    command(["algorithms"])
    told = {block.split(":")[0]: block for block in capsys.readouterr().out.strip().split("\n\n")}
    assert "advantage: gae, critic: separate, objective: clip" in told["ppo"]
    assert "critic: shared" in told["ppo_shared"]
    assert "KL: 0.001 k1 in the reward" in told["reinforce_pp"]
    assert "clip: 0.2/0.28" in told["dapo"] and "refills: 3" in told["dapo"]
    assert "pre-training: 0.1" in told["ppo_ptx"] and "trust region: 0.01" in told["line_search"]
    assert "KL" not in told["dr_grpo"].split("mean over")[0]


def test_preference_losses_are_those_of_the_recipes_with_their_data_and_references(capsys):
    assert set(PREFERENCES) == set(get_args(LossName))
    free = {name for name, one in PREFERENCES.items() if "reference" not in one.models}
    assert free == set(REFERENCE_FREE)
    command(["algorithms"])
    told = capsys.readouterr().out
    assert "  data: unpaired answers\n" in told and "  data: pairs\n" in told
    assert told.count("  data: online, ") == len(PRESETS)


def test_memory_by_hand(capsys):
    """bf16 with AdamW: 2 weights, 2 gradients, 8 moments, 4 master weights; others 2."""
    command(["algorithms", "--model-size", "1073741824"])  # 2^30: a byte is a GiB
    told = capsys.readouterr().out
    assert "memory 18.0 GiB: policy 16.0, reference 2.0" in told  # grpo
    assert "memory 32.0 GiB: policy 16.0, critic 16.0" in told  # ppo
    assert "memory 16.0 GiB: policy 16.0\n" in told  # dr_grpo, and a shared critic


@pytest.mark.parametrize(
    ("model", "dtype", "optimizer", "size"),
    [
        ("policy", "float32", "adamw", 16),
        ("policy", "bf16", "sgd", 8),
        ("critic", "bf16", "adamw8bit", 10),
        ("reference", "float32", "adamw", 4),
        ("reward model", "bf16", "muon", 2),
    ],
)
def test_bytes_per_parameter(model, dtype, optimizer, size):
    assert bytes_per_parameter(model, dtype, optimizer) == size


@pytest.mark.parametrize(("size", "count"), [("7B", 7 * 10**9), ("0.5m", 500_000), ("12", 12)])
def test_sizes_are_read_as_people_write_them(size, count):
    assert parse_size(size) == count


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model-size", "big"), "no number of parameters; such as 7B"),
        (("--model-size=-3B",), "no number of parameters"),
        (("--dtype", "bf61"), "no dtype 'bf61'. Did you mean 'bf16'?"),
        (("--optimizer", "adam"), "no optimizer 'adam'. Did you mean 'adamw'?"),
    ],
)
def test_what_is_no_size_type_or_optimizer_is_refused(words, said):
    with pytest.raises(RecipeError) as refusal:
        command(["algorithms", *words])
    assert said in str(refusal.value)
