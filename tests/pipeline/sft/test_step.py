"""The loss of a supervised step: by hand, in any packing, and through TRL's own trainer."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from veriloop.data.sft_ids import EncodedExample
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.sft import step as module
from veriloop.pipeline.sft.step import gradient, measure, pieces
from veriloop.pipeline.training.optimizer import Optimizer

CLOSE = {"atol": 1e-5, "rtol": 1e-3}
WHOLE = TrainerConfig(row=64, rows=64, logits_chunk=4096)


def taken(model):
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return found


def by_hand(model, batch):
    """One example at a time, one token at a time, from the model's plain logits."""
    total, entropy, count, right = 0.0, 0.0, 0, 0
    for example in batch:
        logits = model(torch.tensor([example.ids])).logits[0]
        for t, learned in enumerate(example.learned):
            if learned:
                chances = logits[t - 1].softmax(-1)
                total = total - chances[example.ids[t]].log()
                entropy -= (chances * chances.log()).sum().item()
                right += int(chances.argmax() == example.ids[t])
                count += 1
    return total / count, entropy / count, count, right / count


SPLITS = {
    "one row": TrainerConfig(row=4096, rows=1),
    "packed": WHOLE,
    "rows one by one": TrainerConfig(row=16, rows=1),
    "a sequence a row": TrainerConfig(row=1, rows=3),
    "small chunks": TrainerConfig(row=20, rows=2, logits_chunk=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", SPLITS.values(), ids=SPLITS)
def test_any_packing_has_the_loss_and_the_gradient_of_the_plain_loop(
    tiny_llama, random_examples, trainer
):
    model, batch = tiny_llama(layers=2), random_examples(9)
    loss, entropy, count, _ = by_hand(model, batch)
    loss.backward()
    wanted = taken(model)
    told = gradient(model, batch, trainer)
    assert told["loss"] == pytest.approx(loss.item(), abs=1e-5) and told["tokens"] == count
    assert told["entropy"] == pytest.approx(entropy, abs=1e-5)
    assert_close(taken(model), wanted, **CLOSE)


def test_a_step_is_not_the_mean_of_its_parts(tiny_llama, random_examples):
    """Parts of unequal length weigh by their tokens: what accumulation by means gets wrong."""
    model, batch = tiny_llama(), random_examples(6)
    whole = gradient(model, batch, WHOLE)["loss"]
    parts = [gradient(model, [one], WHOLE) for one in batch]
    tokens = sum(part["tokens"] for part in parts)
    assert whole == pytest.approx(sum(p["loss"] * p["tokens"] for p in parts) / tokens, abs=1e-5)
    assert whole != pytest.approx(sum(p["loss"] for p in parts) / len(parts), abs=1e-3)


def test_masked_tokens_do_not_change_the_loss(tiny_llama, random_examples, monkeypatch):
    model, batch = tiny_llama(), random_examples(5)
    (piece,) = pieces(batch, WHOLE)
    assert piece.learned_RT.sum() == sum(one.targets for one in batch)
    before = gradient(model, batch, WHOLE)["loss"]
    other = torch.where(piece.learned_RT, piece.targets_RT, 7)
    monkeypatch.setattr(module, "pieces", lambda *_: [replace(piece, targets_RT=other)])
    assert gradient(model, batch, WHOLE)["loss"] == before
    other = torch.where(piece.learned_RT, 7, piece.targets_RT)
    monkeypatch.setattr(module, "pieces", lambda *_: [replace(piece, targets_RT=other)])
    assert gradient(model, batch, WHOLE)["loss"] != before


def test_each_example_is_in_one_row_with_its_targets_shifted(random_examples):
    batch = random_examples(7)
    found = []
    for piece in pieces(batch, TrainerConfig(row=16, rows=2)):
        assert len(piece.ids_RT) <= 2
        assert (piece.ids_RT[:, 1:] == piece.targets_RT[:, :-1])[
            piece.positions_RT[:, 1:] > 0
        ].all()
        found += piece.targets_RT[piece.learned_RT].tolist()
    wanted = [i for one in batch for i, flag in zip(one.ids, one.learned, strict=True) if flag]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("trainer", "shapes"),
    [
        ({"row": 16, "rows": 4}, [[2, 16]]),
        ({"row": 15, "rows": 4}, [[4, 8]]),
        ({"row": 8, "rows": 3}, [[3, 8], [1, 8]]),
    ],
)
def test_a_row_holds_as_many_predictions_as_it_is_long(trainer, shapes):
    """Each of four examples of 9 ids predicts 8 of them."""
    batch = [EncodedExample(ids=(*range(9),), learned=(False, *[True] * 8))] * 4
    found = pieces(batch, TrainerConfig(**trainer))
    assert [[*piece.ids_RT.shape] for piece in found] == shapes


def test_means_are_taken_in_double_precision(tiny_llama, random_examples):
    model, batch = tiny_llama(), random_examples(8)
    (piece,) = pieces(batch, WHOLE)
    parts = (piece.ids_RT, piece.positions_RT, piece.targets_RT, piece.learned_RT)
    with torch.no_grad():
        logp_M, entropy_M = score(model, *parts, temperature=1.0, chunk=WHOLE.logits_chunk)
    entropy = entropy_M.sum().item() / len(entropy_M)
    assert gradient(model, batch, WHOLE)["entropy"] == pytest.approx(entropy, rel=1e-12)
    loss = -logp_M.double().mean().item()
    assert measure(model, batch, WHOLE)["eval_loss"] == pytest.approx(loss, rel=1e-12)


def test_held_out_examples_are_measured_without_a_gradient(tiny_llama, random_examples):
    model, batch = tiny_llama(layers=2), random_examples(9)
    loss, _, _, right = by_hand(model, batch)
    for trainer in SPLITS.values():
        told = measure(model, batch, trainer)
        assert told["eval_loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert told["eval_mean_token_accuracy"] == pytest.approx(right)
    assert all(p.grad is None for p in model.parameters())


def test_accuracy_is_measured_by_logits_in_float32(tiny_llama, random_examples):
    """Passes in bfloat16 round hidden states; of rounded logits many would be equal."""
    batch = random_examples(20)
    model = prepare(tiny_llama(), TrainerConfig(device="cpu", compute="bfloat16"))
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-3).add_(1.0)  # logits differ by less than they are rounded by
    right, count = 0, 0
    for example in batch:
        ids = torch.tensor([example.ids])
        with torch.no_grad():
            hidden = model.base_model(input_ids=ids).last_hidden_state[0].double()
        best = (hidden @ model.lm_head.weight.double().T).argmax(-1)
        for t, learned in enumerate(example.learned):
            right += int(learned and best[t - 1] == example.ids[t])
            count += learned
    alone = TrainerConfig(row=1, rows=1)
    measured = measure(model, batch, alone)["eval_mean_token_accuracy"]
    assert right and measured == pytest.approx(right / count)


@pytest.mark.slow
def test_it_learns_what_it_is_shown(tiny_llama, random_examples):
    model, batch = tiny_llama(), random_examples(4)
    optimizer = Optimizer(model, OptimizerConfig(learning_rate=1e-2))
    for number in range(40):
        gradient(model, batch, WHOLE)
        optimizer.step(0.0, number)
    assert measure(model, batch, WHOLE)["eval_mean_token_accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("padding_free", [False, True])
def test_trl_has_the_same_loss_gradient_entropy_and_accuracy(
    tiny_llama, random_examples, padding_free
):
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    model, batch = tiny_llama(layers=2), random_examples(9)
    told = gradient(model, batch, WHOLE)
    ours, right = taken(model), measure(model, batch, WHOLE)["eval_mean_token_accuracy"]
    trl.trainer.utils.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    trainer = in_trl(model)
    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=padding_free)
    loss = 0.0
    for part in (batch[:4], batch[4:]):  # accumulated over two micro-batches, as TRL does it
        inputs = collate([{"input_ids": list(b.ids), "labels": labels(b)} for b in part])
        share = trl.SFTTrainer.compute_loss(
            trainer, model, inputs, num_items_in_batch=int(told["tokens"])
        )
        share.backward()
        loss += share.item()
    assert loss == pytest.approx(told["loss"], abs=1e-5)
    assert_close(taken(model), ours, **CLOSE)
    weights = [sum(b.targets for b in part) / told["tokens"] for part in (batch[:4], batch[4:])]
    numbers = trainer._metrics["train"]
    for name, wanted in (("entropy", told["entropy"]), ("mean_token_accuracy", right)):
        mean = sum(w * n for w, n in zip(weights, numbers[name], strict=True))
        assert mean == pytest.approx(wanted, abs=1e-5)


def labels(example):
    return [i if flag else -100 for i, flag in zip(example.ids, example.learned, strict=True)]


def in_trl(model):
    """TRL's trainer reduced to what its loss reads."""
    return SimpleNamespace(
        model=model,
        aux_loss_enabled=False,
        compute_loss_func=None,
        label_smoother=None,
        args=SimpleNamespace(loss_type="nll", average_tokens_across_devices=False),
        accelerator=SimpleNamespace(parallelism_config=None, gather_for_metrics=lambda x: x),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
    )
