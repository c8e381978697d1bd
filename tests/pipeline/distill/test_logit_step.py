"""Steps towards what was kept of a teacher's distributions, against the loss example by example."""

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill.logit_step import gradient, measure
from veriloop.pipeline.distill.teacher_pass import TopKOptions, score_top_k
from veriloop.pipeline.losses.distillation import top_k_kl

WIDE = TrainerConfig(row=64, rows=8, logits_chunk=64)
NARROW = TrainerConfig(row=8, rows=1, logits_chunk=3)


@pytest.fixture
def kept(tiny_llama, some_examples):
    """Examples and what a teacher keeps of each, at temperature 1.5."""
    examples, teacher = some_examples(9), tiny_llama(seed=1, layers=2)
    options = TopKOptions(k=5, ids=40, temperature=1.5, trainer=WIDE)
    return examples, dict(zip(examples, score_top_k(teacher, examples, options), strict=True))


def plain(model, examples, kept):
    """The mean over all learned tokens."""
    values = []
    for example in examples:
        logits = model(torch.tensor([example.ids[:-1]])).logits[0]
        learned = torch.tensor(example.learned[1:])
        values.append(top_k_kl(logits[learned], kept[example], temperature=1.5))
    return torch.cat(values).mean()


@pytest.mark.parametrize("trainer", [WIDE, NARROW])
def test_any_split_leaves_the_gradient_of_the_mean_over_tokens(tiny_llama, kept, trainer):
    examples, said = kept
    student = tiny_llama()
    told = gradient(student, examples, said, trainer, 1.5)
    loss = plain(student, examples, said)
    assert told["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert told["tokens"] == sum(example.targets for example in examples)
    wanted = torch.autograd.grad(loss, tuple(student.parameters()))
    for parameter, other in zip(student.parameters(), wanted, strict=True):
        assert_close(parameter.grad, other, atol=1e-5, rtol=1e-4)


def test_measure_returns_the_loss_without_a_gradient(tiny_llama, kept):
    examples, said = kept
    student = tiny_llama()
    told = measure(student, examples, said, NARROW, 1.5)
    loss = plain(student, examples, said)
    assert told == {"kl_to_teacher": pytest.approx(loss.item(), abs=1e-5)} and loss > 0.1
    assert all(parameter.grad is None for parameter in student.parameters())


def test_the_teacher_is_at_no_distance_from_itself(tiny_llama, kept):
    examples, said = kept
    told = measure(tiny_llama(seed=1, layers=2), examples, said, NARROW, 1.5)
    assert told["kl_to_teacher"] == pytest.approx(0, abs=1e-6)


def test_the_mean_is_taken_in_double_precision(tiny_llama, kept):
    examples, said = kept
    tokens = sum(example.targets for example in examples)
    total = measure(tiny_llama(), examples, said, WIDE, 1.5)["kl_to_teacher"] * tokens
    rounded = torch.tensor(total, dtype=torch.float32).item()  # what a sum in float32 would be
    assert total != pytest.approx(rounded, rel=1e-12)


def test_without_examples_there_is_no_distance(tiny_llama):
    assert measure(tiny_llama(), [], {}, WIDE, 1.5) == {}
