"""Scores of the trained model: token by token, whatever it is packed with, saved or loaded."""

import copy
import json
import shutil

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoTokenizer

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import (
    eos_ids,
    load_policy,
    load_tokenizer,
    save_policy,
    score,
    without_dropout,
)
from veriloop.pipeline.model.shrink import shrink
from veriloop.pipeline.runs.lineage import checkpoint_hash

SEQUENCES = [[1, 5, 9, 3, 30], [1, 6, 2], [4, 0, 0, 17, 8, 11, 2, 39], [1, 7], [22, 23, 24, 25]]
ALONE = [[0], [1], [2], [3], [4]]


def scored(model, sequences, rows, *, temperature=1.0, chunk=4096):
    """(log-probs, entropies) of every sequence but its first token, by sequence."""
    packed = lay_out(sequences, rows)
    inside_RT = packed.sequence_RT >= 0
    logp_M, entropy_M = score(
        model,
        packed.ids_RT,
        packed.positions_RT,
        packed.targets_RT,
        inside_RT,
        temperature=temperature,
        chunk=chunk,
    )
    owner_M = packed.sequence_RT[inside_RT]
    return [(logp_M[owner_M == b], entropy_M[owner_M == b]) for b in range(len(sequences))]


class Settings:
    def __init__(self, eos_token_id):
        self.eos_token_id = eos_token_id


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("rows", [ALONE, [[0, 1, 2, 3, 4]], [[2, 0], [4, 3, 1]]])
def test_every_token_is_scored_as_the_plain_model_does_it(
    tiny_llama, plain_scores, rows, temperature
):
    model = tiny_llama(layers=2)
    got = scored(model, SEQUENCES, rows, temperature=temperature)
    for sequence, (logp, entropy) in zip(SEQUENCES, got, strict=True):
        expected = plain_scores(model, sequence[:1], sequence[1:], temperature)
        assert_close(logp, expected[0], atol=1e-5, rtol=0)
        assert_close(entropy, expected[1], atol=1e-5, rtol=0)


def test_the_targets_are_one_token_ahead_of_the_inputs(tiny_llama):
    """The same numbers from the logits of one pass, shifted by hand; unshifted they differ."""
    model, ids = tiny_llama(), torch.tensor(SEQUENCES[2])
    logp_TV = model(ids[None]).logits[0].log_softmax(-1)
    ((got, _),) = scored(model, [SEQUENCES[2]], [[0]])
    shifted = torch.stack([logp_TV[t, ids[t + 1]] for t in range(len(ids) - 1)])
    unshifted = torch.stack([logp_TV[t, ids[t]] for t in range(len(ids) - 1)])
    assert_close(got, shifted, atol=1e-5, rtol=0)
    assert (got - unshifted).abs().max() > 1.0


@pytest.mark.parametrize("changed", range(5))
def test_changing_one_sequence_never_changes_another(tiny_llama, changed):
    model, rows = tiny_llama(layers=2), [[0, 1, 2], [3, 4]]
    other = [[t if b != changed else 39 - t for t in s] for b, s in enumerate(SEQUENCES)]
    before, after = scored(model, SEQUENCES, rows), scored(model, other, rows)
    for b in range(5):
        same = torch.equal(before[b][0], after[b][0])
        assert same is (b != changed)


@pytest.mark.parametrize("packed", [[[0, 1, 2, 3, 4]], [[4, 2], [3, 1, 0]]])
def test_the_gradient_of_a_pack_is_the_sum_of_those_alone(tiny_llama, packed):
    model, gradients = tiny_llama(layers=2), []
    for rows in (packed, ALONE):
        model.zero_grad()
        sum(logp.sum() for logp, _ in scored(model, SEQUENCES, rows)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    gap = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert gap < 1e-6


def test_a_token_is_scored_by_what_stands_before_it_and_by_nothing_after(tiny_llama):
    model = tiny_llama()
    ((one, _),) = scored(model, [[1, 5, 9, 3, 30]], [[0]])
    ((other, _),) = scored(model, [[1, 5, 9, 3, 31]], [[0]])
    assert_close(one[:3], other[:3], atol=1e-6, rtol=0)
    ((earlier, _),) = scored(model, [[1, 6, 9, 3, 30]], [[0]])
    assert (one - earlier).abs().min() > 1e-3


def test_only_masked_in_targets_are_scored_in_the_order_of_the_rows(tiny_llama):
    model, packed = tiny_llama(), lay_out(SEQUENCES, [[0, 1], [2]])
    mask_RT = torch.zeros_like(packed.ids_RT, dtype=torch.bool)
    mask_RT[0, 3] = mask_RT[1, 5] = True
    args = (packed.ids_RT, packed.positions_RT, packed.targets_RT, mask_RT)
    got, _ = score(model, *args, temperature=1.0, chunk=1)
    whole = scored(model, SEQUENCES, [[0, 1], [2], [3], [4]])
    assert_close(got, torch.stack([whole[0][0][3], whole[2][0][5]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_the_chunk_bounds_memory_and_changes_no_number(tiny_llama, chunk):
    model, rows = tiny_llama(), best_fit([len(s) - 1 for s in SEQUENCES], 9)
    for (got, _), (want, _) in zip(
        scored(model, SEQUENCES, rows, chunk=chunk), scored(model, SEQUENCES, rows), strict=True
    ):
        assert_close(got, want, atol=1e-5, rtol=0)


def test_a_head_with_a_bias_is_scored_with_it(tiny_llama, plain_scores):
    model = tiny_llama()
    model.lm_head.bias = nn.Parameter(torch.linspace(-2, 2, 40))
    ((got, _),) = scored(model, [SEQUENCES[0]], [[0]])
    want, _ = plain_scores(model, SEQUENCES[0][:1], SEQUENCES[0][1:])
    assert_close(got, want, atol=1e-5, rtol=0)


def test_a_saved_policy_comes_back_to_the_bit_and_ready_to_train(tiny_llama, tmp_path):
    model = tiny_llama(layers=2)
    model.save_pretrained(tmp_path)
    loaded = load_policy(tmp_path)
    assert loaded.training and loaded.dtype == torch.float32
    for (name, own), (other, kept) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert name == other and torch.equal(own, kept)
    assert load_policy(tmp_path, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize(
    "held", [{"temperature": 0.6, "top_p": 0.9}, {"do_sample": False, "top_k": 20},
             {"early_stopping": True}, {"pad_token_id": -1}],
)  # fmt: skip
@pytest.mark.parametrize("empty", [False, True])
def test_a_generation_config_is_saved_as_it_was_read(tiny_checkpoint, tmp_path, held, empty):
    """transformers reads each of these and refuses to save it."""
    start = shutil.copytree(tiny_checkpoint(), tmp_path / "start")
    stored = json.loads((start / "generation_config.json").read_text()) | held
    (start / "generation_config.json").write_text(json.dumps(stored))
    policy = load_policy(start, empty=empty)
    made = [tmp_path / "shrunk"]
    shrink(start, 1, made[0])
    if not empty:
        made.append(tmp_path / "saved")
        save_policy(copy.deepcopy(policy), load_tokenizer(start), made[1])
    policy.generation_config.save_pretrained(tmp_path / "own")
    for folder in (*made, tmp_path / "own"):
        assert json.loads((folder / "generation_config.json").read_text()) == stored


def test_how_a_tokenizer_was_found_is_not_saved(tiny_checkpoint, tmp_path):
    source = tiny_checkpoint()
    hashes = set()
    for offline in (True, False):
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=offline)
        save_policy(load_policy(source), tokenizer, tmp_path / str(offline))
        hashes.add(checkpoint_hash(tmp_path / str(offline)))
    assert hashes == {checkpoint_hash(source)}


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(RecipeError, match=f"{tmp_path} holds no Hugging Face checkpoint"):
        load_policy(tmp_path)


@pytest.mark.slow
def test_training_mode_scores_as_evaluation_mode_does_once_dropout_is_off(tiny_llama):
    model = tiny_llama()
    model.model.embed_tokens = nn.Sequential(model.model.embed_tokens, nn.Dropout(0.5))
    model.model.layers[0].self_attn.attention_dropout = 0.5
    model.model.layers[0].dropout = model.model.layers[0].activation_dropout = 0.5  # as in OPT
    noisy = [scored(model, SEQUENCES, ALONE)[2][0] for _ in range(2)]
    assert not torch.equal(*noisy)
    assert without_dropout(model) is model and model.training
    assert model.model.layers[0].dropout == model.model.layers[0].activation_dropout == 0.0
    train = scored(model, SEQUENCES, ALONE)[2][0]
    assert torch.equal(train, scored(model, SEQUENCES, ALONE)[2][0])
    assert_close(train, scored(model.eval(), SEQUENCES, ALONE)[2][0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("listed", "own", "expected"),
    [
        (2, 2, (2,)),
        ([7, 2, 9], 2, (2, 7, 9)),
        ([7], 3, (3, 7)),
        (None, 3, (3,)),
        (0, None, (0,)),
        (None, None, ()),
    ],
)
def test_every_id_that_ends_a_response_counts(listed, own, expected):
    assert eos_ids(Settings(listed), Settings(own)) == expected


@pytest.mark.slow
def test_bfloat16_scores_differ_by_its_rounding_and_no_more(tiny_llama):
    exact = scored(tiny_llama(layers=2, spread=0.2), SEQUENCES, ALONE)
    rounded = scored(tiny_llama(layers=2, spread=0.2).bfloat16(), SEQUENCES, ALONE)
    gap = torch.cat([(a - b).abs() for (a, _), (b, _) in zip(exact, rounded, strict=True)])
    assert rounded[0][0].dtype == torch.float32
    assert 1e-5 < gap.mean() < 0.02 and gap.max() < 0.1


@pytest.mark.parametrize("listed", ["x", [1, "x"], [True], 0.5])
def test_ends_that_are_no_ids_are_refused(listed):
    with pytest.raises(RecipeError, match=r"eos_token_id holds .*; expected ids of tokens"):
        eos_ids(Settings(listed), Settings(1))
