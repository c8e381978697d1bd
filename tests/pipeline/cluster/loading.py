"""Called on every rank: compares what several ranks read of checkpoints with what one process
loads."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from tests.pipeline.cluster.ranks import joint_gap, write_differences
from veriloop.data.preference_ids import EncodedAnswer
from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.model.loading import SINGLE, BadCheckpointError
from veriloop.pipeline.model.policy import MASTERS, load_policy, saved_weights
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.model.reference import Reference, fingerprint
from veriloop.pipeline.model.scalar_head import load_classifier, saved_classifier
from veriloop.pipeline.model.shard_loading import is_empty
from veriloop.pipeline.model.sharded import SINGLE as ONE
from veriloop.pipeline.model.sharded import alone, sharded_state, whole, whole_state
from veriloop.pipeline.preference import reward_training
from veriloop.pipeline.rl.critic import Critic
from veriloop.pipeline.sft import step as sft_step

RATE = OptimizerConfig(learning_rate=0.1)

VOCABULARY = 97  # odd, as the width: the ranks' shares are uneven
CASES = {
    "plain": {},
    "tied": {"tied": True},
    "files of an index, in bfloat16": {"dtype": torch.bfloat16, "max_shard_size": "12KB"},
    "masters": {"dtype": torch.bfloat16, "masters": True},
    "adapters": {"trainer": {"lora": {"rank": 2}}, "resumes": False},
    "a new head": {"kind": "new head", "resumes": False},
    "a trained head": {"kind": "trained head"},
    "not finite": {"broken": True},
}


def config_of(tied):
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=15,
        intermediate_size=23,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=10,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=tied,
        pad_token_id=0,
    )


def saved(folder, seed, settings):
    """Write a checkpoint of random weights."""
    from transformers import Qwen2ForCausalLM, Qwen2ForSequenceClassification

    config, kind = config_of(settings.get("tied", False)), Qwen2ForCausalLM
    if settings.get("kind") == "trained head":
        config.num_labels, kind = 1, Qwen2ForSequenceClassification
    torch.manual_seed(seed)
    model = kind(config).to(settings.get("dtype", torch.float32))
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:  # at birth all are equal
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    model.save_pretrained(folder, max_shard_size=settings.get("max_shard_size", "5GB"))
    if dist.get_rank():
        return
    if settings.get("masters"):
        (folder / MASTERS).mkdir()
        masters = {name: p.detach() + 0.001 for name, p in model.float().named_parameters()}
        save_file(masters, folder / MASTERS / SINGLE)
    if settings.get("broken"):
        weights = load_file(folder / SINGLE)
        weights["model.layers.1.mlp.up_proj.weight"][-1, 3] = float("nan")  # on the last rank
        save_file(weights, folder / SINGLE, {"format": "pt"})


def loaded(folder, settings, *, empty):
    trainer = TrainerConfig(device="cpu", row=16, rows=2, **settings.get("trainer", {}))
    torch.manual_seed(5)  # of a new head
    if "kind" in settings:
        tokenizer = SimpleNamespace(pad_token_id=0)
        return prepare(load_classifier(folder, tokenizer, empty=empty), trainer), trainer
    return prepare(load_policy(folder, empty=empty), trainer), trainer


def gradients(model, trainer, ranks):
    """Of two small batches on this rank's part of the model, by its objective."""
    prompts = [(5, 9, 11), (7, 3)]
    if model.get_output_embeddings() is None:
        recipe = RewardModelRecipe.model_validate(
            {"name": "t", "start": "given", "optimizer": {"learning_rate": 1e-3}}
        ).model_copy(update={"trainer": trainer})
        pairs = [
            tuple(
                EncodedAnswer(prompt=prompt, completion=(20 + i, 21, 22), segments=(0, 0, 0))
                for i in range(2)
            )
            for prompt in prompts
        ]
        reward_training.gradient(model, pairs, recipe, ranks)
    else:
        rows = [
            EncodedExample(ids=(*p, 30, 31, 32), learned=(False,) * len(p) + (True,) * 3)
            for p in prompts
        ]
        sft_step.gradient(model, rows, trainer, ranks)
    return [whole(p.grad).clone() for p in model.parameters() if p.requires_grad]


def resumed(model, folder, settings):
    """Load the weights of a checkpoint of the model into it."""
    if "kind" in settings:
        weights = saved_classifier(model, folder, SimpleNamespace(pad_token_id=0))
    else:
        weights = saved_weights(model, folder)
    model.load_state_dict(sharded_state(model, weights))


def same(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def message(load):
    """What a checkpoint is refused with."""
    try:
        load()
    except BadCheckpointError as refusal:
        return str(refusal)
    return ""


def compare(case, group):
    """{quantity: largest difference of a rank} on rank 0."""
    settings = CASES[case]
    with TemporaryDirectory() as root:
        folders = [Path(root) / "start", Path(root) / "later"]
        for seed, folder in enumerate(folders):  # other ranks do not save
            saved(folder, seed, settings)
        dist.broadcast_object_list(folders)
        if settings.get("broken"):
            results = refused_as_by_one(folders[0], settings, group)
        else:
            results = as_one(*folders, settings, group)
        ranks = group.collect(results)  # rank 0 removes its folder when all are done
    return {key: max(each[key] for each in ranks) for key in results} if ranks else {}


def refused_as_by_one(start, settings, group):
    model, _ = loaded(start, settings, empty=True)
    said = message(partial(group.shard, model))
    with alone():
        expected = message(partial(loaded, start, settings, empty=False))
    assert "up_proj" in expected
    return {"gradient": 0, "other message": said != expected}


def as_one(start, later, settings, group):
    model, trainer = loaded(start, settings, empty=True)
    assert is_empty(model)
    random = torch.get_rng_state()
    copy = None if "kind" in settings else Reference(model, 0, group)
    critic = Critic(model, own_trunk=True, optimizer=RATE, ranks=group)
    group.shard(model)
    assert not is_empty(model)
    with alone():
        expected, _ = loaded(start, settings, empty=False)
    weights, slopes = whole_state(model), gradients(expected, trainer, ONE)
    result = {
        "no gradient": not any(slope.abs().sum() > 0 for slope in slopes),
        "other random numbers": not torch.equal(random, torch.get_rng_state()),
        "other weights": not same(weights, expected.state_dict()),
        "other buffers": not same(dict(model.named_buffers()), dict(expected.named_buffers())),
        "other fingerprint": fingerprint(model) != fingerprint(expected),
        "other reference": copy is not None and copy.fingerprint != fingerprint(expected),
        "other critic": not same(whole_state(critic.trunk), expected.base_model.state_dict()),
        "other config": model.config.to_dict() != expected.config.to_dict(),
        "gradient": joint_gap(slopes, gradients(model, trainer, group)),
    }
    if "kind" not in settings:
        measured = output_head(model)[2:] == output_head(expected)[2:]
        generation = model.generation_config.to_dict() == expected.generation_config.to_dict()
        result |= {"other head": not measured, "other generation": not generation}
    if settings.get("kind") == "trained head":
        result["other critic's start"] = not started_as_one(start, trainer, group)
    if "resumes" not in settings:
        resumed(model, later, settings)
        with alone():
            resumed(expected, later, settings)
        result["other resumption"] = not same(whole_state(model), expected.state_dict())
        result["nothing resumed"] = same(weights, expected.state_dict())
    return result


def started_as_one(folder, trainer, group):
    """Whether a critic that starts from a reward model on the ranks is that of one process."""
    critics = []
    for ranks in (group, ONE):
        with alone() if ranks is ONE else nullcontext():
            tokenizer, empty = SimpleNamespace(pad_token_id=0), ranks is group
            judge = prepare(
                load_classifier(folder, tokenizer, new_head=False, empty=empty), trainer
            )
            start = SimpleNamespace(model=judge, zero_point=0.25)
            critics.append(Critic(judge, own_trunk=False, optimizer=RATE, start=start, ranks=ranks))
    own, expected = critics
    heads = same(whole_state(own.head), expected.head.state_dict())
    return heads and same(whole_state(own.trunk), expected.trunk.state_dict())


def main(file, cases):
    write_differences(file, cases, compare)
