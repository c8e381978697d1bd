"""`veriloop rescore`: a run by hand, judged anew in worker processes, printed, kept and resumed."""

import json
import shutil

import pytest

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.offline.rescore import rescored
from veriloop.pipeline.report.write import write_report
from veriloop.pipeline.runs.record import StageRecord
from veriloop.stages import cli as command
from veriloop.verifiers.registry import fingerprint
from veriloop.verifiers.verdict import Verdict

NUMBER = fingerprint(["number"])["number"]
PLUGIN = '''
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict


@verifier("kinder", version="7", reference={"value": "2"}, accepts="2")
def check(problem, response):
    """Accepts what has the answer anywhere in it, and breaks on what says so."""
    if "break" in response:
        raise OSError("\\x1b[31mno disk")
    return Verdict(score=float(problem.reference["value"] in response), answer=response)
'''


@pytest.fixture
def run(tmp_path):
    """Two steps of one group: right, wrong by its tags alone, wrong, and one that breaks."""
    folder = tmp_path / "run"
    texts = ["<answer>2</answer>", "two: 2", "<answer>3</answer>", "break\x1b[2J"]
    record = StageRecord(folder / "zero", tensorboard=False)
    problem = Problem(id="p/0", prompt="1+1?", verifier="number", reference={"value": "2"})
    for step in (1, 2):
        judged = [
            graded(
                said=text,
                group=str(step),
                problem=problem,
                verdicts={"accuracy": Verdict(score=float(at == 0))},
                reward=float(at == 0),
            )
            for at, text in enumerate(texts)
        ]
        record.write_rollouts(step, judged, [0.0] * 4)
        record.write_metrics(step, {"reward": 0.25})
    (folder / "zero/versions.json").write_text(json.dumps({"verifiers": {"number": "0+old"}}))
    stage = {"name": "zero", "status": "done", "seconds": 1.0, "before": {}, "after": {}}
    (folder / "run.json").write_text(json.dumps({"name": "run", "stages": [stage], "resumed": []}))
    return folder


@pytest.fixture
def kinder(tmp_path):
    path = tmp_path / "kinder.py"
    path.write_text(PLUGIN)
    return ["--verifier", "kinder@7", "--plugin", str(path)]


def everything(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_another_verifier_is_compared_with_what_was_recorded(run, kinder, tmp_path, capsys):
    before = everything(run)
    words = ["rescore", str(run), *kinder, "--json", str(tmp_path / "out.json"), "--show", "1"]
    assert command.main(words) == 0
    shown = capsys.readouterr().out
    assert "zero: accuracy of 8 rollouts in 2 steps" in shown
    assert "recorded by others: number 0+old" in shown
    assert "2 rewards flip: 2 up, 0 down" in shown and "2 have no score on one side" in shown
    assert "\x1b" not in shown and shown.count("    response  two: 2") == 1
    assert "    old       graded 0\n    new       graded 1, read 'two: 2'" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["right", "2", "0", "0"] in rows and ["wrong", "2", "2", "2"] in rows
    assert ["1", "4", "1", "0", "1"] in rows and ["2", "4", "1", "0", "1"] in rows
    told = json.loads((tmp_path / "out.json").read_text())["stages"]["zero"]
    assert told["matrix"]["wrong"] == {"right": 2, "wrong": 2, "error": 2}
    assert told["recorded_by"] == {"number": "0+old"} and told["version"].startswith("7+")
    after = everything(run)
    assert before.items() <= after.items()
    [made] = rescored(run).iterdir()
    assert {path.relative_to(made).as_posix() for path in after.keys() - before.keys()} == {
        "zero/accuracy.json",
        "zero/accuracy/step_000001.parquet",
        "zero/accuracy/step_000002.parquet",
    }
    assert made.name == f"kinder@{told['version']}"


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(1, 2), (2,)], ids=["every step", "not the first"])
def test_a_reward_term_is_judged_by_the_reference_of_its_recipe(run, tmp_path, steps):
    told = json.loads((run / "run.json").read_text())
    term = {"verifier": "length", "reference": {"length": {"at_most": 1, "slack": 1}}}
    told["stages"][0]["inputs"] = {"recipe": {"reward": {"terms": {"brevity": term}}}}
    (run / "run.json").write_text(json.dumps(told))
    problem = Problem(id="p/0", prompt="1+1?", verifier="number", reference={"value": "2"})
    texts = ("<think>a</think><answer>2</answer>", "<think>a b c d</think><answer>2</answer>")
    judged = [
        graded(
            said=text,
            group="1",
            problem=problem,
            verdicts={"brevity": Verdict(score=1.0)},
            reward=1.0,
        )
        for text in texts
    ]
    for step in steps:
        StageRecord(run / "zero", tensorboard=False).write_rollouts(step, judged, [0.0] * 2)
    counts = tmp_path / "counts.json"
    words = ["--verifier", "length", "--component", "brevity", "--json", str(counts)]
    assert command.main(["rescore", str(run), *words]) == 0
    stage = json.loads(counts.read_text())["stages"]["zero"]
    assert (stage["rollouts"], stage["errors"]) == (2 * len(steps), 0)


def test_the_report_has_a_table_of_flips(run, kinder):
    assert command.main(["rescore", str(run), *kinder]) == 0
    write_report(run)
    version = next(rescored(run).iterdir()).name.partition("@")[2].replace("_", "\\_")
    text = (run / "report.md").read_text()
    assert f"| zero | accuracy | kinder {version} | 8 | 2 | 0 | 2 |" in text
    [stage] = json.loads((run / "report.json").read_text())["stages"]
    assert [(one["flips"], one["errors"]) for one in stage["flips"]] == [(2, 2)]
    assert '"largest":[{"step":1,"group":0,"i":1,' in (run / "report.html").read_text()


@pytest.mark.slow
def test_a_run_judged_by_what_is_here_shows_its_versions(run, capsys):
    (run / "zero/versions.json").write_text(json.dumps({"verifiers": {"number": NUMBER}}))
    assert command.main(["rescore", str(run), "--verifier", f"number@{NUMBER}"]) == 0
    shown = capsys.readouterr().out
    assert "the same version judged when it was recorded" in shown and "0 rewards flip" in shown


@pytest.mark.slow
def test_it_continues_after_the_last_step_that_was_written(run, capsys, monkeypatch):
    words = ["rescore", str(run), "--verifier", "number"]
    judged = command.importlib.import_module("veriloop.stages.commands.verify").judged
    calls = []

    def stopping(pool, tasks):
        calls.append(len(tasks))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return judged(pool, tasks)

    monkeypatch.setattr("veriloop.stages.commands.verify.judged", stopping)
    assert command.main(words) == 130
    assert "new verdicts so far are in" in capsys.readouterr().err
    [first] = rescored(run).rglob("*.parquet")
    written = first.stat().st_mtime_ns
    assert command.main(words) == 0
    assert calls == [4, 4, 4] and first.stat().st_mtime_ns == written
    assert len(list(rescored(run).rglob("*.parquet"))) == 2
    assert command.main([*words, "--limit-s", "4"]) == 0
    assert command.main([*words, "--limit-s", "4", "--sandbox.backend", "reduced"]) == 0
    assert calls == [4] * 7


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--verifier", "number@9"], "--verifier number@9: number is version '"),
        (["--verifier", "numbr"], "Did you mean 'number'?"),
        (["--verifier", "number", "--component", "format"], "zero has accuracy"),
        (["--verifier", "number", "--stage", "one"], "--stage one: "),
        (
            ["--verifier", "countdown"],
            "countdown can judge nothing of zero: 8 with a reference of number",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_there_is(run, capsys, words, told):
    if words[1] == "countdown":  # of two values it could not know which is meant
        for path in (run / "zero/rollouts").iterdir():
            _with_reference(path, '{"value": "2", "unit": "m"}')
    assert command.main(["rescore", str(run), *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_stage_with_nothing_to_judge_does_not_end_the_others(run, tmp_path, capsys):
    shutil.copytree(run / "zero", run / "chat")
    for path in (run / "chat/rollouts").iterdir():
        _with_reference(path, '{"value": "2", "unit": "m"}')
    told = json.loads((run / "run.json").read_text())
    told["stages"] = [told["stages"][0] | {"name": "chat"}, told["stages"][0]]
    (run / "run.json").write_text(json.dumps(told))
    for path in (run / "zero/rollouts").iterdir():
        _with_reference(path, '{"numbers": [1, 1], "target": 2}')
    counts = tmp_path / "counts.json"
    assert (
        command.main(["rescore", str(run), "--verifier", "countdown", "--json", str(counts)]) == 0
    )
    assert "left out: countdown can judge nothing of chat: 8 with" in capsys.readouterr().out
    stages = json.loads(counts.read_text())["stages"]
    assert list(stages) == ["zero"] and stages["zero"]["rollouts"] == 8


def _with_reference(path, text):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    at = table.column_names.index("reference")
    pq.write_table(table.set_column(at, "reference", pa.array([text] * len(table))), path)


@pytest.mark.slow
def test_verdicts_of_another_use_of_computer_algebra_lie_apart(run, capsys):
    plain = fingerprint(["math_answer"])["math_answer"]
    words = ["rescore", str(run), "--verifier", f"math_answer@{plain}"]
    for use in ("fallback", "always"):
        assert command.main([*words, "--verifier-computer-algebra", use]) == 0
    folders = {folder.name for folder in rescored(run).iterdir()}
    assert folders == {f"math_answer@{plain}", f"math_answer@{plain},computer_algebra=always"}
    assert "verified again by math_answer" in capsys.readouterr().out


def test_a_sandbox_that_is_none_is_refused(run, capsys):
    words = ["rescore", str(run), "--verifier", "number", "--sandbox.backend", "namespaces"]
    assert command.main(words) == 2
    assert "Did you mean 'namespace'?" in capsys.readouterr().err
    assert not rescored(run).exists()
