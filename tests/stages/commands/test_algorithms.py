"""`veriloop algorithms` tells which models each algorithm needs, and compares them in words."""

import re
from typing import get_args

import pytest

from veriloop.pipeline.config.comparison import COMPARISONS
from veriloop.pipeline.config.distill import Method
from veriloop.pipeline.config.preference import REFERENCE_FREE, LossName
from veriloop.pipeline.config.presets import DISTILLATIONS, PREFERENCES, PRESETS
from veriloop.pipeline.dry_run.memory import bytes_per_parameter, parse_size
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.cli import main
from veriloop.stages.commands.algorithms import ALL, command

GIB_EACH = ("--model-size", "1073741824")  # 2^30 parameters: a byte of each is a GiB


@pytest.fixture
def printed(capsys):
    def run(*words):
        assert command(["algorithms", *words]) == 0
        return capsys.readouterr().out

    return run


def row(table, name):
    """The folded row of a table, in one line."""
    (lines,) = re.findall(rf"^{name} .*\n(?: .*\n)*", table, re.MULTILINE)
    return lines


def described(printed, name, *words):
    """The facts of one algorithm, each in one line."""
    text = re.sub(r"\n +", " ", printed("--describe", name, *words))
    return dict(re.split(" {2,}", line, maxsplit=1) for line in text.splitlines())


def test_every_algorithm_has_its_row_in_both_tables(capsys):
    for words in (["algorithms"], ["algorithms", "--compare"]):
        assert main(words) == 0
        table = capsys.readouterr().out
        for name in (*PRESETS, *PREFERENCES, *DISTILLATIONS):
            assert row(table, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [(), ("--reward", "reward_model"), ("--compare",), *(("--describe", n) for n in ALL)],
    ids=" ".join,
)
def test_tables_fit_a_hundred_columns(printed, words):
    assert max(map(len, printed(*words).splitlines())) <= 100


@pytest.mark.parametrize("name", ALL)
def test_a_description_holds_all_that_is_known_of_an_algorithm(printed, name):
    facts = described(printed, name)
    words = COMPARISONS[name]
    assert (facts[name], facts["paper"]) == (ALL[name].idea, ALL[name].paper)
    assert facts["data"] == ALL[name].data
    assert (facts["needs"], facts["strengths"]) == (words.needs, words.strengths)
    assert (facts["weaknesses"], facts["use it for"]) == (words.weaknesses, words.use)


def test_a_preset_that_is_not_yet_compared_is_shown_with_where_to_write_its_texts(
    printed, monkeypatch
):
    written = {name: texts for name, texts in COMPARISONS.items() if name != "dapo"}
    monkeypatch.setattr("veriloop.pipeline.config.comparison.COMPARISONS", written)
    wanted = "not described: add an entry to COMPARISONS in pipeline/config/comparison.py"
    facts = described(printed, "dapo")
    assert facts["needs"] == wanted and facts["paper"] == PRESETS["dapo"].paper
    assert not {"strengths", "weaknesses", "use it for"} & set(facts)
    assert "".join(row(printed("--compare"), "dapo").split()) == "".join(["dapo", *wanted.split()])


def test_every_algorithm_is_compared_and_nothing_else():
    assert list(COMPARISONS) == list(ALL)
    assert len(set(COMPARISONS.values())) == len(ALL)


def test_compositions_name_what_sets_presets_apart(printed):
    parts = {name: described(printed, name)["parts"] for name in PRESETS}
    assert "advantage: gae, critic: separate, objective: clip" in parts["ppo"]
    assert "critic: shared" in parts["ppo_shared"]
    assert "KL: 0.001 k1 in the reward" in parts["reinforce_pp"]
    assert "clip: 0.2/0.28" in parts["dapo"] and "refills: 3" in parts["dapo"]
    assert "pre-training: 0.1" in parts["ppo_ptx"] and "trust region: 0.01" in parts["line_search"]
    assert "KL" not in parts["dr_grpo"]


def test_losses_and_methods_are_those_of_the_recipes():
    assert set(PREFERENCES) == set(get_args(LossName))
    free = {name for name, preset in PREFERENCES.items() if "reference" not in preset.models}
    assert free == set(REFERENCE_FREE)
    assert set(DISTILLATIONS) == set(get_args(Method))


@pytest.mark.parametrize(
    ("name", "words", "memory", "in_advance"),
    [  # bf16 with AdamW: 2 weights, 2 gradients, 8 moments, 4 master weights; others 2
        ("grpo", (), "18.0 GiB: policy 16.0, reference 2.0", None),
        ("ppo", (), "32.0 GiB: policy 16.0, critic 16.0", None),
        ("ppo_shared", (), "16.0 GiB: policy 16.0", None),
        ("ppo_ptx", ("--reward", "reward_model"),
         "36.0 GiB: policy 16.0, reference 2.0, critic 16.0, reward model 2.0", None),
        ("grpo", ("--reward", "judge"), "20.0 GiB: policy 16.0, reference 2.0, judge 2.0", None),
        ("dpo", ("--reward", "reward_model"), "16.0 GiB: policy 16.0", "reference"),
        ("logits", (), "16.0 GiB: policy 16.0", "teacher"),
        ("on_policy", (), "18.0 GiB: policy 16.0, teacher 2.0", None),
        ("sft", (), "16.0 GiB: policy 16.0", None),
    ],
)  # fmt: skip
def test_memory_by_hand(printed, name, words, memory, in_advance):
    facts = described(printed, name, *GIB_EACH, *words)
    assert facts["memory"] == memory and facts.get("in advance") == in_advance


def test_the_table_counts_the_models_that_training_holds(printed):
    table = printed(*GIB_EACH, "--reward", "reward_model")
    assert re.search(r" 4 +36\.0$", row(table, "ppo_ptx"), re.MULTILINE)
    assert re.search(r" policy, \(reference\) +1 +16\.0$", row(table, "dpo"), re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "reward", "source"),
    [
        ("grpo", "verifier", "verifier"),
        ("grpo", "reward_model", "reward model"),
        ("grpo_process", "verifier", "verifier, verifier of steps"),
        ("grpo_process", "judge", "judge, process reward model"),
        ("kto", "judge", "the data"),
        ("on_policy", "judge", "teacher"),
    ],
)
def test_the_source_of_the_reward_is_named(printed, name, reward, source):
    assert described(printed, name, "--reward", reward)["reward"] == source


@pytest.mark.parametrize(
    ("model", "dtype", "optimizer", "size"),
    [
        ("policy", "float32", "adamw", 16),
        ("policy", "bf16", "sgd", 8),
        ("critic", "bf16", "adamw8bit", 10),
        ("critic", "float32", "muon", 16),  # by AdamW
        ("policy", "float32", "muon", 12),
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
        (("--model-size", "1e400"), "no number of parameters"),  # an infinite float
        (("--dtype", "bf61"), "no dtype 'bf61'. Did you mean 'bf16'?"),
        (("--optimizer", "adam"), "no optimizer 'adam'. Did you mean 'adamw'?"),
        (("--describe", "grop"), "no algorithm 'grop'. Did you mean 'grpo'?"),
    ],
)
def test_what_is_no_size_type_optimizer_or_name_is_refused(words, said):
    with pytest.raises(RecipeError) as refusal:
        command(["algorithms", *words])
    assert said in str(refusal.value)
