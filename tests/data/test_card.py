"""A data file and its card: rows, hash and reasons, and no card for data that are not whole."""

import hashlib
import json

from veriloop.data.card import card_of, read_card, write_data

ROWS = [{"prompt": "p", "completion": "一"}, {"prompt": "q", "completion": "b"}]
FACTS = {"seed": 3, "dropped": {"wrong": 5, "long_paragraph": 1}}


def test_the_card_says_what_the_data_are(tmp_path):
    data = tmp_path / "made" / "data.jsonl"
    card = write_data(data, ROWS, FACTS)
    assert card == card_of(data) == tmp_path / "made" / "data.card.json"
    assert [json.loads(line) for line in data.read_text().splitlines()] == ROWS
    told = read_card(data)
    assert told["rows"] == 2 and told["seed"] == 3 and told["dropped"] == FACTS["dropped"]
    assert told["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()


def test_people_read_it_as_a_table(tmp_path):
    write_data(tmp_path / "data.jsonl", ROWS, FACTS)
    text = (tmp_path / "data.card.md").read_text()
    assert text.startswith("# data.jsonl\n") and "- rows: 2" in text
    assert "## dropped" in text and "| long paragraph | 1 |" in text


def test_changed_or_torn_data_have_no_card(tmp_path):
    data = tmp_path / "data.jsonl"
    assert read_card(data) is None
    write_data(data, ROWS, FACTS)
    whole = data.read_text()
    data.write_text(whole[:-5])
    assert read_card(data) is None
    data.write_text(whole)
    assert read_card(data) is not None
    card_of(data).write_text('{"rows": 2')
    assert read_card(data) is None


def test_the_same_rows_give_the_same_bytes(tmp_path):
    made = []
    for name in ("a", "b"):
        data = tmp_path / name / "data.jsonl"
        write_data(data, ROWS, FACTS)
        made.append((data.read_bytes(), card_of(data).read_bytes()))
    assert made[0] == made[1]
    assert not list(tmp_path.rglob(".*"))
