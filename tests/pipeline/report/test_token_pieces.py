"""The tokenizer whose pieces a page shows."""

import json

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.token_pieces import TokenPieces, read_tokenizer


def test_pieces_concatenate_to_the_text(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    ids = tokenizer("One more: 三. ", add_special_tokens=False).input_ids
    pieces = TokenPieces(read_tokenizer(tmp_path / "tokenizer.json"))
    assert "".join(pieces.table[i] for i in pieces.indices(ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("damage", ["cut off", "an id that is a text", "empty"])
def test_a_damaged_tokenizer_is_named(damage, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    text = path.read_text()
    saved = json.loads(text)
    saved["model"]["vocab"][next(iter(saved["model"]["vocab"]))] = "../.."
    damaged = {"cut off": text[:-99], "an id that is a text": json.dumps(saved), "empty": ""}
    path.write_text(damaged[damage])
    with pytest.raises(RecipeError, match=r"tokenizer\.json is no tokenizer \(.+\)\. Put a copy"):
        read_tokenizer(path)
