"""Rows of supervised fine-tuning: every layout of TRL's, and what is wrong named by line."""

import json

import pytest

from veriloop.data.sft_rows import Conversation, PlainText, parse_rows, question, read

USER, SAID = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}


def test_every_layout_is_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"prompt": "1+1?", "completion": "2", "extra": 7},
        {"prompt": [USER], "completion": [SAID]},
        {"messages": [USER, SAID, USER, SAID], "completion": None},
        {"text": "a whole document"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain, answered, talk, document = read(path)
    assert plain == PlainText(prompt="1+1?", completion="2")
    assert answered == Conversation(messages=(USER, SAID), prompt_length=1)
    assert answered.turns == (1,)
    assert talk.turns == (1, 3) and talk.prompt_length == 0
    assert document == PlainText(prompt="", completion="a whole document")


def test_turns_of_the_prompt_are_not_learned():
    (row,) = parse_rows([{"prompt": [USER, SAID, USER], "completion": [SAID, USER, SAID]}], "row")
    assert row.turns == (3, 5)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"prompt": "p", "completions": "c"}, r"'completions' is near 'completion'"),
        ({"completion": "c"}, "prompt: is missing"),
        ({"prompt": "p", "completion": "c", "text": "t"}, "completion and text exclude each other"),
        ({"prompt": "p", "completion": [SAID]}, "both be text, or both messages"),
        ({"prompt": [USER], "completion": "c"}, "both be text, or both messages"),
        ({"prompt": "p", "completion": ""}, "completion: is empty"),
        ({"text": [SAID]}, "text: must be text"),
        ({"messages": [USER]}, "must end with a message by 'assistant'"),
        ({"messages": [SAID]}, "must begin with what the assistant answers to"),
        ([], "a row is an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(row, told):
    good = {"prompt": "p", "completion": "c"}
    with pytest.raises(ValueError, match=rf"here, line 2: .*{told}"):
        parse_rows([good, row], "here, line")


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no rows"):
        read(tmp_path / "none.jsonl")


def test_rows_that_ask_the_same_have_one_question():
    rows = parse_rows(
        [
            {"prompt": [USER], "completion": [SAID]},
            {"messages": [USER, {"role": "assistant", "content": "two"}]},
            {"prompt": "1+1?", "completion": "2"},
            {"text": "2"},
            {"messages": [USER, SAID, {"role": "user", "content": "Sure?"}, SAID]},
        ],
        "row",
    )
    asked = [question(row) for row in rows]
    assert asked[0] == asked[1] == asked[4] == "user: 1+1?" and asked[2:4] == ["1+1?", "2"]
