"""A set as a source: shuffled, endless, what is held out apart, every row accounted for."""

import json
from dataclasses import replace

import pytest

from veriloop.data.decontaminate import Overlap
from veriloop.data.hub.layout import Layout
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.source import SetSource, SourceSpec, hash_fraction, open_source
from veriloop.data.problem import Problem


def sums(count, first=0):
    return [
        {"question": f"Ann has {n} pears and buys two more.", "answer": f"#### {n + 2}"}
        for n in range(first, first + count)
    ]


def ids(problems):
    return [one.id for one in problems]


@pytest.fixture
def source(written):
    made, _ = open_source(SourceSpec(name="gsm8k", path=written(sums(20)), held_out=0.3))
    return made


def test_random_access_is_the_same_in_any_order_and_another_for_another_seed(source):
    forward = [source.problem("rl", 1, n).id for n in range(60)]
    assert [source.problem("rl", 1, n).id for n in reversed(range(60))] == forward[::-1]
    assert [source.problem("rl", 2, n).id for n in range(60)] != forward


def test_every_question_comes_once_a_turn_and_in_another_order_each_turn(source):
    count = len(source.distinct("rl", 0, 99))
    turns = [[source.problem("rl", 0, t * count + n).id for n in range(count)] for t in range(3)]
    assert len(set(turns[0])) == count
    assert sorted(turns[0]) == sorted(turns[1]) == sorted(turns[2])
    assert turns[0] != turns[1] != turns[2]
    assert ids(source.distinct("rl", 0, 5)) == turns[0][:5]


def test_a_share_is_held_out_by_the_words_of_a_question_alone(source, written):
    learned, held = source.distinct("rl", 0, 99), source.distinct("test", 0, 99)
    assert len(learned) + len(held) == 20 and 2 <= len(held) <= 12
    assert not set(ids(learned)) & set(ids(held))
    assert all(hash_fraction(one.prompt) < 0.3 for one in held)
    more, _ = open_source(SourceSpec(name="gsm8k", path=written(sums(90)[::-1]), held_out=0.3))
    assert {one.prompt for one in held} <= {one.prompt for one in more.distinct("test", 0, 99)}


def test_hashes_spread_evenly_and_see_no_layout():
    found = [hash_fraction(f"question {n}") for n in range(2000)]
    assert 0.47 < sum(found) / len(found) < 0.53 and min(found) >= 0 and max(found) < 1
    assert hash_fraction("What is  2+3?\n") == hash_fraction("what is 2+3?")


def test_a_split_of_the_set_or_a_file_can_be_held_out(written, tmp_path):
    written(sums(4), "set/train.jsonl")
    test = written(sums(3, 50), "set/test.jsonl")
    for asked in (
        SourceSpec(name="gsm8k", path=str(tmp_path / "set")),
        SourceSpec(name="gsm8k", path=str(tmp_path / "set/train.jsonl"), test=test),
    ):
        made, facts = open_source(asked)
        assert (facts["learned"], facts["held_out"]) == (4, 3)
        assert {one.id.split("/")[1] for one in made.distinct("test", 0, 9)} == {"test"}


def test_a_set_that_is_only_examined_has_nothing_to_learn(rows, written):
    made, facts = open_source(SourceSpec(name="math500", path=written(rows["math500"])))
    assert (facts["learned"], facts["held_out"]) == (0, 1)
    with pytest.raises(ValueError, match="math500: no question to train on"):
        made.problem("rl", 0, 0)
    learned_only, _ = open_source(SourceSpec(name="gsm8k", path=written(sums(2))))
    with pytest.raises(ValueError, match=r"gsm8k: no question is held out: give `test`"):
        learned_only.distinct("test", 0, 1)


def test_every_row_is_learned_held_out_or_counted_by_its_reason(written):
    found = sums(6) + sums(1) + [{"question": "q", "answer": "none"}]
    test = written(sums(2, 4) + sums(1, 90), "test.jsonl")
    evaluated = Overlap(["Ben knows that Ann has 3 pears and buys two more."], 8)
    made, facts = open_source(
        SourceSpec(
            name="gsm8k",
            path=written(found),
            test=test,
            fits=lambda one: " 1 " not in one.prompt,
        ),
        evaluated,
    )
    assert facts["dropped"] == {
        "duplicate": 1, "no #### answer": 1, "prompt too long": 1, "also held out": 2,
        "contaminated": 1,
    }  # fmt: skip
    assert (facts["learned"], facts["held_out"]) == (2, 3)
    assert facts["learned"] + sum(facts["dropped"].values()) == len(found)
    assert {one.reference["answer"] for one in made.distinct("rl", 0, 9)} == {"2", "4"}


def test_only_the_first_rows_are_read_where_a_number_is_given(written):
    made, facts = open_source(SourceSpec(name="gsm8k", path=written(sums(9)), rows=4))
    assert facts["learned"] == 4
    assert {one.id for one in made.distinct("rl", 0, 9)} == {f"gsm8k/train/{n}" for n in range(4)}
    unusable = [{"question": "q", "answer": "none"}] * 3
    rows = written(sums(1) + unusable + sums(2, 1), "more.jsonl")
    _, facts = open_source(SourceSpec(name="gsm8k", path=rows, rows=3))
    assert (facts["learned"], facts["dropped"]) == (1, {"no #### answer": 2})


def test_problems_of_an_exported_file_are_of_the_set_that_the_recipe_names(written):
    label = {"verifier": "number", "reference": {"value": "2"}, "facts": {"source": "gsm8k"}}
    row = {
        "prompt": [{"role": "user", "content": "1+1?"}],
        "label": json.dumps(label),
        "id": "gsm8k/train/0",
    }
    made, _ = open_source(SourceSpec(name="easy", path=written([row])))
    assert made.problem("rl", 0, 0).facts["source"] == "easy"


def test_the_fingerprint_is_of_what_is_asked(written):
    def told(rows):
        return open_source(SourceSpec(name="gsm8k", path=written(rows)))[1]["sha256"]

    assert told(sums(3)) == told([*sums(3), {"question": "q", "answer": "none"}])
    assert told(sums(3)) != told(sums(4))


def test_columns_nobody_mapped_are_given(written):
    layout = Layout(
        ask=("{frage}",), verifier="number", read="number", reference={"value": "antwort"}
    )
    path = written([{"frage": "Zwei?", "antwort": 2}])
    made, _ = open_source(SourceSpec(name="mine", path=path, layout=layout))
    assert made.problem("rl", 0, 0) == Problem(
        id="mine/train/0",
        prompt="Zwei?",
        verifier="number",
        reference={"value": "2"},
        facts={"source": "mine", "language": "en"},
    )


def test_a_question_for_each_verifier_is_shown():
    problems = [
        Problem(id=f"s/train/{n}", prompt=f"{n}", verifier=verifier, reference={})
        for n, verifier in enumerate(["number", "choice", "number"])
    ]
    kinds = SetSource("s", problems[:1], problems[1:]).kinds()
    assert sorted(one.verifier for one in kinds) == ["choice", "number"]


def test_preferences_are_no_questions(rows, written):
    with pytest.raises(ValueError, match="hh_rlhf: holds preferences rows, not questions"):
        open_source(SourceSpec(name="hh_rlhf", path=written(rows["hh_rlhf"])))


def test_the_words_of_a_template_are_shared_by_all_and_compared_in_none(written):
    def spec(*functions):
        rows = [{"prompt": f"def {name}():\n    pass", "test": "def check(candidate):\n"
                 "    assert candidate() == 1", "entry_point": name, "task_id": name,
                 "canonical_solution": "    return 1"} for name in functions]  # fmt: skip
        return SourceSpec(name="humaneval", path=written(rows, f"{functions[0]}.jsonl"))

    exam, _ = open_source(spec("alpha"))
    asked = [problem.prompt for problem in exam.distinct("test", 0, 9)]
    against = Overlap(asked, 10)
    assert against.overlaps(asked[0].replace("alpha", "beta"))  # with its template
    layout = replace(SETS["humaneval"], train="train")
    mixed = replace(spec("beta", "alpha"), layout=layout)
    made, facts = open_source(mixed, against)
    assert (facts["learned"], facts["dropped"]) == (1, {"contaminated": 1})
    assert "beta" in made.problem("rl", 0, 0).prompt


def test_a_training_split_of_a_single_file_is_refused(written):
    with pytest.raises(ValueError, match=r"train='validation' is a split, and .* holds one alone"):
        open_source(SourceSpec(name="gsm8k", path=written(sums(2)), train="validation"))


def test_an_exported_file_is_read_under_the_name_of_its_set(written):
    label = {"verifier": "math_answer", "reference": {"answer": "2"}, "facts": {}}
    prompt = [{"role": "user", "content": "1+1?"}]
    row = {"prompt": prompt, "label": json.dumps(label), "id": "gsm8k/train/0"}
    made, _ = open_source(SourceSpec(name="gsm8k", path=written([row])))
    assert made.problem("rl", 0, 0).reference == {"answer": "2"}


def test_a_row_that_lacks_a_column_is_counted_beyond_the_first(written):
    rows = [*sums(1), {"question": "Without?"}, *sums(1, 5)]
    _, facts = open_source(SourceSpec(name="gsm8k", path=written(rows)))
    assert (facts["learned"], facts["dropped"]) == (2, {"no column answer": 1})
    with pytest.raises(ValueError, match=r"no column 'answer'\. The rows have question"):
        open_source(SourceSpec(name="gsm8k", path=written(rows[1:], "first.jsonl")))
