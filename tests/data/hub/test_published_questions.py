"""GSM8K and SVAMP as they are published, where their files are at hand beside the project."""

from pathlib import Path

import pytest

from veriloop.data.hub.load import read
from veriloop.data.hub.reference_answers import reference_answers
from veriloop.data.hub.source import SourceSpec, open_source
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.rollouts.sources import sources_of
from veriloop.verifiers.registry import judge

GIVEN = Path(__file__).parents[4] / "shared/data"
GSM8K = {"path": str(GIVEN / "gsm8k_train.jsonl"), "test": str(GIVEN / "gsm8k_test.jsonl")}
SVAMP = {"path": str(GIVEN / "svamp.jsonl"), "held_out": 0.3}
FILES = {"gsm8k_train": ("gsm8k", 7473), "gsm8k_test": ("gsm8k", 1319), "svamp": ("svamp", 1000)}
WITHOUT_STEPS = {"svamp": 2}  # a number alone, and an equation that does not give the answer

pytestmark = pytest.mark.skipif(not GIVEN.is_dir(), reason="no published questions at hand")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_row_is_a_question_with_steps(file):
    name, count = FILES[file]
    reader = read(name, path=str(GIVEN / f"{file}.jsonl"))
    entries = list(reader)
    assert (len(entries), reader.dropped) == (count, {})
    assert sum(not entry.worked for entry in entries) == WITHOUT_STEPS.get(file, 0)
    assert not any("<<" in entry.worked or "####" in entry.worked for entry in entries)


@pytest.mark.parametrize("file", ["gsm8k_test", "svamp"])
def test_own_answers_are_right_and_those_of_the_next_question_wrong(file):
    entries = list(read(FILES[file][0], path=str(GIVEN / f"{file}.jsonl")))[:100]
    answers = [reference_answers(entry)[0] for entry in entries]
    assert all(judge(e.problem, a).score == 1.0 for e, a in zip(entries, answers, strict=True))
    wrong = [
        judge(entry.problem, answer).score
        for entry, answer in zip(entries, answers[1:], strict=False)
        if reference_answers(entry)[0] != answer
    ]
    assert len(wrong) > 80 and not any(wrong)


@pytest.mark.slow
def test_few_training_questions_of_gsm8k_show_its_test_questions():
    config = SetConfig(**GSM8K, against=("gsm8k",))
    facts = sources_of(["gsm8k"], {"gsm8k": config})[1]["gsm8k"]
    assert facts["held_out"] == 1319
    assert 0 < facts["dropped"]["contaminated"] < 100
    assert facts["learned"] + sum(facts["dropped"].values()) == 7473


def test_svamp_is_split_by_a_hash():
    source, facts = open_source(SourceSpec(name="svamp", **SVAMP))
    assert 200 < facts["held_out"] < 400
    learned, held_out = ({p.prompt for p in source.distinct(s, 0, 999)} for s in ("rl", "test"))
    assert len(learned) == facts["learned"] and not learned & held_out
