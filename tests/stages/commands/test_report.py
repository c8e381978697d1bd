"""`veriloop report`, and the report that a run writes by itself when it ends."""

import json
from pathlib import Path

import pytest

from veriloop.pipeline.errors import Stopped
from veriloop.pipeline.report.write import ANSWERS, Report
from veriloop.pipeline.runs.record import StageRecord
from veriloop.stages import cli as command
from veriloop.stages.commands import report as report_command
from veriloop.stages.commands.report import reported


@pytest.fixture
def run(tmp_path):
    """Factory of run folders of one stage whose gradient norms are as given."""

    def build(name, norms):
        folder = tmp_path / name
        record = StageRecord(folder / "sft", tensorboard=False)
        for step, norm in enumerate(norms, 1):
            record.write_metrics(step, {"loss": 1.0, "grad_norm": norm})
        stage = {"name": "sft", "status": "done", "seconds": 1.0, "before": {}, "after": {}}
        told = {"name": name, "stages": [stage], "resumed": []}
        (folder / "run.json").write_text(json.dumps(told))
        return folder

    return build


CALM, WILD = [1.0] * 40, [1.0] * 38 + [9.0, 9.0]


def files(folder):
    return {path.name for path in folder.glob("report.*")}


def test_three_files_and_the_checks_in_words(run, capsys):
    folder = run("mine", CALM)
    assert command.main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "good    Is the gradient norm stable?    0 spikes" in shown
    assert shown.endswith(f"\n{folder / 'report.html'}\n")
    assert files(folder) == {"report.html", "report.md", "report.json"}


@pytest.mark.slow
def test_strict_is_for_machines(run, capsys):
    assert command.main(["report", str(run("wild", WILD))]) == 0
    assert command.main(["report", str(run("wild2", WILD)), "--strict"]) == 1
    assert command.main(["report", str(run("calm", CALM)), "--strict"]) == 0


def test_a_second_run_and_another_folder(run, tmp_path):
    words = ["report", str(run("one", CALM)), str(run("two", WILD)), "--into", str(tmp_path / "x")]
    assert command.main(words) == 0
    assert "dashed" in (tmp_path / "x/report.html").read_text()
    assert not files(tmp_path / "one") and not files(tmp_path / "two")


@pytest.mark.slow
def test_any_number_of_runs_and_a_mistake_in_one(run, tmp_path, capsys):
    folders = [str(run(name, CALM)) for name in ("one", "two", "three")]
    assert command.main(["report", *folders]) == 0
    assert "beside two, three" in (tmp_path / "one/report.html").read_text()
    assert command.main(["report", *folders, str(tmp_path)]) == 2
    assert f"{tmp_path} holds no run: it has no run.json" in capsys.readouterr().err


def test_the_room_for_answers_is_given_in_megabytes(run, monkeypatch, capsys):
    folder, asked = run("mine", CALM), []

    def write(*folders, into, answers_bytes):
        asked.append(answers_bytes)
        return Report(page=folder, checks=[])

    monkeypatch.setattr("veriloop.pipeline.report.write.write_report", write)
    assert command.main(["report", str(folder), "--answers-mb", "0.3"]) == 0
    assert command.main(["report", str(folder)]) == 0
    assert asked == [300_000, ANSWERS]
    for wrong, said in (("-1", "must be 0 or more"), ("inf", "finite"), ("nan", "finite")):
        assert command.main(["report", str(folder), "--answers-mb", wrong]) == 2
        told = capsys.readouterr().err
        assert f"--answers-mb {wrong}: " in told and said in told


def test_a_folder_without_a_run_is_a_mistake(tmp_path, capsys):
    assert command.main(["report", str(tmp_path)]) == 2
    assert "holds no run: it has no run.json" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_writes_its_report_however_it_ends(run, capsys):
    for name, ends in (("one", Stopped("later")), ("two", KeyboardInterrupt()), ("three", None)):
        folder = run(name, CALM)
        if ends is None:
            with reported(folder):
                pass
        else:
            with pytest.raises(type(ends)), reported(folder):
                raise ends
        assert files(folder) == {"report.html", "report.md", "report.json"}
    assert capsys.readouterr().out.count("report: ") == 3


def test_a_report_that_fails_does_not_fail_the_run(run, capsys):
    folder = run("torn", CALM)
    (folder / "sft/metrics.jsonl").write_text("junk\n{}\n")
    with reported(folder):
        pass
    told = capsys.readouterr()
    assert told.err.startswith("no report: RecipeError: ") and "metrics.jsonl" in told.err
    assert told.out == "" and not files(folder)


def test_what_never_began_has_no_report(tmp_path, capsys):
    with reported(tmp_path / "none"):
        pass
    assert capsys.readouterr() == ("", "") and not Path(tmp_path / "none").exists()


def test_the_failure_of_a_run_is_the_one_that_is_reported(run):
    folder = run("torn", CALM)
    (folder / "sft/metrics.jsonl").write_text("junk\n{}\n")
    with pytest.raises(Stopped, match="at step 3"), reported(folder):
        raise Stopped("at step 3")


@pytest.mark.parametrize("larger", [0, 1])
def test_a_run_of_many_rollouts_ends_without_a_report_and_says_how_to_make_one(
    run, capsys, monkeypatch, larger
):
    folder = run("large", CALM)
    (folder / "sft/rollouts").mkdir(exist_ok=True)
    (folder / "sft/rollouts/part.parquet").write_bytes(b"x" * (100 + larger))
    monkeypatch.setattr(report_command, "LARGEST", 100)
    with reported(folder):
        pass
    told = capsys.readouterr().err
    assert (f"; to make one: veriloop report {folder}\n" in told) is bool(larger)
    assert bool(files(folder)) is not bool(larger)
