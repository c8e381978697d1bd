"""Rejection sampling as a stage: verified answers, three to one with general rows."""

import json
from collections import Counter

import pytest

from veriloop.data.card import read_card
from veriloop.data.decontaminate import Overlap
from veriloop.pipeline.config.sft import GeneralConfig, RejectionRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.stages import rejection_sft
from veriloop.stages.rejection_sft import mix_general

NOTHING = Overlap(())
ROWS = [{"text": str(n), "source": "arithmetic"} for n in range(12)]


@pytest.fixture
def recipe(collected_values):
    def build(**changes):
        return RejectionRecipe.model_validate(collected_values | changes)

    return build


@pytest.fixture
def general(tmp_path):
    """Factory of files of general rows."""

    def write(count):
        path = tmp_path / "general.jsonl"
        rows = [{"prompt": f"Hello {n}", "completion": "Hi!", "rating": 5} for n in range(count)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def sources(rows):
    return Counter(row["source"] for row in rows)


@pytest.mark.slow
def test_it_learns_both_kinds_from_the_base(recipe, tmp_path):
    made = rejection_sft.run(recipe(), tmp_path, resume=False)
    told = json.loads((tmp_path / "run.json").read_text())["stages"][-1]
    assert (told["name"], told["status"]) == ("rejection_sft", "done")
    assert told["outputs"]["checkpoint"] == str(made) and told["outputs"]["rows"] == 16
    data = tmp_path / "rejection_sft" / "data.jsonl"
    card = read_card(data)
    assert card["sources"] == {"arithmetic": 12, "general": 4} and card["rows"] == 16
    assert card["general"] == {"wanted": 4, "found": 4, "contaminated": 0}
    assert card["dropped"] == {"wrong": 12}
    kinds = [json.loads(line)["source"] for line in data.read_text().splitlines()]
    assert kinds != sorted(kinds)  # not one kind after the other


@pytest.mark.parametrize(("reasoning", "wanted"), [(3, 4), (1, 12), (5, 2), (0, 0)])
def test_the_proportion_is_the_recipes(reasoning, wanted):
    rows, facts = mix_general(ROWS, GeneralConfig(reasoning=reasoning), 0, NOTHING)
    assert sources(rows)["arithmetic"] == 12 and sources(rows)["general"] == wanted
    assert facts == {"general": {"wanted": wanted, "found": wanted, "contaminated": 0}}


def test_general_rows_come_from_a_file_too_drawn_by_their_seed(general):
    config = GeneralConfig(source=general(40))
    rows, _ = mix_general(ROWS, config, 0, NOTHING)
    drawn = [row for row in rows if row["source"] == "general"]
    assert len(drawn) == 4 and all(
        row.keys() == {"prompt", "completion", "source"} for row in drawn
    )
    assert mix_general(ROWS, config, 0, NOTHING)[0] == rows
    other = mix_general(ROWS, GeneralConfig(source=config.source, seed=1), 0, NOTHING)[0]
    assert {r["prompt"] for r in other if "prompt" in r} != {row["prompt"] for row in drawn}


def test_a_file_with_too_few_rows_gives_what_it_has_and_the_card_says_so(general):
    rows, facts = mix_general(ROWS, GeneralConfig(source=general(3)), 0, NOTHING)
    counts = {"wanted": 4, "found": 3, "contaminated": 0}
    assert sources(rows)["general"] == 3 and facts == {"general": counts}


def test_general_rows_of_a_file_that_hold_evaluation_texts_are_left_out(general):
    rows, facts = mix_general(ROWS, GeneralConfig(source=general(4)), 0, Overlap(["Hello 2"], 2))
    prompts = {row["prompt"] for row in rows if "prompt" in row}
    assert prompts == {"Hello 0", "Hello 1", "Hello 3"}
    assert facts == {"general": {"wanted": 4, "found": 3, "contaminated": 1}}


def test_a_source_that_is_not_there_or_holds_something_else_is_refused(recipe, general, tmp_path):
    with pytest.raises(RecipeError, match=r"'nothing\.jsonl' is no file, and not one of"):
        rejection_sft.run(recipe(general={"source": "nothing.jsonl"}), tmp_path, resume=False)
    assert not (tmp_path / "run.json").exists()
    path = general(1)
    with open(path, "a") as file:
        file.write('{"question": "?"}\n')
    with pytest.raises(RecipeError, match=r"general\.source: .*line 2: needs prompt"):
        mix_general(ROWS, GeneralConfig(source=path), 0, NOTHING)
