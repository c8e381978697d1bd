"""The pass over the data by the teacher: what it keeps, once, and under which key."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pipeline.config import TrainerConfig
from pipeline.distill import teacher_pass as module
from pipeline.distill.teacher_pass import Keeping, pass_key, read_by, teacher_pass
from pipeline.losses.distillation import top_k

KEEPING = Keeping(
    k=3, ids=40, temperature=1.3, trainer=TrainerConfig(row=12, rows=2, logits_chunk=4)
)


def plain(model, lesson, keeping=KEEPING):
    logits = model(torch.tensor([lesson.ids[:-1]])).logits[0, :, : keeping.ids]
    learned = torch.tensor(lesson.learned[1:])
    return top_k(logits[learned].detach(), keeping.k, temperature=keeping.temperature)


@pytest.mark.parametrize("row", [12, 64])
def test_each_lesson_gets_what_the_teacher_says_of_its_learned_tokens(
    tiny_llama, some_lessons, row
):
    teacher, lessons = tiny_llama(seed=1), some_lessons(9)
    keeping = replace(KEEPING, trainer=TrainerConfig(row=row, rows=2, logits_chunk=4))
    for lesson, got in zip(lessons, read_by(teacher, lessons, keeping), strict=True):
        wanted = plain(teacher, lesson)
        assert got.ids_XK.tolist() == wanted.ids_XK.tolist()
        assert_close(got.logq_XK, wanted.logq_XK, atol=1e-5, rtol=1e-5)
        assert_close(got.rest_X, wanted.rest_X, atol=1e-5, rtol=1e-5)


def test_ids_that_the_student_lacks_are_left_out(tiny_llama, some_lessons):
    teacher, lessons = tiny_llama(seed=1), some_lessons(6)
    keeping = replace(KEEPING, ids=7)
    (first, *_) = read_by(teacher, lessons, keeping)
    assert int(first.ids_XK.max()) < 7
    assert_close(first.rest_X, plain(teacher, lessons[0], keeping).rest_X, atol=1e-5, rtol=1e-5)


def test_a_complete_pass_is_only_read_and_a_broken_one_goes_on(
    tiny_llama, some_lessons, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "PART", 4)
    teacher, lessons, said = tiny_llama(seed=1), some_lessons(10), []
    found = teacher_pass(teacher, lessons, KEEPING, tmp_path, said.append)
    assert len(found) == 10 and len(list(tmp_path.glob("part_*.pt"))) == 3
    monkeypatch.setattr(module, "read_by", lambda *_: pytest.fail("was there already"))
    again = teacher_pass(teacher, lessons, KEEPING, tmp_path, said.append)
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one.ids_XK, other.ids_XK) and torch.equal(one.rest_X, other.rest_X)
        assert torch.equal(one.logq_XK, other.logq_XK) and one.ids_XK.dtype == torch.int64
    monkeypatch.undo()
    monkeypatch.setattr(module, "PART", 4)
    (tmp_path / "part_00001.pt").unlink()
    mended = teacher_pass(teacher, lessons, KEEPING, tmp_path, said.append)
    assert all(torch.equal(a.logq_XK, b.logq_XK) for a, b in zip(found, mended, strict=True))
    assert [line.split(" rows")[0] for line in said] == [
        "teacher: 10 of 10",
        "teacher: 0 of 10",
        "teacher: 4 of 10",
    ]


def test_the_key_is_of_all_that_matters(tiny_llama, some_lessons):
    teacher, lessons = tiny_llama(seed=1), some_lessons(5)
    key = pass_key(teacher, lessons, KEEPING)
    assert pass_key(tiny_llama(seed=1), list(lessons), KEEPING) == key
    flipped = replace(lessons[0], learned=(*lessons[0].learned[:-1], False))
    others = [
        pass_key(tiny_llama(seed=2), lessons, KEEPING),
        pass_key(teacher, lessons[:-1], KEEPING),
        pass_key(teacher, [flipped, *lessons[1:]], KEEPING),
        *(pass_key(teacher, lessons, replace(KEEPING, **{name: value}))
          for name, value in (("k", 4), ("ids", 39), ("temperature", 1.0))),
    ]  # fmt: skip
    assert len({key, *others}) == 7
    rows = replace(KEEPING, trainer=TrainerConfig(row=99))
    assert pass_key(teacher, lessons, rows) == key  # how it is cut up changes no number
