"""The pass over the data by the teacher: what it keeps, once, and under which key."""

import pickle
import re
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill import teacher_pass as module
from veriloop.pipeline.distill.teacher_pass import TopKOptions, pass_key, score_top_k, teacher_pass
from veriloop.pipeline.losses.distillation import top_k
from veriloop.pipeline.runs.console import current

OPTIONS = TopKOptions(
    k=3, ids=40, temperature=1.3, trainer=TrainerConfig(row=12, rows=2, logits_chunk=4)
)


def plain(model, example, options=OPTIONS):
    logits = model(torch.tensor([example.ids[:-1]])).logits[0, :, : options.ids]
    learned = torch.tensor(example.learned[1:])
    return top_k(logits[learned].detach(), options.k, temperature=options.temperature)


@pytest.mark.parametrize("row", [12, 64])
def test_each_example_gets_the_teachers_top_k_at_its_learned_tokens(tiny_llama, some_examples, row):
    teacher, examples = tiny_llama(seed=1), some_examples(9)
    options = replace(OPTIONS, trainer=TrainerConfig(row=row, rows=2, logits_chunk=4))
    for example, got in zip(examples, score_top_k(teacher, examples, options), strict=True):
        wanted = plain(teacher, example)
        assert got.ids_XK.tolist() == wanted.ids_XK.tolist()
        assert_close(got.logq_XK, wanted.logq_XK, atol=1e-5, rtol=1e-5)
        assert_close(got.rest_X, wanted.rest_X, atol=1e-5, rtol=1e-5)


def test_ids_that_the_student_lacks_are_left_out(tiny_llama, some_examples):
    teacher, examples = tiny_llama(seed=1), some_examples(6)
    options = replace(OPTIONS, ids=7)
    (first, *_) = score_top_k(teacher, examples, options)
    assert int(first.ids_XK.max()) < 7
    assert_close(first.rest_X, plain(teacher, examples[0], options).rest_X, atol=1e-5, rtol=1e-5)


def test_a_complete_pass_is_only_read_and_an_interrupted_one_continues(
    tiny_llama, some_examples, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "PART", 4)
    teacher, examples, said = tiny_llama(seed=1), some_examples(10), []
    found = teacher_pass(teacher, examples, OPTIONS, tmp_path, said.append)
    assert len(found) == 10 and len(list(tmp_path.glob("part_*.pt"))) == 3
    monkeypatch.setattr(module, "score_top_k", lambda *_: pytest.fail("was there already"))
    again = teacher_pass(teacher, examples, OPTIONS, tmp_path, said.append)
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one.ids_XK, other.ids_XK) and torch.equal(one.rest_X, other.rest_X)
        assert torch.equal(one.logq_XK, other.logq_XK) and one.ids_XK.dtype == torch.int64
    monkeypatch.undo()
    monkeypatch.setattr(module, "PART", 4)
    (tmp_path / "part_00001.pt").unlink()
    mended = teacher_pass(teacher, examples, OPTIONS, tmp_path, said.append)
    assert all(torch.equal(a.logq_XK, b.logq_XK) for a, b in zip(found, mended, strict=True))
    assert [line.split(" rows")[0] for line in said] == [
        "teacher: 10 of 10",
        "teacher: 0 of 10",
        "teacher: 4 of 10",
    ]


def test_two_runs_that_score_the_same_rows_do_not_meet(
    tiny_llama, some_examples, tmp_path, beside_first_save
):
    teacher, examples, other = tiny_llama(seed=1), some_examples(3), []
    beside_first_save(lambda: other.extend(teacher_pass(teacher, examples, OPTIONS, tmp_path)))
    found = teacher_pass(teacher, examples, OPTIONS, tmp_path)
    assert [one.ids_XK.tolist() for one in found] == [one.ids_XK.tolist() for one in other]
    assert len(other) == 3


def test_ids_take_four_bytes_in_a_file(tiny_llama, some_examples, tmp_path):
    teacher_pass(tiny_llama(seed=1), some_examples(3), OPTIONS, tmp_path)
    stored = torch.load(tmp_path / "part_00000.pt", weights_only=True)
    assert [one["ids"].dtype for one in stored] == [torch.int32] * 3


def test_a_cached_part_that_holds_more_than_tensors_is_refused(tiny_llama, some_examples, tmp_path):
    torch.save([tmp_path], tmp_path / "part_00000.pt")
    with pytest.raises(pickle.UnpicklingError):
        teacher_pass(tiny_llama(seed=1), some_examples(3), OPTIONS, tmp_path)


def test_the_examples_of_the_parts_before_are_counted(
    tiny_llama, some_examples, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "PART", 2)
    done = []

    def noted(*asked):
        done.append(current().done)
        return score_top_k(*asked)

    monkeypatch.setattr(module, "score_top_k", noted)
    teacher_pass(tiny_llama(seed=1), some_examples(5), OPTIONS, tmp_path)
    assert done == [0, 2, 4]


def test_the_key_depends_on_everything_that_changes_a_number(tiny_llama, some_examples):
    teacher, examples = tiny_llama(seed=1), some_examples(5)
    key = pass_key(teacher, examples, OPTIONS)
    assert re.fullmatch("[0-9a-f]{16}", key)
    assert pass_key(tiny_llama(seed=1), list(examples), OPTIONS) == key
    flipped = replace(examples[0], learned=(*examples[0].learned[:-1], False))
    read_otherwise = tiny_llama(seed=1)
    read_otherwise.config.rms_norm_eps = 0.1
    others = [
        pass_key(tiny_llama(seed=2), examples, OPTIONS),
        pass_key(read_otherwise, examples, OPTIONS),
        pass_key(teacher, examples[:-1], OPTIONS),
        pass_key(teacher, [flipped, *examples[1:]], OPTIONS),
        *(pass_key(teacher, examples, replace(OPTIONS, **{name: value}))
          for name, value in (("k", 4), ("ids", 39), ("temperature", 1.0),
                              ("trainer", TrainerConfig(compute="bfloat16")))),
    ]  # fmt: skip
    assert len({key, *others}) == 9
    rows = replace(OPTIONS, trainer=TrainerConfig(row=99))
    assert pass_key(teacher, examples, rows) == key  # how it is cut up changes no number
