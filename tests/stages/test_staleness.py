"""When a recorded stage is current, by its entry in run.json alone."""

import pytest

from veriloop.pipeline.config.load import read
from veriloop.pipeline.runs import lineage
from veriloop.stages.staleness import stale_reason


@pytest.fixture
def entry():
    """The entry of a finished base stage."""
    values = read("tiny/base").model_dump(mode="json")
    return {"status": "done", "inputs": {"recipe": values}, "lineage": lineage.read_by(values)}


def test_a_setting_that_the_record_does_not_have_counts_only_with_another_value(entry, tmp_path):
    recipe = read("tiny/base")
    recorded = entry["inputs"]["recipe"]
    del recorded["compute"], recorded["corpus"]["step_errors"]
    entry["lineage"] = lineage.read_by(recorded)
    assert recipe.compute == "float32" and stale_reason(entry, recipe, tmp_path) == ""
    other = recipe.model_copy(update={"compute": "bfloat16"})
    assert stale_reason(entry, other, tmp_path) == (
        "its recipe changed (compute: 'float32' -> 'bfloat16')"
    )


def test_a_setting_that_is_gone_counts(entry, tmp_path):
    entry["inputs"]["recipe"]["former"] = 1
    assert stale_reason(entry, read("tiny/base"), tmp_path) == (
        "its recipe changed (former: 1 -> None)"
    )
