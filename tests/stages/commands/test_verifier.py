"""`veriloop verifier`: a new one works as it is written, and a bad one is found out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.stages import cli as command
from veriloop.verifiers.registry import all_verifiers

ROOT = Path(__file__).parents[3]
GENEROUS = """
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

@verifier("generous", reference={"a": 1}, accepts="<answer>1</answer>", rejects=("2",))
def check(problem, response):
    return Verdict(score=float("1" in response))
"""


@pytest.mark.slow
def test_a_new_verifier_and_its_test_pass_as_they_are_written(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert command.main(["verifier", "new", "backwards", "--folder", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"verifier check backwards --plugin {folder}/backwards.py" in said
    words = ["verifier", "check", "backwards", "--plugin", str(folder / "backwards.py")]
    file = tmp_path / "found.json"
    assert command.main([*words, "--json", str(file)]) == 0
    table = capsys.readouterr().out
    assert "BROKEN" not in table and table.count(" kept ") == 13
    found = json.loads(file.read_text())
    assert len(found) == 13 and all(one["kept"] for one in found)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_generous_verifier_is_exit_code_1(tmp_path, capsys):
    path = tmp_path / "generous.py"
    path.write_text(GENEROUS)
    assert command.main(["verifier", "check", "generous", "--plugin", str(path)]) == 1
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "BROKEN" in lines["thinking alone earns nothing"]
    assert "kept" in lines["accepts its example"]
    told = lines["another problem's gold earns nothing"]
    assert "names no other problem" in told and "BROKEN" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new", "Bad-Name"], "lower-case letters"),
        (["new", "class"], "lower-case letters"),
        (["new", "number"], "exists already"),
        (["check", "numbr"], "Did you mean 'number'?"),
        (["chekc"], "no command 'verifier chekc'. Did you mean 'check'?"),
        ([], "Expected one of {ls, new, check}"),
    ],
)
def test_what_cannot_be_done_is_a_mistake(words, said, capsys):
    assert command.main(["verifier", *words]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "test_backwards.py").write_text("mine")
    assert command.main(["verifier", "new", "backwards", "--folder", str(tmp_path)]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "backwards.py").exists()


def test_all_are_listed_with_their_kind_and_components(capsys):
    assert command.main(["verifier", "ls"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["countdown", "answer", "parsed,", "numbers_right,", "value_right"] in lines
    assert {line[0] for line in lines} == set(all_verifiers())


def test_what_a_verifier_needs_is_reported(capsys, monkeypatch):
    monkeypatch.delenv("VERILOOP_JUDGE_URL", raising=False)
    assert command.main(["verifier", "check", "llm_judge"]) == 1
    said = capsys.readouterr().out
    assert "needs an endpoint: VERILOOP_JUDGE_URL" in said and "set VERILOOP_JUDGE_URL" in said


def test_help_is_there(capsys):
    assert command.main(["verifier", "--help"]) == 0
    assert "usage: veriloop verifier [-h] {ls,new,check}" in capsys.readouterr().out
