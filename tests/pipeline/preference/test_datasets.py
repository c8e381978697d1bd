"""The data of a run: set apart, encoded, cut to the limits, and refused where it cannot be used."""

import json

import pytest

from veriloop.pipeline.config.preference import (
    PreferenceDataConfig,
    PreferenceLossConfig,
    ScheduleConfig,
)
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.datasets import build_dataset, load_rows

DPO, KTO = PreferenceLossConfig(), PreferenceLossConfig(name="kto")
OFFLINE = ScheduleConfig()


def data(**changes):
    return PreferenceDataConfig(**{"rows": 12, "held_out": 4} | changes)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


PAIRS = [{"prompt": f"p{i}", "chosen": "a", "rejected": "b"} for i in range(10)]


def test_held_out_rows_follow_the_training_rows(tmp_path):
    source = write(tmp_path / "x.jsonl", PAIRS)
    train, held_out = load_rows(data(source=source, rows=5, held_out=3))
    assert [r.prompt for r in train] == [f"p{i}" for i in range(5)]
    assert [r.prompt for r in held_out] == ["p5", "p6", "p7"]
    train, held_out = load_rows(data(source=source, rows=0, held_out=3))
    assert (len(train), held_out[0].prompt) == (7, "p7")


def test_general_pairs_are_held_out_by_entity_with_the_adversarial_share():
    train, held_out = load_rows(data(source="general", rows=300, held_out=200, adversarial=0.2))
    assert (len(train), len(held_out)) == (300, 200)
    assert not {r.prompt[0]["content"] for r in train} & {r.prompt[0]["content"] for r in held_out}
    for rows in (train, held_out):
        assert 0.1 < sum(r.group == "adversarial" for r in rows) / len(rows) < 0.3
    with pytest.raises(RecipeError, match=r"data.source: general preferences come as 'pairs'"):
        load_rows(data(source="general"), "ranked")


def test_too_few_rows_and_bad_rows_are_refused(tmp_path):
    source = write(tmp_path / "x.jsonl", PAIRS)
    for rows, held_out in ((8, 3), (0, 10)):
        with pytest.raises(RecipeError, match=r"has 10 rows; data.rows=\d+ and data.held_out=\d+"):
            load_rows(data(source=source, rows=rows, held_out=held_out))
    with pytest.raises(RecipeError, match=r"data.source: .*y\.jsonl, line 2: needs chosen"):
        load_rows(data(source=write(tmp_path / "y.jsonl", [PAIRS[0], {"prompt": "p"}])))


def test_generated_pairs_are_one_round_without_a_curriculum(tokenizer):
    made = build_dataset(data(), DPO, OFFLINE, tokenizer, (2,))
    assert [len(r) for r in made.rounds] == [12] and len(made.held_out) == 4
    assert made.facts == {"examples": 12, "held_out": 4, "too_long": 0}
    assert not set(made.rounds[0]) & set(made.held_out)


def test_kto_sees_both_answers_of_a_pair(tokenizer):
    made = build_dataset(data(), KTO, OFFLINE, tokenizer, (2,))
    assert len(made.rounds[0]) == 24 and sum(e.label for e in made.rounds[0]) == 12


@pytest.mark.parametrize("loss", [DPO, KTO])
def test_a_curriculum_has_its_rounds(tokenizer, loss):
    schedule = ScheduleConfig(name="curriculum", rounds=3)
    made = build_dataset(data(), loss, schedule, tokenizer, (2,))
    assert [len(r) for r in made.rounds] == [24 if loss is KTO else 12] * 3
    if loss is DPO:
        assert [{e.gap for e in r} for r in made.rounds] == [{3.0}, {2.0}, {1.0}]


def test_a_sampling_schedule_reads_only_held_out_examples(tokenizer):
    made = build_dataset(data(), DPO, ScheduleConfig(name="online", rounds=2), tokenizer, (2,))
    assert made.rounds == () and len(made.held_out) == 4


def test_examples_over_the_limits_are_left_out_counted_and_reported(tokenizer):
    said = []
    whole = build_dataset(data(), DPO, OFFLINE, tokenizer, (2,))
    longest = sorted(max(len(a.completion) for a in e.answers) for e in whole.rounds[0])
    made = build_dataset(
        data(max_completion=longest[5]), DPO, OFFLINE, tokenizer, (2,), said.append
    )
    kept = sum(length <= longest[5] for length in longest)
    assert len(made.rounds[0]) == kept < 12
    assert said[0].startswith(f"data: {12 - kept} training and ")
    assert made.facts["too_long"] == 12 - kept + 4 - len(made.held_out)
    with pytest.raises(RecipeError, match="every example exceeds max_prompt=1 or"):
        build_dataset(data(max_prompt=1), DPO, OFFLINE, tokenizer, (2,))


def test_labels_are_only_for_kto(tokenizer, tmp_path):
    rows = [{"prompt": f"p{i}", "completion": "a", "label": i % 2 == 0} for i in range(16)]
    source = write(tmp_path / "x.jsonl", rows)
    assert len(build_dataset(data(source=source), KTO, OFFLINE, tokenizer, (2,)).rounds[0]) == 12
    with pytest.raises(RecipeError, match="which only the loss kto reads"):
        build_dataset(data(source=source), DPO, OFFLINE, tokenizer, (2,))


def test_rows_with_a_held_out_prompt_are_not_trained(tmp_path):
    rows = [*PAIRS, {"prompt": "p0", "chosen": "c", "rejected": "b"}]
    source = write(tmp_path / "x.jsonl", rows)
    said = []
    train, held_out = load_rows(data(source=source, rows=0, held_out=1), say=said.append)
    assert [row.prompt for row in held_out] == ["p0"]
    assert [row.prompt for row in train] == [f"p{i}" for i in range(1, 10)]
    assert said == ["data: 1 training rows with a held-out prompt are left out"]
    source = write(tmp_path / "y.jsonl", [PAIRS[0]] * 3)
    with pytest.raises(RecipeError, match="no prompt that is not held out"):
        load_rows(data(source=source, rows=0, held_out=1))


@pytest.mark.parametrize("kind", ["pairs", "labelled", "ranked"])
def test_generated_rows_are_as_many_as_asked_for_without_a_held_out_prompt(kind):
    train, held_out = load_rows(data(source="arithmetic", rows=600, held_out=300), kind)
    assert (len(train), len(held_out)) == (600, 300)
    assert not {repr(row.prompt) for row in train} & {repr(row.prompt) for row in held_out}
