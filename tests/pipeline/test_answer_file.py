"""What was sampled stays, whatever kills the writer."""

import json

import pytest

from pipeline.answer_file import Answer, AnswerFile
from pipeline.failures import RecipeError

FACTS = {"set": "gsm8k", "seed": 1}


def answer(text):
    return Answer(response=text, tokens=len(text), finish="stop")


@pytest.fixture
def path(tmp_path):
    """A file with two answers to "a" and one to "b"."""
    path = tmp_path / "deep/answers.jsonl"
    with AnswerFile(path, FACTS) as file:
        file.add("a", [answer("one"), answer("zwei\ud83d\n")])
        file.add("b", [answer("three")])
    return path


def test_answers_are_read_again_in_their_order(path):
    with AnswerFile(path, FACTS) as file:
        assert [one.response for one in file.held("a")] == ["one", "zwei\ud83d\n"]
        assert file.held("b") == [answer("three")] and not file.held("c")
        file.add("a", [answer("more")])
        assert len(file.held("a")) == 3
    with AnswerFile(path, FACTS) as file:
        assert [one.response for one in file.held("a")][2] == "more"


def test_every_answer_is_on_the_disk_before_the_file_is_closed(tmp_path):
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, FACTS) as file:
        file.add("a", [answer("one")])
        lines = path.read_text().splitlines()
    assert json.loads(lines[0]) == FACTS
    assert json.loads(lines[1])["answers"] == [{"response": "one", "tokens": 3, "finish": "stop"}]


def test_a_line_cut_at_any_byte_is_lost_alone(path):
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    for cut in (last, last + 1, (last + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with AnswerFile(path, FACTS) as file:
            assert len(file.held("a")) == 2 and not file.held("b")
            file.add("b", [answer("again")])
        with AnswerFile(path, FACTS) as file:
            assert file.held("b") == [answer("again")]


def test_a_file_whose_first_line_was_never_finished_begins_anew(path):
    path.write_bytes(path.read_bytes()[:5])
    with AnswerFile(path, FACTS) as file:
        assert not file.held("a")
        file.add("a", [answer("one")])
    with AnswerFile(path, FACTS) as file:
        assert file.held("a") == [answer("one")]


def test_answers_sampled_otherwise_are_refused(path):
    with pytest.raises(RecipeError, match=r"sampled otherwise: .*'seed': 1"):
        AnswerFile(path, FACTS | {"seed": 2})


@pytest.mark.parametrize("line", ["[1]", '{"question": "a"}', "no json", '{"question": 1'])
def test_a_file_of_anything_else_is_refused_and_left_as_it_is(path, line):
    path.write_text(json.dumps(FACTS) + f"\n{line}\n")
    with pytest.raises(RecipeError, match="holds no sampled answers"):
        AnswerFile(path, FACTS)
    assert line in path.read_text()


def test_a_second_writer_is_refused_while_the_first_is_there(path):
    with AnswerFile(path, FACTS), pytest.raises(RecipeError, match="another evaluation"):
        AnswerFile(path, FACTS)
    AnswerFile(path, FACTS).__exit__()
