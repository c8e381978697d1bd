"""`veriloop data`: sets are shown, checked by their own answers, cleaned and handed on."""

import json
import re
from pathlib import Path

import pytest
import yaml

from veriloop.data.columns import raw_rows
from veriloop.data.hub.reference_readers import READERS
from veriloop.data.hub.sets import SETS
from veriloop.pipeline.config.load import FOLDER
from veriloop.stages.cli import main
from veriloop.stages.commands import data_check


@pytest.fixture
def gsm8k(tmp_path):
    """Function: a file with GSM8K's columns."""

    def write(*pairs, name="rows.jsonl"):
        rows = [{"question": asked, "answer": f"So.\n#### {value}"} for asked, value in pairs]
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def lent(lent_pool, monkeypatch):
    from veriloop.verifiers import pool

    monkeypatch.setattr(pool, "VerifierPool", lambda workers, limit_s: lent_pool)


def test_every_known_set_is_listed(capsys):
    assert main(["data", "show"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == list(SETS)
    assert shown[0].split() == ["gsm8k", "math_answer", "openai/gsm8k", "(main)"]


def test_a_set_is_shown_with_its_columns_and_first_problems(gsm8k, capsys, tiny_checkpoint):
    path = gsm8k(("Two and two?", 4), ("Bad?", "many"), ("One?", 1), ("Three?", 3))
    words = ["data", "show", "gsm8k", "--path", path, "--rows", "2"]
    assert main([*words, "--tokenizer", str(tiny_checkpoint())]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("gsm8k, split train: math_answer, from openai/gsm8k, read as hashes\n")
    assert "  reference.answer      answer\n" in shown
    assert "gsm8k/train/0  math_answer  [" in shown
    assert 'Two and two?\nreference: {"answer": "4"}' in shown
    assert "gsm8k/train/2" in shown and "gsm8k/train/3" not in shown
    assert "not used: 1 the answer is not a number" in shown


def test_a_file_is_read_as_the_set_it_is_of_or_by_columns_that_are_given(gsm8k, capsys):
    path = gsm8k(("Two?", 2))
    assert main(["data", "show", path]) == 2
    assert (
        "holds a veriloop label; name the known set that it belongs to" in capsys.readouterr().err
    )
    assert main(["data", "show", path, "--of", "gsm8k"]) == 0
    assert "gsm8k/train/0  math_answer" in capsys.readouterr().out
    told = ["--question", "Q: {question}", "--answer", "answer", "--verifier", "math_answer"]
    assert main(["data", "show", path, *told, "--read", "hashes"]) == 0
    shown = capsys.readouterr().out
    assert 'rows/train/0  math_answer\nQ: Two?\nreference: {"answer": "2"}' in shown


def test_an_exam_whose_columns_are_unknown_is_to_be_exported_first(gsm8k, tmp_path, capsys):
    exam = tmp_path / "exam.jsonl"
    exam.write_text('{"task": "1+1?", "right": "2"}\n')
    words = ["data", "decontaminate", "gsm8k", "--path", gsm8k(("Two?", 2)), "--against", str(exam)]
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--against exam.jsonl: none of its columns (task, right) holds a veriloop label" in said
    assert f"veriloop data export {exam} --question" in said and "or the columns" not in said


def test_rows_to_learn_are_shown_too(tmp_path, capsys):
    path = tmp_path / "hh.jsonl"
    row = {key: f"\n\nHuman: Hi\n\nAssistant: {key}" for key in ("chosen", "rejected")}
    path.write_text(json.dumps(row) + "\n")
    assert main(["data", "show", "hh_rlhf", "--path", str(path)]) == 0
    assert '"content": "chosen"' in capsys.readouterr().out
    assert main(["data", "check", "hh_rlhf", "--path", str(path)]) == 2
    assert "preferences rows have no right answers" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sound_set_passes_and_its_counts_are_reported(gsm8k, lent, capsys, tmp_path):
    path = gsm8k(("One?", 1), ("Two?", "1,002"), ("One?", 1), ("Bad?", "many"))
    found = tmp_path / "found.json"
    assert main(["data", "check", "gsm8k", "--path", path, "--json", str(found)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for told in (
        "gsm8k, split train: 4 rows", "problems 3", "not used: the answer is not a number 1",
        "own answers judged 3", "others' answers judged 2", "own answer refused 0",
        "duplicate 1", "duplicate: gsm8k/train/2",
    ):  # fmt: skip
        assert told in shown
    noted = json.loads(found.read_text())
    assert (noted["rows"], noted["answers"], noted["duplicates"]) == (4, 3, ["gsm8k/train/2"])


def test_a_set_whose_verifier_refuses_its_answers_fails(gsm8k, lent, capsys, monkeypatch):
    monkeypatch.setattr(data_check, "reference_answers", lambda entry, most: ["\\boxed{7}"])
    assert main(["data", "check", gsm8k(("One?", 1), ("Two?", 2)), "--of", "gsm8k"]) == 1
    assert "own answer refused: gsm8k/train/0: graded, integers" in capsys.readouterr().out


def test_long_prompts_are_counted_where_a_tokenizer_is_given(gsm8k, lent, capsys, tiny_checkpoint):
    path = gsm8k(("One? " * 200, 1), ("Two?", 2))
    words = ["data", "check", path, "--of", "gsm8k", "--tokenizer", str(tiny_checkpoint())]
    assert main(words) == 0
    assert "prompt too long: gsm8k/train/0" in capsys.readouterr().out


def test_a_file_without_rows_is_refused(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    words = [
        "--question",
        "{question}",
        "--answer",
        "a",
        "--verifier",
        "number",
        "--read",
        "number",
    ]
    assert main(["data", "show", str(tmp_path / "empty.jsonl"), *words]) == 2
    assert "empty, split train: it holds no rows" in capsys.readouterr().err


def test_what_another_set_shows_is_reported_and_left_out(gsm8k, capsys, tmp_path):
    rows = gsm8k(
        ("Ann has three pears and buys two more of them.", 5),
        ("Ben runs a mile on each day of the week.", 7),
    )
    exam = gsm8k(("Now Ann has three pears and buys two more, how many?", 5), name="exam.jsonl")
    clean = tmp_path / "clean.jsonl"
    words = ["data", "decontaminate", "gsm8k", "--path", rows, "--against", f"gsm8k={exam}"]
    assert main([*words, "--size", "8", "--output", str(clean)]) == 0
    shown = capsys.readouterr().out
    assert "gsm8k, split train: 2 rows, 1 of them clean" in shown
    assert f"1 share 8 words or a formula with gsm8k={exam} (split test, 1 texts)" in shown
    assert f"gsm8k/train/0 shows gsm8k={exam}: ann has three pears and buys two more" in shown
    assert [row["id"] for row in raw_rows(clean)] == ["gsm8k/train/1"]
    card = json.loads((tmp_path / "clean.card.json").read_text())
    assert card["dropped"] == {f"shows gsm8k={exam}": 1} and card["ngram"] == 8
    other = gsm8k(("Ann has three pears and buys two more, why?", 5), name="other.jsonl")
    words.append(f"gsm8k={other}")
    assert main([*words, "--size", "8", "--output", str(tmp_path / "both.jsonl")]) == 0
    card = json.loads((tmp_path / "both.card.json").read_text())
    assert card["dropped"] == {f"shows gsm8k={exam}, gsm8k={other}": 1}  # one row, once
    capsys.readouterr()
    assert main([*words, "--size", "9"]) == 0
    assert "2 of them clean" in capsys.readouterr().out
    assert main(["data", "show", str(clean)]) == 0
    assert "gsm8k/train/1  math_answer" in capsys.readouterr().out


def test_a_known_set_is_compared_by_its_held_out_split(gsm8k, capsys, tmp_path):
    seen, unseen = "Ann has three red pears and buys two more.", "Ben runs a mile on each day."
    rows = gsm8k((seen, 5), (unseen, 7))
    folder = tmp_path / "both"
    folder.mkdir()
    for split, question in (("train", unseen), ("test", seen)):
        gsm8k((question, 5), name=f"both/{split}.jsonl")
    words = ["data", "decontaminate", rows, "--of", "gsm8k", "--size", "6"]
    assert main([*words, "--against", f"gsm8k={folder}"]) == 0
    shown = capsys.readouterr().out
    assert f"1 share 6 words or a formula with gsm8k={folder} (split test, 1 texts)" in shown
    assert "ann has three red pears and" in shown


def test_a_folder_with_the_name_of_a_set_does_not_take_its_place(
    gsm8k, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gsm8k").mkdir()
    gsm8k(("Of the folder?", 1), name="gsm8k/train.jsonl")
    rows = gsm8k(("Of the file?", 2))
    assert main(["data", "show", "gsm8k", "--path", rows]) == 0
    shown = capsys.readouterr().out
    assert "Of the file?" in shown and "Of the folder?" not in shown
    assert main(["data", "show", rows, "--path", rows]) == 2
    assert f"it excludes --path {rows}" in capsys.readouterr().err


def test_the_source_of_conversations_is_nothing_they_say(capsys, tmp_path):
    def said(text, name):
        messages = [{"role": role, "content": text} for role in ("user", "assistant")]
        path = tmp_path / name
        path.write_text(json.dumps({"messages": messages, "source": "open r1 math"}) + "\n")
        return str(path)

    rows, exam = said("Is this one?", "rows.jsonl"), said("Is that two?", "exam.jsonl")
    words = ["data", "decontaminate", "mixture_of_thoughts", "--path", rows, "--size", "2"]
    assert main([*words, "--against", f"mixture_of_thoughts={exam}"]) == 0
    assert "1 row, 1 of them clean" in capsys.readouterr().out


def test_conversations_are_cleaned_by_all_they_say(gsm8k, capsys, tmp_path):
    said = [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Ann has three pears and buys two more of them."},
    ]
    path = tmp_path / "mot.jsonl"
    path.write_text(json.dumps({"messages": said, "num_tokens": 9, "source": "x"}) + "\n")
    exam = gsm8k(("Ann has three pears and buys two more of them.", 5))
    words = ["data", "decontaminate", "mixture_of_thoughts", "--path", str(path)]
    assert main([*words, "--against", f"gsm8k={exam}", "--size", "6"]) == 0
    assert "1 row, 0 of them clean" in capsys.readouterr().out


def test_an_exported_file_is_shown_like_any_other(gsm8k, capsys, tmp_path):
    path, out = gsm8k(("One?", 1), ("Bad?", "many")), tmp_path / "verl.parquet"
    words = ["data", "export", path, "--of", "gsm8k", "--to", "verl", "--output", str(out)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f"{out}: 1 row for verl\nnot used: 1 the answer is not a number\n" == shown
    assert main(["data", "show", str(out)]) == 0
    assert 'gsm8k/train/0  math_answer\nOne?\nreference: {"answer": "1"}' in capsys.readouterr().out
    assert main(words) == 2
    assert "exists already; nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "gms8k"], "'gms8k' is no known set. Did you mean 'gsm8k'?"),
        (["show", "none.jsonl", "--of", "gsm8k"], "none.jsonl is not a file or folder"),
        (["show", "apps"], "hf download codeparrot/apps"),
        (["shw"], "no command 'data shw'. Did you mean 'show'?"),
        ([], "Expected one of {show, check, decontaminate, export}"),
        (["decontaminate", "gsm8k"], "--against: name at least one set"),
    ],
)
def test_what_cannot_be_done_is_reported(words, said, capsys):
    assert main(["data", *words]) == 2
    assert said in capsys.readouterr().err


def test_help_is_there_for_the_command_and_each_verb(capsys):
    assert main(["data", "--help"]) == 0
    assert "usage: veriloop data [-h] {show,check,decontaminate,export}" in capsys.readouterr().out
    for verb in ("show", "check", "decontaminate", "export"):
        assert main(["data", verb, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"usage: veriloop data {verb}" in shown
        flags = " ".join(shown.replace("│", " ").split())
        assert f"how to read the answer of an unknown set: {', '.join(READERS)}" in flags


def test_the_page_describes_every_way_to_read_an_answer():
    page = (Path(__file__).parents[3] / "docs/data.md").read_text()
    table = page.split("\n| `read` | ")[1].split("\n\n")[0].splitlines()[2:]
    named = [re.findall(r"`(\w+)`", row.split(" | ")[0]) for row in table]
    assert sorted(name for names in named for name in names) == sorted(READERS)


def test_a_set_of_which_nothing_was_judged_is_not_sound(lent, capsys, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "One?", "answer": "no number"}) + "\n")
    assert main(["data", "check", str(path), "--of", "gsm8k"]) == 1
    assert "no answer was judged" in capsys.readouterr().out
    assert main(["data", "check", str(path), "--of", "gsm8k", "--json", "nowhere/a.json"]) == 2
    assert "nowhere is no folder; nothing was done" in capsys.readouterr().err


def test_words_of_a_template_are_not_compared_on_the_command_line(capsys, tmp_path):
    def numbers(name, *nums):
        path = tmp_path / name
        path.write_text("".join(json.dumps({"nums": n, "target": 98}) + "\n" for n in nums))
        return str(path)

    rows = numbers("rows.jsonl", [1, 2, 95], [44, 19, 35])
    exam = numbers("exam.jsonl", [44, 19, 35])
    words = ["data", "decontaminate", "countdown", "--path", rows]
    assert main([*words, "--against", f"countdown={exam}"]) == 0
    shown = capsys.readouterr().out
    assert "2 rows, 1 of them clean" in shown and "44 19 35 98" in shown


def test_only_the_first_rows_are_checked(gsm8k, lent, capsys):
    path = gsm8k(("Bad?", "many"), ("One?", 1), ("Two?", 2))
    assert main(["data", "check", path, "--of", "gsm8k", "--rows", "2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "split train: 2 rows" in shown and "problems 1" in shown


@pytest.fixture
def described(tmp_path):
    """Function: a recipe with these sets."""

    def write(**sets):
        values = yaml.safe_load((FOLDER / "tiny/zero.yaml").read_text())
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(values | {"sets": sets}))
        return str(path)

    return write


def rows_of(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_set_of_a_recipe_is_checked_as_the_recipe_describes_it(
    described, lent, capsys, tmp_path
):
    program = {"q": "Write double.", "name": "double", "calls": [{"args": [2], "expected": 4}],
               "right": "def double(x):\n    return 2 * x"}  # fmt: skip
    file = rows_of(tmp_path / "programs.jsonl", program)
    mine = {
        "path": file, "question": ["{q}"], "verifier": "code_tests", "held_out": 0.5,
        "reference": {"function": "name", "tests": "calls"}, "read": "plain",
    }  # fmt: skip
    words = ["data", "check", described(mine=mine)]
    assert main(words) == 1
    assert "no answer was judged" in capsys.readouterr().out
    assert main([*words, "--response", "right"]) == 0
    assert re.search(r"own answers judged +1\n", capsys.readouterr().out)
    wrong = rows_of(tmp_path / "programs.jsonl", program | {"right": "def double(x): return x"})
    assert wrong == file and main([*words, "--response", "right"]) == 1
    assert main(["data", "show", described(mine=mine)]) == 0
    assert "code_tests" in capsys.readouterr().out


def test_a_verifier_whose_answers_are_no_references_is_given_right_responses(
    lent, capsys, tmp_path
):
    rows = [{"q": f"{n}?", "a": str(n), "said": [f"So <answer>{n}</answer>", "5"]} for n in (3, 4)]
    file = rows_of(tmp_path / "rows.jsonl", *rows)
    words = ["data", "check", file, "--question", "{q}", "--answer", "a", "--verifier", "number"]
    assert main([*words, "--response", "said"]) == 0
    assert main([*words, "--response", "said", "--solutions", "2"]) == 1
    assert "own answer refused: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sets", "words", "said"),
    [
        ({}, [], "--set '' is no set of .*mine.yaml. Known: none"),
        ({"a": {}, "b": {}}, [], "--set '' is no set of .* Known: a, b"),
        ({"math": {}}, ["--set", "mahts"], "no set of .*Did you mean 'math'"),
        ({"a": {}}, ["--question", "{q}", "--answer", "x"], "--question, --answer: .* describes"),
        ({"a": {}}, ["--read", "number"], "--read: .* describes its sets itself"),
        ({"a": {"gym": "chain_sum"}}, [], "--set a: its questions are generated"),
    ],
)
def test_a_set_of_a_recipe_is_named_and_not_described_again(described, sets, words, said, capsys):
    full = {
        name: one or {"path": "x.jsonl", "question": ["{q}"], "answer": "a", "verifier": "number"}
        for name, one in sets.items()
    }
    assert main(["data", "check", described(**full), *words]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_set_is_named_for_recipes_alone(gsm8k, capsys):
    assert main(["data", "check", gsm8k(("One?", 1)), "--set", "mine"]) == 2
    assert "--set mine: " in capsys.readouterr().err
