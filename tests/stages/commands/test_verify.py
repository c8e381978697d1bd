"""`veriloop verify`: one verdict a line, in order, from a file or from standard input."""

import io
import json
import sys
from pathlib import Path

import pytest

from veriloop.stages import cli as command
from veriloop.stages.commands.verify import BATCH

PLUGIN = str(Path(__file__).parents[2] / "verifiers" / "misbehaving.py")


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_one_file_holds_cases_of_many_verifiers(lines, capsys):
    path = lines(
        {"verifier": "choice", "gold": "C", "response": "The answer is C."},
        {"verifier": "think_format", "response": "<think>a</think><answer>b</answer>"},
        {"verifier": "think_format", "reference": None, "facts": None, "response": "b"},
        {"gold": 4, "response": "<answer>4</answer>"},
        {"verifier": "chioce", "gold": "C", "response": "The answer is C."},
    )
    assert command.main(["verify", "--verifier", "number", path]) == 0
    verdicts = printed(capsys)
    assert [one["score"] for one in verdicts] == [1.0, 1.0, 0.0, 1.0, None]
    assert "Did you mean 'choice'?" in verdicts[-1]["detail"]


@pytest.mark.slow
def test_a_line_may_have_facts_and_a_prompt(lines, capsys):
    half = {"verifier": "think_format", "response": "a</think><answer>b</answer>"}
    path = lines(
        half,
        half | {"facts": {"prefilled_think": True}},
        half | {"prompt": "Q: 1 + 1? <think>\n"},
        half | {"prompt": "Q <think>", "facts": {"prefilled_think": False}},
        {
            "verifier": "language",
            "reference": {},
            "facts": {"language": "zh"},
            "response": "<think>我们知道。</think>",
        },
    )
    assert command.main(["verify", path]) == 0
    assert [one["score"] for one in printed(capsys)] == [0.0, 1.0, 1.0, 0.0, 1.0]


@pytest.mark.slow
def test_expected_results_are_compared_and_counted(lines, capsys):
    def line(response, **more):
        return {"verifier": "number", "gold": 4, "response": response, **more}

    right, wrong = "<answer>4</answer>", "<answer>5</answer>"
    records = [
        line(right, expected=1), line(right, expected=0), line(right, expected=True),
        line(wrong, expected=[0, 0.5]), line(right, expected=[0, 0.5]),
        line(right, expected="4"), line(right, expected="5"), line("", expected=None),
        line(wrong, expected=None), line(right),
        {"verifier": "number", "gold": "x", "response": right, "expected": 0},
        {"verifier": "choice", "gold": "C", "response": "The answer is C.", "expected": 1},
    ]  # fmt: skip
    assert command.main(["verify", lines(*records)]) == 0
    out, err = capsys.readouterr()
    agreeing = [json.loads(text).get("agrees") for text in out.splitlines()]
    assert agreeing == [
        True, False, True, True, False, True, False, True, False, None, False, True
    ]  # fmt: skip
    assert [row.split() for row in err.splitlines()[1:]] == [
        ["number", "5", "10", "50.0%"],
        ["choice", "1", "1", "100.0%"],
        ["all", "6", "11", "54.5%"],
    ]


@pytest.mark.slow
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
        ('{"response": "x", "gold": 1, "facts": 3}', 'line 2: "facts" must be an object'),
        ('{"response": "x", "gold": 1, "prompt": []}', '"prompt" a text'),
        ('{"response": "x", "gold": 1, "verifier": 3}', 'line 2: needs a "verifier"'),
        ('{"response": "x", "gold": 1, "expected": {}}', 'line 2: "expected" must be a score,'),
        ('{"response": "x", "gold": 1, "expected": [1]}', 'line 2: "expected" must be a score,'),
        ('{"response": "x", "gold": 1, "expected": [1, 0]}', "[lowest, highest]"),
        ('{"response": "x", "gold": 1, "expected": NaN}', 'line 2: "expected" must be a score,'),
        ('{"response": "x"}', 'line 2: needs "gold", or "reference" as an object like {\'value\''),
    ],
)
def test_a_line_that_cannot_be_read_is_a_mistake_that_is_named(lines, capsys, line, said):
    path = lines({"gold": 1, "response": "x"}, line)
    assert command.main(["verify", "--verifier", "number", path]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("piped", [False, True])
def test_a_line_that_is_not_utf8_is_named(tmp_path, monkeypatch, capsys, piped):
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b'{"response": "x", "gold": 1}\n{"response": "\xff", "gold": 1}\n')
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file, encoding="ascii"))
        source = "-" if piped else str(path)
        assert command.main(["verify", "--verifier", "number", source]) == 2
    assert "line 2: not UTF-8" in capsys.readouterr().err


@pytest.mark.slow
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, capsys):
    path = tmp_path / "mark.jsonl"
    path.write_text('{"gold": 3, "response": "<answer>3</answer>"}\n', encoding="utf-8-sig")
    assert command.main(["verify", "--verifier", "number", str(path)]) == 0
    assert [verdict["score"] for verdict in printed(capsys)] == [1.0]


def test_a_line_without_a_verifier_needs_the_default(lines, capsys):
    assert command.main(["verify", lines({"gold": 1, "response": "x"})]) == 2
    assert 'line 1: needs a "verifier", since' in capsys.readouterr().err


def test_an_unknown_verifier_file_or_plugin_is_a_mistake(lines, capsys):
    path = lines({"gold": 1, "response": "x"})
    assert command.main(["verify", "--verifier", "numbr", path]) == 2
    assert "Did you mean 'number'?" in capsys.readouterr().err
    assert command.main(["verify", "--verifier", "number", path + "x"]) == 2
    assert "is not a file" in capsys.readouterr().err
    assert command.main(["verify", "--verifier", "number", "--plugin", "no.py", path]) == 2
    assert "no.py is not a file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_verifier_that_cannot_work_here_is_a_failure(lines, capsys, monkeypatch):
    monkeypatch.delenv("VERILOOP_JUDGE_URL", raising=False)
    path = lines({"gold": "q", "response": "x"})
    assert command.main(["verify", "--verifier", "llm_judge", path]) == 1
    assert "set VERILOOP_JUDGE_URL to" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ((), [(0.0, "graded"), (1.0, "graded")]),
        (("--verifier-computer-algebra", "always"), [(1.0, "graded"), (1.0, "graded")]),
        (("--verifier-computer-algebra", "never"), [(0.0, "graded"), (None, "error")]),
    ],
    ids=["fallback", "always", "never"],
)
def test_computer_algebra_is_used_as_the_flag_says(lines, capsys, use, expected):
    integral, half = r"\int_0^1 x\,dx", r"\frac12"
    path = lines(
        {"gold": half, "response": rf"\boxed{{{integral}}}"},
        {"gold": integral, "response": rf"\boxed{{{half}}}"},
    )
    assert command.main(["verify", "--verifier", "math_answer", path, *use]) == 0
    assert [(v["score"], v["status"]) for v in printed(capsys)] == expected


@pytest.mark.slow
def test_programs_run_in_the_sandbox_of_the_flag(lines, capsys, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    tests = {"tests": [{"args": [2], "expected": 4}], "function": "f"}
    path = lines({"reference": tests, "response": "```python\ndef f(x): return 2 * x\n```"})
    words = ["verify", "--verifier", "code_tests", path, "--sandbox.backend"]
    assert command.main([*words, "docker"]) == 1
    assert "no Docker daemon answers here" in capsys.readouterr().err
    assert command.main([*words, "dokcer"]) == 2
    assert "--sandbox.backend: no backend 'dokcer'. Did you mean 'docker'?" in (
        capsys.readouterr().err
    )
