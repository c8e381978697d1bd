"""Checkpoints that are not whole are refused by name, before a step is taken."""

import json
import pickle
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.loading import BadCheckpointError, load_whole
from veriloop.pipeline.model.policy import load_generation_config, load_policy, load_tokenizer
from veriloop.pipeline.model.scalar_head import ScalarHead, load_classifier
from veriloop.pipeline.model.shard_loading import fill, is_empty
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.stages.cli import main

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
HEAD, NORM = "lm_head.weight", "model.norm.weight"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def tensors(change):
    """Function: change the tensors of a checkpoint."""

    def damage(folder):
        weights = load_file(folder / WEIGHTS)
        change(weights)
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return damage


def config(**changes):
    """Function: change the config of a checkpoint."""

    def damage(folder):
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | changes))

    return damage


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def cut(folder):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-100])


def sharded(folder, *, second=True, listed=None):
    """Split the weights in two shards; `listed` is the name that the index adds to the second."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    last = {NORM: weights.pop(NORM)}
    save_file(weights, folder / SHARDS[0], {"format": "pt"})
    if second:
        save_file(last, folder / SHARDS[1], {"format": "pt"})
    places = dict.fromkeys(weights, SHARDS[0]) | dict.fromkeys(last, SHARDS[1])
    places |= {listed: SHARDS[1]} if listed else {}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def doubled(change=lambda weights: None, **places):
    """Function: add shards to a single file of weights, which is then changed."""

    def damage(folder):
        weights = load_file(folder / WEIGHTS)
        sharded(folder, **places)
        change(weights)
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return damage


def bad_index(folder):
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"metadata": {}}))


def without(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def one_value(name, value):
    return tensors(lambda weights: weights[name].view(-1)[3].fill_(value))


BAD = {  # what is wrong: (damage, what the message names)
    "a head is missing": (tensors(lambda w: w.pop(HEAD)), f"lacks {HEAD}, which config.json"),
    "two tensors are missing": (
        tensors(lambda w: (w.pop(NORM), w.pop(HEAD))),
        f"lacks {HEAD}, {NORM}, which config.json",
    ),
    "a whole layer is missing": (config(num_hidden_layers=3), "layers.2"),
    "a tensor is left over": (
        tensors(lambda w: w.update({"value_head.weight": torch.ones(3)})),
        "holds value_head.weight",
    ),
    "a layer is left over": (config(num_hidden_layers=1), "holds model.layers.1."),
    "a tensor has another shape": (
        tensors(lambda w: w.update({HEAD: torch.ones(3, 64)})),
        "lm_head.weight has shape [3, 64]; config.json expects [400, 64]",
    ),
    "another vocabulary in the config": (config(vocab_size=300), "expects [300, 64] (1 more"),
    "NaN": (one_value(NORM, float("nan")), f"{NORM} hold NaN or infinite weights"),
    "infinity": (one_value(HEAD, float("-inf")), f"{HEAD} hold NaN or infinite weights"),
    "integers": (
        tensors(lambda w: w.update({NORM: w[NORM].to(torch.int32)})),
        f"{NORM} hold I32 and config.json has no quantization_config",
    ),
    "8 bits without scales": (
        tensors(lambda w: w.update({k: v.to(torch.float8_e4m3fn) for k, v in w.items()})),
        "hold F8_E4M3 and config.json",
    ),
    "adapters alone": (text("adapter_config.json", "{}"), "adapters that belong to another"),
    "cut short": (cut, "model.safetensors ("),
    "an empty file": (text(WEIGHTS, ""), "model.safetensors (0 bytes)"),
    "a pointer of Git LFS": (text(WEIGHTS, "version https://git-lfs.github.com/spec/v1"), "LFS"),
    "no weights": (without(WEIGHTS), "no weights in it; expected model.safetensors"),
    "a shard is missing": (lambda f: sharded(f, second=False), f"lists {SHARDS[1]}, which"),
    "a shard lacks a tensor": (
        lambda f: sharded(f, listed="another.weight"),
        f"{SHARDS[1]} lacks another.weight",
    ),
    "an index without a map": (bad_index, "has no `weight_map`"),
    "shards of another save": (
        doubled(lambda w: w.update({NORM: w[NORM] + 1})),
        f"{WEIGHTS} and the shards of {INDEX} differ in {NORM}. {WEIGHTS} or {INDEX} is left over",
    ),
    "shards in another precision": (
        doubled(lambda w: w.update({HEAD: w[HEAD].bfloat16()})),
        f"{WEIGHTS} and the shards of {INDEX} differ in {HEAD}.",
    ),
    "shards with another tensor": (doubled(lambda w: w.pop(HEAD)), f"differ in {HEAD}."),
    "an index of shards that are gone": (
        doubled(second=False),
        f"lists {SHARDS[1]}, which are missing, with 1 tensors such as {NORM}. {WEIGHTS} or",
    ),
    "a config that is no JSON": (text("config.json", '{"model_type": '), "config.json is not JSON"),
    "a config that is a list": (text("config.json", "[]"), "config.json holds []"),
    "a config without a model": (text("config.json", "{}"), "does not load (ValueError: Unrec"),
    "an unknown architecture": (config(model_type="nope"), "model type `nope`"),
    "a generation config that is no JSON": (text("generation_config.json", "{"), "is not JSON"),
}
BAD_TOKENIZERS = {
    "no tokenizer": without("tokenizer.json", "tokenizer_config.json"),
    "no vocabulary": without("tokenizer.json"),
    "a vocabulary cut short": text("tokenizer.json", '{"version": "1.0", "added'),
}


@pytest.fixture
def damaged(tiny_checkpoint, tmp_path):
    """Function: a damaged copy of the checkpoint."""

    def copy(damage):
        folder = tmp_path / "bad"
        shutil.copytree(tiny_checkpoint(), folder)
        damage(folder)
        return folder

    return copy


@pytest.fixture
def zero(tmp_path, one_pool):
    """Function: the exit code of one step of R1-Zero from a folder."""
    values = {
        "stage": "zero",
        "name": "test",
        "steps": 1,
        "rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 4},
        "optimizer": {"learning_rate": 0.01},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 2, "samples": 1},
        "tensorboard": False,
    }
    recipe = tmp_path / "recipe.yaml"

    def run(start):
        recipe.write_text(yaml.safe_dump({**values, "start": "nowhere"}))
        words = ["zero", str(recipe), "--start", str(start), "--output", str(tmp_path / "run")]
        return main(words)

    return run


def refused(error, folder, named):
    """Whether the message is one paragraph with the folder, what is wrong and a next step."""
    assert str(folder) in error and named in error and "Traceback" not in error
    assert error.rstrip().count("\n") == 0 and error.count(". ") >= 1
    return True


def read_by_rows(folder):
    """The policy as a rank reads it."""
    model = load_policy(folder, empty=True)
    if is_empty(model):
        fill(model, torch.device("cpu"))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_policy, read_by_rows])
@pytest.mark.parametrize("case", BAD)
def test_a_checkpoint_that_is_not_whole_is_refused_by_name(damaged, case, load):
    damage, named = BAD[case]
    folder = damaged(damage)
    with pytest.raises(RecipeError) as raised:
        load(folder)
    assert refused(str(raised.value), folder, named)


QUICK = ("cut short", "no weights", "no tokenizer")  # loading is tried with every case above


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow)
     for case in (*BAD, *BAD_TOKENIZERS)],
)  # fmt: skip
def test_a_run_does_not_start_from_a_bad_checkpoint(damaged, zero, capsys, tmp_path, case):
    damage, named = BAD.get(case) or (BAD_TOKENIZERS[case], "its tokenizer does not load")
    folder = damaged(damage)
    capsys.readouterr()  # the bar of writing it
    assert zero(folder) == 2
    assert refused(capsys.readouterr().err, folder, named)
    assert not (tmp_path / "run" / "zero" / "metrics.jsonl").exists()


@pytest.mark.parametrize("case", BAD_TOKENIZERS)
def test_a_tokenizer_that_is_absent_or_damaged_is_refused(damaged, case):
    folder = damaged(BAD_TOKENIZERS[case])
    with pytest.raises(RecipeError) as raised:
        load_tokenizer(folder)
    assert refused(str(raised.value), folder, "its tokenizer does not load")


@pytest.mark.parametrize("case", ["cut short", "no weights", "a shard is missing"])
def test_an_engine_in_a_process_of_its_own_is_not_started(damaged, case):
    config = SamplerConfig(engine="torch", apart=True)
    with pytest.raises(RecipeError, match=r"bad: "):
        open_sampler(config, str(damaged(BAD[case][0])), max_length=64, say=print)


def test_the_message_survives_the_way_from_another_process():
    error = BadCheckpointError("models/x", "lacks a tensor")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


WHOLE = {
    "as saved": lambda _: None,
    "shards": sharded,
    "the same shards beside the single file": doubled(),
    "an index of the single file": lambda folder: (folder / INDEX).write_text(
        json.dumps({"weight_map": dict.fromkeys(load_file(folder / WEIGHTS), WEIGHTS)})
    ),
    "no generation config": without("generation_config.json"),
    "PyTorch's own format": lambda folder: (
        torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin"),
        (folder / WEIGHTS).unlink(),
    ),
    "bfloat16": tensors(lambda w: w.update({k: v.bfloat16() for k, v in w.items()})),
    "frequencies that older releases saved": tensors(
        lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)})
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_checkpoint_loads_also_by_rows(damaged, case):
    folder = damaged(WHOLE[case])
    model, by_rows = load_policy(folder), read_by_rows(folder)
    assert model.training and by_rows.training
    for name, weight in model.state_dict().items():
        assert torch.equal(by_rows.state_dict()[name], weight), name
    assert by_rows.generation_config.to_dict() == model.generation_config.to_dict()


def test_a_tied_head_is_not_missing(tiny_checkpoint):
    model = load_policy(tiny_checkpoint(tied=True))
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.fixture
def classifier(tiny_classifier, tmp_path):
    return shutil.copytree(tiny_classifier, tmp_path / "bad")


def test_a_reward_model_without_its_head_is_refused(classifier):
    ScalarHead(classifier)
    tensors(lambda w: w.pop("score.weight"))(classifier)
    with pytest.raises(RecipeError, match=r"lacks score\.weight"):
        ScalarHead(classifier)
    with pytest.raises(RecipeError, match=r"lacks score\.weight"):
        load_classifier(classifier, load_tokenizer(classifier))


def test_a_language_model_is_no_reward_model(tiny_checkpoint):
    with pytest.raises(RecipeError, match=r"lacks score\.weight"):
        ScalarHead(tiny_checkpoint())


def test_a_reward_model_is_no_policy(classifier):
    with pytest.raises(RecipeError, match=r"lacks lm_head\.weight"):
        load_policy(classifier)


def test_a_new_head_does_not_excuse_another_missing_tensor(damaged):
    folder = damaged(BAD["a whole layer is missing"][0])
    with pytest.raises(RecipeError, match=r"layers\.2"):
        load_classifier(folder, load_tokenizer(folder))


def test_a_package_that_a_checkpoint_needs_is_named(tiny_checkpoint):
    class Kind:
        @staticmethod
        def from_pretrained(*_, **__):
            raise ImportError("4-bit quantization requires bitsandbytes")

    with pytest.raises(RecipeError, match=r"does not load \(ImportError: 4-bit .*bitsandbytes\)"):
        load_whole(Kind, tiny_checkpoint())


def test_a_config_that_is_wrong_is_not_blamed_on_the_tokenizer(damaged):
    with pytest.raises(RecipeError, match=r"config\.json does not load \(.*hidden_size"):
        load_tokenizer(damaged(config(hidden_size="64")))


@pytest.mark.parametrize("ends", ["x", [2, "x"], [2, True], 2.5])
def test_ids_that_end_a_response_are_numbers(damaged, ends):
    folder = damaged(text("generation_config.json", json.dumps({"eos_token_id": ends})))
    with pytest.raises(RecipeError, match=r"generation_config\.json (has|does not load)"):
        load_generation_config(folder)


def test_a_model_without_an_end_of_a_response_samples_nothing(tiny_checkpoint):
    tokenizer = load_tokenizer(tiny_checkpoint())
    tokenizer.eos_token, tokenizer.chat_template = None, None
    with pytest.raises(RecipeError, match="no token ends a response"):
        RolloutGenerator(tokenizer, GenerationConfig())


def test_a_response_beyond_the_positions_of_the_model_is_refused(tiny_checkpoint):
    sampler = TorchSampler(str(tiny_checkpoint()))
    sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=100_000, seed=0)
    with pytest.raises(RecipeError, match=r"max_tokens=100000 it exceeds the model's.*max_prompt"):
        sampler.sample([(1, 2)], sampling)
