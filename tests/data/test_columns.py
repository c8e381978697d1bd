"""Columns of training data: what is no text and no list of messages is named."""

import json

import pytest

from veriloop.data.columns import messages, raw_rows, row_unit, text


def test_rows_come_from_jsonl_and_parquet_alike(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"prompt": "p", "completion": "一"}, {"prompt": "q", "completion": "b"}]
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), table)
    assert list(raw_rows(lines)) == list(raw_rows(table)) == rows
    assert (row_unit(lines), row_unit(table)) == ("line", "row")


def test_what_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p"}\n{"prompt": \n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: not JSON"):
        list(raw_rows(path))
    with pytest.raises(ValueError, match=r"ends in \.jsonl or \.parquet"):
        list(raw_rows(tmp_path / "a.csv"))
    with pytest.raises(FileNotFoundError):
        list(raw_rows(tmp_path / "none.jsonl"))


def test_messages_keep_role_and_content_and_end_as_asked():
    said = [{"role": "user", "content": "hi", "name": "x"}]
    assert messages(said, "prompt", "user") == ({"role": "user", "content": "hi"},)
    assert text(said, "prompt", "user") == messages(said, "prompt", "user")
    assert text("plain", "prompt", "user") == "plain"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "is empty"),
        ([], "must be text or a list"),
        (3, "must be text or a list"),
        ([{"role": "user"}], "a message has a role and a content"),
        ([{"role": "user", "content": ""}], "a message has a role and a content"),
        ([{"role": "assistant", "content": "a"}], "must end with a message by 'user'"),
    ],
)
def test_anything_else_is_refused(value, told):
    with pytest.raises(ValueError, match=f"prompt: {told}"):
        text(value, "prompt", "user")
