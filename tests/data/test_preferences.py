"""Preference rows: every layout is read, and what is wrong is named by line and column."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veriloop.data.columns import answer_text
from veriloop.data.preferences import Labelled, Pair, Ranked, Segment, parse_rows, read

ASKED = [{"role": "user", "content": "1+1?"}]


def said(text):
    return [{"role": "assistant", "content": text}]


def told(mistaken, number=1):
    with pytest.raises(ValueError, match=r"^file, line ") as failure:
        parse_rows([*[{"prompt": "p", "chosen": "a", "rejected": "b"}] * (number - 1), mistaken],
                "file, line")  # fmt: skip
    return str(failure.value)


def test_a_group_is_a_name():
    pair = {"prompt": "p", "chosen": "a", "rejected": "b"}
    hard, plain = parse_rows([pair | {"group": "hard"}, pair], "x")
    assert (hard.group, plain.group) == ("hard", "")
    with pytest.raises(ValueError, match=r"x 1: group: must be text, got 3"):
        parse_rows([pair | {"group": 3}], "x")


def test_text_and_messages_are_read_alike():
    rows = parse_rows(
        [
            {"prompt": "1+1?", "chosen": "2", "rejected": "3", "source": "ignored"},
            {"prompt": ASKED, "chosen": said("2"), "rejected": said("3")},
        ],
        "x",
    )
    assert rows[0] == Pair(prompt="1+1?", chosen="2", rejected="3")
    assert rows[1].prompt == tuple(ASKED) and answer_text(rows[1].chosen) == "2"
    assert answer_text(rows[0].rejected) == "3"


def test_the_other_kinds():
    assert parse_rows([{"prompt": "p", "completion": "c", "label": False}], "x") == [
        Labelled(prompt="p", completion="c", label=False)
    ]
    assert parse_rows([{"prompt": "p", "ranked": ["a", "b", "c"]}], "x") == [
        Ranked(prompt="p", answers=("a", "b", "c"))
    ]


def test_scores_become_the_gap():
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "score_chosen": 4, "score_rejected": 1.5}
    assert parse_rows([row], "x")[0].gap == 2.5
    assert "both, or neither" in told({k: v for k, v in row.items() if k != "score_rejected"})
    assert "score_chosen: must be a finite number, got 'x'" in told(row | {"score_chosen": "x"})
    assert "score_chosen: must be a finite" in told(row | {"score_chosen": float("nan")})


def test_segments_must_be_the_answer_and_have_as_many_scores_each():
    row = {"prompt": "p", "chosen": "ab", "rejected": "c"}
    good = [{"text": "a", "scores": [1, 0]}, {"text": "b", "scores": [0.5, 1]}]
    pair = parse_rows([row | {"chosen_segments": good}], "x")[0]
    assert pair.chosen_segments == (
        Segment(text="a", scores=(1.0, 0.0)), Segment(text="b", scores=(0.5, 1.0))
    )  # fmt: skip
    assert pair.rejected_segments == ()
    assert "joined they are 'a', not the answer 'ab'" in told(row | {"chosen_segments": good[:1]})
    uneven = [good[0], {"text": "b", "scores": [1]}]
    assert "the same number of scores" in told(row | {"chosen_segments": uneven})
    for wrong in ({"text": "ab"}, {"text": "ab", "scores": []}):
        assert "scores must be a list" in told(row | {"chosen_segments": [wrong]})
    assert "has a text and scores" in told(row | {"chosen_segments": ["ab"]})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "a row is an object with columns"),
        ({}, "needs chosen and rejected, completion and label, or ranked; has nothing"),
        ({"prompt": "p", "choosen": "a", "rejected": "b"}, "'choosen' is near 'chosen'"),
        (
            {"chosen": "a", "rejected": "b", "promt": "p"},
            "prompt: is missing. Did you mean 'promt'",
        ),
        ({"prompt": "p", "chosen": "a", "rejected": None}, "has prompt, chosen"),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "prompt: is empty"),
        ({"prompt": "p", "chosen": 1, "rejected": "b"}, "chosen: must be text or a list"),
        ({"prompt": "p", "chosen": "a", "rejected": []}, "rejected: must be text or a list"),
        ({"prompt": "p", "completion": "a", "label": 1}, "label: must be true or false, got 1"),
        ({"prompt": "p", "ranked": ["a"]}, "ranked: must list 2 answers or more"),
        ({"prompt": "p", "ranked": ["a", ""]}, "ranked[1]: is empty"),
        ({"prompt": ASKED, "chosen": "a", "rejected": "b"}, "must both be text, or both messages"),
        ({"prompt": "p", "chosen": said("a"), "rejected": "b"}, "chosen: prompt and answer must"),
        (
            {"prompt": said("a"), "chosen": said("a"), "rejected": said("b")},
            "prompt: must end with",
        ),
        ({"prompt": ASKED, "chosen": ASKED, "rejected": said("b")}, "by 'assistant', not 'user'"),
        ({"prompt": [{"role": "user"}], "chosen": "a", "rejected": "b"}, "a role and a content"),
        ({"prompt": ASKED, "chosen": said("a") * 2, "rejected": said("b")}, "must be one message"),
        (
            {"prompt": "p", "chosen": "a", "rejected": "b", "completion": "c", "label": True},
            "pair and labelled exclude each other",
        ),
    ],
)
def test_what_is_wrong_is_named(row, message):
    assert message in told(row)


def test_the_line_is_named_and_one_file_holds_one_kind():
    assert told({"prompt": "p"}, number=3).startswith("file, line 3: ")
    mixed = told({"prompt": "p", "completion": "c", "label": True}, number=2)
    assert mixed.startswith("file, line 2: a Labelled among rows that are Pair")


ROWS = [
    {"prompt": ASKED, "chosen": said("2"), "rejected": said("3")},
    {"prompt": ASKED, "chosen": said("二"), "rejected": said("3")},
]


def test_jsonl_and_parquet_hold_the_same_rows(tmp_path):
    lines, table = tmp_path / "x.jsonl", tmp_path / "x.parquet"
    lines.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    assert read(lines) == read(table) == parse_rows(ROWS, "x")


def test_files_that_cannot_be_read_are_named_with_the_line(tmp_path):
    lines = tmp_path / "x.jsonl"
    lines.write_text(json.dumps(ROWS[0]) + "\n{\n")
    with pytest.raises(ValueError, match=r"x\.jsonl, line 2: not JSON"):
        read(lines)
    lines.write_text("")
    with pytest.raises(ValueError, match="holds no rows"):
        read(lines)
    with pytest.raises(ValueError, match=r"ends in \.jsonl or \.parquet"):
        read(tmp_path / "x.csv")
    table = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist([{"prompt": "p", "chosen": "a"}]), table)
    with pytest.raises(ValueError, match=r"x\.parquet, row 1: needs chosen and rejected"):
        read(table)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.jsonl")
