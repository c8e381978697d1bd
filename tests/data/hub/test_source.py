"""A set as a source: shuffled, endless, what is held out apart, every row accounted for."""

import json
from dataclasses import replace
from random import Random

import pytest

from veriloop.data.decontaminate import Overlap
from veriloop.data.hub import files
from veriloop.data.hub import source as sources
from veriloop.data.hub.layout import Layout
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.source import (
    SetSource,
    SourceSpec,
    hash_fraction,
    open_source,
    require_rows,
)
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


def exported(number):
    """A row of gsm8k in the layout of an exported file."""
    label = {"verifier": "math_answer", "reference": {"answer": str(number + 1)}, "facts": {}}
    prompt = [{"role": "user", "content": f"{number}+1?"}]
    return {"prompt": prompt, "label": json.dumps(label), "id": f"gsm8k/train/{number}"}


def test_of_two_files_each_is_read_in_its_own_layout(written):
    ours, theirs = written([exported(1)], "ours.jsonl"), written(sums(2), "theirs.jsonl")
    for path, test, counts in ((ours, theirs, (1, 2)), (theirs, ours, (2, 1))):
        spec = SourceSpec(name="gsm8k", path=path, test=test)
        _, facts = open_source(spec)
        assert (facts["learned"], facts["held_out"]) == counts
        require_rows(spec, ("rl", "test"))


def test_orders_of_the_last_four_passes_are_kept(source, monkeypatch):
    drawn, count = [], len(source.distinct("rl", 1, 99))

    class Noted(Random):
        def __init__(self, seed):
            drawn.append(seed)
            super().__init__(seed)

    monkeypatch.setattr(sources, "Random", Noted)

    def shuffled(*passes):
        drawn.clear()
        for one in passes:
            source.problem("rl", 0, one * count)
        return len(drawn)

    assert shuffled(0, 1, 2, 3) == 4 and shuffled(3, 2, 1, 0) == 0
    assert shuffled(4, 1, 2, 3) == 1 and shuffled(0) == 1


def test_a_question_at_the_share_itself_is_learned(written):
    rows = sums(20)
    fractions = sorted(hash_fraction(row["question"]) for row in rows)
    spec = SourceSpec(name="gsm8k", path=written(rows), held_out=fractions[4])
    made, facts = open_source(spec)
    assert (facts["learned"], facts["held_out"]) == (16, 4)
    assert fractions[4] in [hash_fraction(one.prompt) for one in made.distinct("rl", 0, 99)]
    lowest = replace(spec, held_out=fractions[0])
    with pytest.raises(ValueError, match=r"no question is held out: .* of 20 questions"):
        require_rows(lowest, ("test",))
    require_rows(replace(spec, held_out=fractions[1]), ("test",))


def test_steps_to_the_answer_are_those_of_the_row(rows, written):
    made, facts = open_source(SourceSpec(name="gsm8k", path=written(rows["gsm8k"])))
    said = {made.answer(one): made.worked(one) for one in made.distinct("rl", 0, 9)}
    assert said == {"72": "She has 70+2=72.", "-1200": ""}
    assert facts["path"].endswith(".jsonl")


@pytest.mark.parametrize("asked", [(), ("rl", "test")])
def test_a_set_of_the_hub_is_downloaded_in_the_configuration_that_is_asked_for(monkeypatch, asked):
    read = []

    def rows(name, layout, path, split, *, config, streaming):
        read.append((name, path, split, config, streaming))
        return iter(sums(2, 10 * len(read)))

    monkeypatch.setattr(files, "rows", rows)
    monkeypatch.setattr(sources, "rows", rows)
    spec = SourceSpec(name="gsm8k", config="socratic")
    require_rows(spec, asked)
    splits = [("gsm8k", "", split, "socratic", False) for split in ("train", "test")]
    assert read == splits
    read.clear()
    _, facts = open_source(spec)
    assert read == splits and facts["path"] == "openai/gsm8k"


UNUSABLE = {"question": "q", "answer": "none"}


def test_rows_before_the_first_question_do_not_matter(written, tmp_path):
    written([UNUSABLE] * 3 + sums(1), "set/train.jsonl")
    written([UNUSABLE] * 2 + sums(1, 5), "set/test.jsonl")
    require_rows(SourceSpec(name="gsm8k", path=str(tmp_path / "set")), ("rl", "test"))


@pytest.mark.parametrize(
    ("train", "test", "asked", "message"),
    [
        ([], sums(1), ["rl"], r"no question to train on: split 'train' has 0 rows$"),
        (
            [UNUSABLE] * 2, sums(1), ["rl"],
            r"to train on: split 'train' has 2 rows; 2 no #### answer$",
        ),
        (sums(1), [UNUSABLE], ["test"], r"no question is held out: split 'test' has 1 row; 1 no"),
    ],
)  # fmt: skip
def test_a_split_without_a_question_is_refused_where_it_is_asked(
    written, tmp_path, train, test, asked, message
):
    written(train, "set/train.jsonl")
    written(test, "set/test.jsonl")
    spec = SourceSpec(name="gsm8k", path=str(tmp_path / "set"))
    with pytest.raises(ValueError, match=message):
        require_rows(spec, asked)
    require_rows(spec, [split for split in ("rl", "test") if split not in asked])
    require_rows(spec)


def test_a_split_that_there_is_none_of_is_refused_where_it_is_asked(rows, written):
    examined = SourceSpec(name="math500", path=written(rows["math500"]))
    with pytest.raises(ValueError, match="no question to train on: it has no training split"):
        require_rows(examined, ["rl"])
    require_rows(examined, ["test"])
    learned = SourceSpec(name="gsm8k", path=written(sums(1), "learned.jsonl"))
    with pytest.raises(ValueError, match="no question is held out: give `test`, a split or a file"):
        require_rows(learned, ["test"])
    require_rows(learned, ["rl"])


def test_another_file_than_the_set_is_found_by_its_first_row(written, tmp_path):
    other = [{"prompt": "p", "answer": "#### 1"}]
    written(sums(1), "set/train.jsonl")
    written(sums(1), "set/test.jsonl")
    for split in ("train", "test"):
        spec = SourceSpec(name="gsm8k", path=str(tmp_path / "set"))
        require_rows(spec)
        (tmp_path / f"set/{split}.jsonl").write_text("[1]\n")
        with pytest.raises(ValueError, match=f"{split}.jsonl, row 1: must be an object"):
            require_rows(spec)
        written(sums(1), f"set/{split}.jsonl")
    with pytest.raises(ValueError, match="no column 'question'"):
        require_rows(SourceSpec(name="gsm8k", path=written(other, "other.jsonl")), ["rl"])


@pytest.mark.parametrize(
    ("share", "asked", "message"),
    [
        (1e-9, ["rl", "test"], r"is held out: held_out=1e-09 of 20 questions.* a larger share"),
        (0.999, ["rl"], r"is left to train on: held_out=0.999 of 20 questions.* a smaller share"),
    ],
)
def test_a_share_of_no_question_or_of_all_is_refused_where_it_is_asked(
    written, share, asked, message
):
    spec = SourceSpec(name="gsm8k", path=written(sums(20)), held_out=share)
    with pytest.raises(ValueError, match=message):
        require_rows(spec, asked)
    require_rows(spec, ["test" if share > 0.5 else "rl"])
    require_rows(spec)
    require_rows(replace(spec, held_out=0.3), ["rl", "test"])


def test_rows_of_preferences_are_refused_as_questions(rows, written):
    with pytest.raises(ValueError, match="hh_rlhf: holds preferences rows, not questions"):
        require_rows(SourceSpec(name="hh_rlhf", path=written(rows["hh_rlhf"])))
