"""What an entry takes of its row, and which layout and rows are read."""

import datetime
import json

import pytest

from veriloop.data.hub import files
from veriloop.data.hub.layout import Layout
from veriloop.data.hub.load import layout_for, read
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.trainer_formats import LAYOUTS, openrlhf, trl
from veriloop.data.problem import Problem

ASKED = Layout(ask=("Say it.\n{q}",), verifier="number", read="number", reference={"value": "a"})
TALK = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi!"}]


def entries(written, rows, layout, name="rows.jsonl"):
    return list(read("mine", path=written(rows, name), layout=layout))


def sums(count):
    return [{"question": f"{n}+1?", "answer": f"#### {n + 1}"} for n in range(count)]


def test_facts_are_those_of_the_row_as_json_holds_them(written):
    layout = Layout(
        ask=("{q}",), verifier="number", read="number", reference={"value": "a"}, language="de",
        facts={name: name for name in ("level", "share", "day", "none")},
    )  # fmt: skip
    row = {"q": "Zwei?", "a": 2, "level": 3, "share": 0.5, "day": datetime.date(2020, 1, 15)}
    (entry,) = entries(written, [row | {"none": None}], layout, "rows.parquet")
    assert entry.problem == Problem(
        id="mine/train/0", prompt="Zwei?", verifier="number", reference={"value": "2"},
        facts={
            "source": "mine", "language": "de", "level": 3, "share": 0.5, "day": "2020-01-15",
        },
    )  # fmt: skip


def test_what_a_template_adds_is_no_part_of_what_was_filled_in(written):
    (entry,) = entries(written, [{"q": "Two.", "a": 2}], ASKED)
    assert (entry.problem.prompt, entry.filled) == ("Say it.\nTwo.", "Two.")


@pytest.mark.parametrize(
    ("program", "solutions"),
    [
        ("def f(): return 1", ("def f(): return 1",)),
        (["def f(): return 1", " ", None, "f = int"], ("def f(): return 1", "f = int")),
        (json.dumps(["def f(): return 1"]), ("def f(): return 1",)),
        ('[x for x in "def f(): return 1"]', ('[x for x in "def f(): return 1"]',)),
    ],
)
def test_solutions_may_be_a_text_or_a_list_of_texts_also_as_json(written, program, solutions):
    layout = Layout(
        ask=("{q}",), verifier="number", read="number", reference={"value": "a"}, solution="program"
    )
    (entry,) = entries(written, [{"q": "q", "a": 1, "program": program}], layout)
    assert entry.solutions == solutions and "solution" not in entry.problem.reference


def test_a_part_of_a_solution_may_be_empty(rows, written):
    row = rows["humaneval"][0]
    (entry,) = read("humaneval", path=written([row | {"canonical_solution": None}]))
    assert entry.solutions == (row["prompt"],)


def test_a_solution_shows_whether_asserts_are_sound_and_other_tests_need_none(rows, written):
    (mbpp,) = read("mbpp", path=written(rows["mbpp"]))
    assert mbpp.problem.reference["solution"] == mbpp.solutions[0]
    (apps, *_) = read("apps", path=written(rows["apps"]))
    assert apps.solutions and "solution" not in apps.problem.reference


def test_conversations_are_read_where_their_columns_have_accepted_values(written):
    layout = Layout(kind="sft", read="messages", only={"quality": ("good", "fair")})
    rows = [{"messages": TALK, "quality": quality} for quality in ("good", "bad", "fair")]
    reading = read("mine", path=written(rows), layout=layout)
    assert len(list(reading)) == 2
    assert dict(reading.dropped) == {"quality is not good or fair": 1}


def test_a_row_that_lacks_a_column_is_counted_beyond_the_first(written):
    reading = read("gsm8k", path=written([*sums(1), {"question": "q"}, {"question": "r"}]))
    assert len(list(reading)) == 1
    assert dict(reading.dropped) == {"no column answer": 2}


def test_every_unusable_row_is_counted(written):
    reading = read("gsm8k", path=written([*sums(2), *[{"question": "q", "answer": "a"}] * 3]))
    assert reading.rows == 0 and len(list(reading)) == 2
    assert (reading.rows, dict(reading.dropped)) == (5, {"no #### answer": 3})


@pytest.mark.parametrize(("limit", "count"), [(0, 5), (2, 2), (9, 5)])
def test_the_first_rows_alone_are_read_where_a_number_is_given(written, limit, count):
    assert len(list(read("gsm8k", path=written(sums(5)), limit=limit))) == count


def test_a_third_copy_of_an_id_has_a_number_of_its_own(written):
    problems = [
        Problem(id="q1", prompt=f"What is {n}+1?", verifier="number", reference={"value": n + 1})
        for n in (1, 2, 3)
    ]
    rows = [openrlhf(problem) for problem in (*problems, problems[2], problems[0])]
    reading = read("mine", path=written(rows))
    assert [entry.problem.id for entry in reading] == ["q1", "q1#2", "q1#3"]
    assert dict(reading.dropped) == {"a repeated row": 2}


def test_a_set_is_streamed_in_its_own_configuration_unless_told_otherwise(monkeypatch):
    asked = []

    def rows(name, layout, path, split, *, config, streaming):
        asked.append((name, layout, path, split, config, streaming))
        return iter(sums(1))

    monkeypatch.setattr(files, "rows", rows)
    layout = SETS["gsm8k"]
    assert len(list(read("gsm8k"))) == 1
    assert len(list(read("gsm8k", split="test", config="socratic", streaming=False))) == 1
    assert asked == [
        ("gsm8k", layout, "", "train", "", True),
        ("gsm8k", layout, "", "test", "socratic", False),
    ]
    assert read("math500").split == "test"


def test_an_exported_file_is_read_by_its_labels_unless_its_columns_are_mapped(written, tmp_path):
    problem = Problem(id="gsm8k/train/7", prompt="1+1?", verifier="number", reference={"value": 2})
    path = written([trl(problem) | {"q": "Two.", "a": 2}])
    (entry,) = read("gsm8k", path=path)
    assert entry.problem == problem
    assert layout_for("gsm8k", path) in LAYOUTS.values()
    (entry,) = read("gsm8k", path=path, layout=ASKED)
    assert entry.problem.prompt == "Say it.\nTwo."
    assert layout_for("gsm8k", str(tmp_path)) is SETS["gsm8k"]  # a folder
    assert list(read("gsm8k", path=written([], "empty.jsonl"))) == []
