"""What is exported for another trainer has its own row format, and is the same problems again."""

import json

import pyarrow.parquet as pq
import pytest

from veriloop.data.card import read_card
from veriloop.data.columns import raw_rows
from veriloop.data.hub.export import UNANSWERED, Exporter, require_writable, write
from veriloop.data.hub.load import read
from veriloop.data.hub.reference_answers import reference_answers
from veriloop.data.hub.sets import SETS
from veriloop.verifiers.adapters.verl import compute_score
from veriloop.verifiers.labels import find_label, problem_for

PROBLEMS = [name for name, layout in SETS.items() if layout.kind == "problems"]
FILES = {
    "trl": ("jsonl", "parquet"),
    "trl-completion": ("jsonl", "parquet"),
    "verl": ("parquet",),
    "openrlhf": ("jsonl",),
    "mot": ("jsonl", "parquet"),
}
EVERY = [(to, ending) for to, endings in FILES.items() for ending in endings]


@pytest.fixture
def exported(rows, written, tmp_path):
    """Function: the rows of a set, exported to a file."""

    def make(name, to, ending, found=None):
        path = tmp_path / f"{name}-{to}.{ending}"
        given = written(found or rows[name], f"{name}.jsonl")
        write(path, Exporter(read(name, path=given), to, count_tokens=len))
        return path

    return make


def first(path):
    return next(iter(raw_rows(path)))


@pytest.mark.slow
@pytest.mark.parametrize(("to", "ending"), EVERY)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_was_exported_is_read_as_the_same_problems(name, to, ending, exported, rows, written):
    entries = list(read(name, path=written(rows[name])))
    if to in ("trl-completion", "mot"):
        entries = [one for one in entries if reference_answers(one)]
    if not entries:
        assert name in ("livecodebench", "codeforces")
        with pytest.raises(
            ValueError, match=rf"no row can be written for {to}: \d no reference answer"
        ):
            exported(name, to, ending)
        return
    path = exported(name, to, ending)
    made = [entry.problem for entry in read(path.name, path=str(path))]
    assert made == [one.problem for one in entries]


def test_trl_has_conversational_prompts_and_the_answer_next_to_them(exported):
    assert first(exported("gsm8k", "trl", "jsonl")) == {
        "prompt": [{"role": "user", "content": "Ann has 70 and 2. All?"}],
        "solution": "72",
        "label": '{"verifier": "math_answer", "reference": {"answer": "72"}, '
        '"facts": {"source": "gsm8k", "language": "en"}}',
        "id": "gsm8k/train/0",
    }
    answered = first(exported("gsm8k", "trl-completion", "jsonl"))
    assert answered["completion"] == [{"role": "assistant", "content": "\\boxed{72}"}]


def test_verl_has_every_column_of_its_parquet_rows(exported):
    row = first(exported("math", "verl", "parquet"))
    label = row["extra_info"].pop("label")
    assert row == {
        "data_source": "math",
        "prompt": [{"content": "What is $\\frac12+\\frac14$?", "role": "user"}],
        "ability": "math",
        "reward_model": {"ground_truth": "\\frac{3}{4}", "style": "rule"},
        "extra_info": {
            "id": "math/train/0",
            "index": 0,
            "prompt": "What is $\\frac12+\\frac14$?",
            "split": "train",
        },
    }
    assert json.loads(label)["verifier"] == "math_answer"
    code = first(exported("apps", "verl", "parquet"))
    assert code["ability"] == "code" and "expected_stdout" in code["reward_model"]["ground_truth"]


@pytest.mark.slow
def test_verls_reward_function_of_ours_judges_its_own_rows(exported):
    row = first(exported("math", "verl", "parquet"))
    told = {
        "data_source": row["data_source"],
        "ground_truth": row["reward_model"]["ground_truth"],
        "extra_info": row["extra_info"],
    }
    assert compute_score(solution_str="\\boxed{0.75}", **told)["score"] == 1.0
    assert compute_score(solution_str="\\boxed{0.7}", **told)["score"] == 0.0
    repeated = "\\boxed{\\frac14+\\frac12}"
    assert compute_score(solution_str=repeated, **told)["score"] == 0.0


def test_openrlhf_has_input_and_a_label_that_the_reward_server_reads(exported):
    row = first(exported("countdown", "openrlhf", "jsonl"))
    assert set(row) == {"input", "label", "id"} and row["input"].startswith("Using the numbers [44")
    asked = problem_for(row["label"])
    assert (asked.verifier, asked.reference) == (
        "countdown", {"numbers": [44, 19, 35], "target": 98},
    )  # fmt: skip
    assert find_label(row) == row["label"]


def test_thoughts_have_messages_their_length_and_where_they_are_from(exported):
    row = first(exported("gsm8k", "mot", "jsonl"))
    assert [one["role"] for one in row["messages"]] == ["user", "assistant"]
    assert (row["num_tokens"], row["source"]) == (len("\\boxed{72}"), "gsm8k")
    schema = pq.read_schema(exported("gsm8k", "mot", "parquet"))
    assert str(schema.field("num_tokens").type) == "int64"


def test_rows_to_learn_from_are_exported_as_they_are(exported, rows):
    thought = rows["mixture_of_thoughts"]
    assert list(raw_rows(exported("mixture_of_thoughts", "mot", "jsonl"))) == thought
    assert list(raw_rows(exported("mixture_of_thoughts", "trl", "jsonl"))) == thought
    pair = first(exported("hh_rlhf", "trl", "jsonl"))
    assert list(pair) == ["prompt", "chosen", "rejected"]


def test_what_has_no_answer_of_its_own_is_counted(rows, written):
    reading = read("apps", path=written(rows["apps"]))
    made = Exporter(reading, "trl-completion")
    assert len(list(made)) == 1
    assert dict(made.dropped) == {UNANSWERED: 1, "no input_output": 1}


def test_a_file_of_lines_has_its_card(exported, rows):
    card = read_card(exported("numina_1_5", "trl", "jsonl"))
    assert (card["rows"], card["read"], card["set"]) == (1, 2, "numina_1_5")
    assert card["dropped"] == {"question_type is not math-word-problem": 1}


@pytest.mark.parametrize(
    ("name", "to", "tokens", "said"),
    [
        ("gsm8k", "vrl", None, "to='vrl' is not one of trl, trl-completion, verl"),
        ("gsm8k", "mot", None, "num_tokens needs a tokenizer"),
        ("hh_rlhf", "verl", None, "preferences rows are exported to trl, not to verl"),
    ],
)
def test_what_a_trainer_does_not_read_is_refused(name, to, tokens, said, rows, written):
    with pytest.raises(ValueError, match=said):
        Exporter(read(name, path=written(rows[name])), to, tokens)


def test_no_file_is_written_over_and_endings_are_the_trainers(tmp_path):
    with pytest.raises(ValueError, match=r"a file for verl ends in \.parquet"):
        require_writable(tmp_path / "a.jsonl", "verl")
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(ValueError, match="exists already; nothing was written"):
        require_writable(tmp_path / "a.parquet", "verl")
    require_writable(tmp_path / "b.parquet", "verl")


def test_a_file_without_labels_says_what_is_needed(written):
    path = written([{"prompt": "p", "answer": "a"}])
    with pytest.raises(ValueError, match=r"\(prompt, answer\) holds a veriloop label; name the"):
        read("mine", path=path)
    broken = written([{"input": "p", "label": '{"verifier": 1', "id": "x"}], "broken.jsonl")
    reading = read("broken", path=broken)
    assert list(reading) == [] and dict(reading.dropped) == {"an unreadable label": 1}


def test_a_parquet_file_has_the_columns_of_every_row(tmp_path):
    class Rows(list):
        reader = None

    path = tmp_path / "rows.parquet"
    assert write(path, Rows([{"a": 1}, {"a": 2, "b": "x"}])) == 2
    assert list(raw_rows(path)) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_row_that_utf8_cannot_hold_is_named(ending, exported, rows):
    half = rows["gsm8k"][0] | {"question": "Half \ud83d of a pair?"}
    with pytest.raises(ValueError, match=r"row 2 \(gsm8k/train/1\): '\\ud83d' is half"):
        exported("gsm8k", "trl", ending, [rows["gsm8k"][0], half])


def test_a_file_for_no_trainer_is_jsonl(tmp_path):
    with pytest.raises(ValueError, match=r"the file ends in \.jsonl"):
        require_writable(tmp_path / "a.parquet")
