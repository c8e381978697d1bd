"""All that a set holds out, in an order of its own."""

import json

import pytest

from veriloop.data.hub.benchmark_set import load_benchmark_set
from veriloop.data.hub.files import DatasetNotFoundError


@pytest.fixture
def path(tmp_path):
    """Function: a file of rows in GSM8K's columns."""

    def made(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return made


SUMS = [{"question": f"What is {n}+1?", "answer": f"#### {n + 1}"} for n in range(9)]


def test_every_question_is_there_in_the_same_order_every_time(path):
    one, again = (load_benchmark_set("gsm8k", path(SUMS)) for _ in range(2))
    assert one == again and (one.name, one.split) == ("gsm8k", "test")
    assert sorted(p.id for p in one.problems) == [f"gsm8k/test/{n}" for n in range(9)]
    assert [p.id for p in one.problems] != sorted(p.id for p in one.problems)


def test_the_first_few_are_among_the_first_more(path):
    whole = load_benchmark_set("gsm8k", path(SUMS))
    few, more = whole.first(3), whole.first(5)
    assert more.problems[:3] == few.problems and len(more.problems) == 5
    assert whole.first(99).problems == whole.problems and few.sha256 == whole.sha256


def test_the_hash_is_of_questions_and_answers(path):
    changed = [SUMS[0] | {"answer": "#### 2"}, *SUMS[1:]]
    assert (
        load_benchmark_set("gsm8k", path(SUMS)).sha256
        != load_benchmark_set("gsm8k", path(changed, "b.jsonl")).sha256
    )


def test_rows_without_a_question_are_counted(path):
    made = load_benchmark_set("gsm8k", path([*SUMS, {"question": "What?", "answer": "nothing"}]))
    assert made.dropped == {"no #### answer": 1} and len(made.problems) == 9


def test_a_folder_has_splits(path, tmp_path):
    path(SUMS[:4], "train.jsonl")
    path(SUMS[4:], "test.jsonl")
    assert len(load_benchmark_set("gsm8k", str(tmp_path)).problems) == 5
    assert len(load_benchmark_set("gsm8k", str(tmp_path), "train").problems) == 4


def test_a_file_has_no_split_of_another_name(path):
    file = path(SUMS)
    for own in ("train", "test"):
        assert load_benchmark_set("gsm8k", file, own).split == own
    with pytest.raises(ValueError, match=r"split='tset' is not one of .*, which holds one alone"):
        load_benchmark_set("gsm8k", file, "tset")


def test_a_file_of_a_set_that_holds_nothing_out_is_taken_whole(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "What is 1+1?", "answer": "2", "solution": ""}) + "\n")
    assert len(load_benchmark_set("deepscaler", str(file)).problems) == 1
    with pytest.raises(ValueError, match="has no held-out split on the hub: name a split, such as"):
        load_benchmark_set("deepscaler")


def test_what_is_no_set_of_questions_is_refused(path):
    with pytest.raises(ValueError, match="Did you mean 'gsm8k'"):
        load_benchmark_set("gsm8")
    with pytest.raises(DatasetNotFoundError, match="not a file or folder"):
        load_benchmark_set("gsm8k", "absent.jsonl")
    with pytest.raises(ValueError, match="holds preferences rows"):
        load_benchmark_set("hh_rlhf", path(SUMS))
    with pytest.raises(ValueError, match="no usable question: 1 no #### answer"):
        load_benchmark_set("gsm8k", path([{"question": "What?", "answer": "nothing"}]))
