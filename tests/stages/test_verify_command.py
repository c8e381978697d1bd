"""`veriloop verify`: one verdict a line, in order, from a file or from standard input."""

import io
import json
import sys
from pathlib import Path

import pytest

from stages import command
from stages.verify_command import BATCH

PLUGIN = str(Path(__file__).parent.parent / "verifiers" / "misbehaving.py")


@pytest.fixture
def lines(tmp_path):
    def write(*records):
        path = tmp_path / "responses.jsonl"
        texts = [one if isinstance(one, str) else json.dumps(one) for one in records]
        path.write_text("\n".join(texts) + "\n")
        return str(path)

    return write


def printed(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_verdicts_come_in_the_order_of_the_lines(lines, capsys):
    records = [
        {"gold": n % 7, "response": "<answer>3</answer>", "other": n} for n in range(BATCH + 9)
    ]
    assert command.main(["verify", "--verifier", "number", lines(*records)]) == 0
    found = printed(capsys)
    assert [one["score"] for one in found] == [float(n % 7 == 3) for n in range(BATCH + 9)]
    assert set(found[0]) == {
        "score", "status", "answer", "detail", "components", "queue_s", "exec_s"
    }  # fmt: skip


def test_gold_may_be_a_value_or_the_reference(lines, capsys):
    response = "<answer>(1 + 2) * 4</answer>"
    reference = {"numbers": [1, 2, 4], "target": 12}
    path = lines(
        {"gold": reference, "response": response},
        "",
        {"reference": reference | {"target": 13}, "response": response},
        {"gold": 12, "response": response},
    )
    assert command.main(["verify", "--verifier", "countdown", path]) == 0
    assert [(v["score"], v["status"]) for v in printed(capsys)] == [
        (1.0, "graded"), (0.0, "graded"), (None, "error")
    ]  # fmt: skip


def test_standard_input_is_read_from_a_dash(monkeypatch, capsys):
    text = '{"gold": "4", "response": "四</think><answer>4</answer>"}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert command.main(["verify", "--verifier", "number", "--prefilled-think", "-"]) == 0
    assert [one["score"] for one in printed(capsys)] == [1.0]


@pytest.mark.slow
def test_an_item_that_dies_is_an_error_with_its_components(lines, capsys):
    path = lines(*({"gold": {}, "response": r} for r in ("behave", "exit 7", "hang", "\ud800")))
    words = ["--verifier", "misbehaves", "--plugin", PLUGIN, "--limit-s", "2", "--workers", "2"]
    assert command.main(["verify", *words, path]) == 0
    found = printed(capsys)
    assert [one["status"] for one in found] == ["graded", "error", "error", "graded"]
    assert [one["components"] for one in found] == [{"half": 0.5}] + [{"half": 0.0}] * 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: "),
        ("[1]", "line 2: must be an object, got list"),
        ('{"gold": 1}', 'line 2: needs a text "response"'),
        ('{"response": "x"}', 'line 2: needs "gold", or "reference" as an object like {\'value\''),
    ],
)
def test_a_line_that_cannot_be_read_is_a_mistake_that_is_named(lines, capsys, line, said):
    path = lines({"gold": 1, "response": "x"}, line)
    assert command.main(["verify", "--verifier", "number", path]) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_verifier_file_or_plugin_is_a_mistake(lines, capsys):
    path = lines({"gold": 1, "response": "x"})
    assert command.main(["verify", "--verifier", "numbr", path]) == 2
    assert "Did you mean 'number'?" in capsys.readouterr().err
    assert command.main(["verify", "--verifier", "number", path + "x"]) == 2
    assert "is not a file" in capsys.readouterr().err
    assert command.main(["verify", "--verifier", "number", "--plugin", "no.py", path]) == 2
    assert "no.py is not a file" in capsys.readouterr().err


def test_a_verifier_that_cannot_work_here_is_a_failure(lines, capsys, monkeypatch):
    monkeypatch.delenv("VERILOOP_JUDGE_URL", raising=False)
    path = lines({"gold": "q", "response": "x"})
    assert command.main(["verify", "--verifier", "llm_judge", path]) == 1
    assert "set VERILOOP_JUDGE_URL to" in capsys.readouterr().err
