"""Steps towards what was kept of a teacher's distributions, against the loss lesson by lesson."""

import pytest
import torch
from torch.testing import assert_close

from pipeline.config import TrainerConfig
from pipeline.distill.logits import gradient, measure
from pipeline.distill.teacher_pass import Keeping, read_by
from pipeline.losses.distillation import top_k_kl

WIDE = TrainerConfig(row=64, rows=8, logits_chunk=64)
NARROW = TrainerConfig(row=8, rows=1, logits_chunk=3)


@pytest.fixture
def kept(tiny_llama, some_lessons):
    """Lessons and what a teacher keeps of each, at temperature 1.5."""
    lessons, teacher = some_lessons(9), tiny_llama(seed=1, layers=2)
    keeping = Keeping(k=5, ids=40, temperature=1.5, trainer=WIDE)
    return lessons, dict(zip(lessons, read_by(teacher, lessons, keeping), strict=True))


def plain(model, lessons, kept):
    """The mean over all learned tokens."""
    values = []
    for lesson in lessons:
        logits = model(torch.tensor([lesson.ids[:-1]])).logits[0]
        learned = torch.tensor(lesson.learned[1:])
        values.append(top_k_kl(logits[learned], kept[lesson], temperature=1.5))
    return torch.cat(values).mean()


@pytest.mark.parametrize("trainer", [WIDE, NARROW])
def test_any_split_leaves_the_gradient_of_the_mean_over_tokens(tiny_llama, kept, trainer):
    lessons, said = kept
    student = tiny_llama()
    told = gradient(student, lessons, said, trainer, 1.5)
    loss = plain(student, lessons, said)
    assert told["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert told["tokens"] == sum(lesson.targets for lesson in lessons)
    wanted = torch.autograd.grad(loss, tuple(student.parameters()))
    for parameter, other in zip(student.parameters(), wanted, strict=True):
        assert_close(parameter.grad, other, atol=1e-5, rtol=1e-4)


def test_measuring_tells_the_same_without_a_gradient(tiny_llama, kept):
    lessons, said = kept
    student = tiny_llama()
    told = measure(student, lessons, said, NARROW, 1.5)
    loss = plain(student, lessons, said)
    assert told == {"kl_to_teacher": pytest.approx(loss.item(), abs=1e-5)} and loss > 0.1
    assert all(parameter.grad is None for parameter in student.parameters())


def test_the_teacher_is_at_no_distance_from_itself(tiny_llama, kept):
    lessons, said = kept
    told = measure(tiny_llama(seed=1, layers=2), lessons, said, NARROW, 1.5)
    assert told["kl_to_teacher"] == pytest.approx(0, abs=1e-6)
