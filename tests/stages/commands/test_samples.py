"""`veriloop samples`: the right answers of a step, and no character that a terminal obeys."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.runs.record import StageRecord
from veriloop.stages import cli as command
from veriloop.stages.commands.samples import escaped
from veriloop.verifiers.verdict import Verdict

ROOT = Path(__file__).parents[3]
WRONG = Verdict(score=0.0, answer="3", detail="3 is not 2")
ERROR = Verdict(score=None, status="error", detail="the worker died")


def judged(group, text, verdict, length=3, **told):
    problem = Problem(
        id=f"sums/rl/{group}",
        prompt=told.get("prompt", f"What is 1+1, number {group}?"),
        verifier="number",
        reference={"value": "2"},
        facts={"source": "arithmetic"},
    )
    return graded(
        response=(5,) * length,
        said=text,
        group=f"1/{group}",
        problem=problem,
        finish=told.get("finish", "stop"),
        verdicts={"accuracy": verdict, "format": Verdict(score=1.0)},
        reward=None if verdict.score is None else verdict.score + 1.0,
    )


RIGHT = Verdict(score=1.0, answer="2")
STEP = [
    judged(0, "short right", RIGHT, 2),
    judged(0, "long wrong", WRONG, 9, finish="length"),
    judged(1, "failed", ERROR, 4),
    judged(1, "middle right", RIGHT, 5),
]


@pytest.fixture
def run(tmp_path):
    """Factory of run folders: stages by name, each with its steps and their answers."""

    def build(**stages):
        stages = stages or {"base": {}, "zero": {3: STEP[:1], 7: STEP}, "late": {}}
        for name, steps in stages.items():
            record = StageRecord(tmp_path / "run" / name, tensorboard=False)
            for step, answers in steps.items():
                advantages = [0.5 if one.reward else None for one in answers]
                record.write_rollouts(step, answers, advantages)
        told = {"name": "run", "stages": [{"name": name} for name in stages], "resumed": []}
        (tmp_path / "run/run.json").write_text(json.dumps(told))
        return str(tmp_path / "run")

    return build


@pytest.fixture
def shown(run, capsys):
    """Function: what the command prints of a run."""

    def show(*words, folder=None):
        assert command.main(["samples", folder or run(), *words]) == 0
        return capsys.readouterr().out

    return show


def order(text):
    names = ("short right", "long wrong", "failed", "middle right")
    found = [line.removeprefix("  │ ") for line in text.splitlines()]
    return [line for line in found if line in names]


def test_the_newest_step_of_the_last_stage_that_has_any(shown):
    text = shown()
    lines = text.splitlines()
    assert lines[0] == "zero, step 7: 4 answers; 4 shown"
    assert "group 0: sums/rl/0 (arithmetic), verifier number" in lines
    assert text.count('  reference {"value": "2"}') == 2  # once for each prompt
    assert "  │ What is 1+1, number 1?" in lines
    assert "  answer 1: reward 1, advantage 0.5, 9 tokens, cut off" in lines
    assert "  answer 0: not judged, 4 tokens, ended" in lines
    assert "  accuracy 0 wrong; read 3; 3 is not 2" in lines
    assert "  accuracy – error; the worker died" in lines
    assert "  format 1 right" in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), ["short right", "long wrong", "failed", "middle right"]),
        (("--reverse",), ["middle right", "failed", "long wrong", "short right"]),
        (("--right",), ["short right", "middle right"]),
        (("--wrong",), ["long wrong"]),
        (("--errors",), ["failed"]),
        (("--sort", "length"), ["long wrong", "middle right", "failed", "short right"]),
        (("--sort", "length", "--reverse", "-n", "2"), ["short right", "failed"]),
        (("--sort", "reward"), ["short right", "middle right", "long wrong", "failed"]),
        (
            ("--sort", "reward", "--reverse"),
            ["long wrong", "short right", "middle right", "failed"],
        ),
        (("--group", "1"), ["failed", "middle right"]),
        (("--group", "1", "--wrong"), []),
        (("--step", "3"), ["short right"]),
        (("-n", "1"), ["short right"]),
        (("-n", "0"), ["short right", "long wrong", "failed", "middle right"]),
    ],
)
def test_which_answers_and_in_what_order(shown, words, wanted):
    assert order(shown(*words)) == wanted


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stage", "zeor"], "no stage 'zeor': did you mean 'zero'? Available: base, zero, late"),
        (["--stage", "base"], "'base' has recorded no rollouts; stages with rollouts: zero"),
        (["--step", "6"], "no step 6 in zero: it has 2 steps from 3 to 7; nearest: 7"),
        (["--group", "9"], "no group 9 at step 7: groups are 0 to 1; nearest: 1"),
        (["--sort", "lenght"], "--sort lenght: did you mean 'length'? Available: place, reward, "),
        (["--right", "--errors"], "--right and --errors: one of them"),
        (["-n", "-1"], "-n -1: must be at least 0"),
        (["--held-out"], "no stage of this run has recorded held-out samples yet"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(run, capsys, words, told):
    assert command.main(["samples", run(), *words]) == 2
    assert told in capsys.readouterr().err


def test_scores_of_steps_are_shown_where_they_are_recorded(run, shown):
    scored = [replace(STEP[0], steps=steps) for steps in (((5, 1.0), (11, 0.25)), (), None)]
    text = shown(folder=run(zero={1: scored}))
    assert "  scores of steps: 1 (to character 5), 0.25 (to character 11)\n" in text
    assert text.count("scores of steps") == 2 and "  scores of steps: no steps\n" in text


def test_a_folder_without_a_run_and_a_broken_file_are_mistakes(run, tmp_path, capsys):
    assert command.main(["samples", str(tmp_path)]) == 2
    assert "holds no run: it has no run.json" in capsys.readouterr().err
    folder = Path(run())
    (folder / "zero/rollouts/step_000007.parquet").write_bytes(b"PAR1")
    assert command.main(["samples", str(folder)]) == 2
    assert "step_000007.parquet cannot be read" in capsys.readouterr().err


def test_held_out_samples_are_those_of_evaluations(run, capsys):
    folder = run()
    StageRecord(Path(folder) / "late", tensorboard=False).write_evaluated(5, STEP[3:])
    assert command.main(["samples", folder, "--held-out"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("late, step 5: 1 answer; 1 shown") and order(told) == ["middle right"]


@pytest.mark.parametrize(
    ("words", "head"),
    [
        (["-n", "1"], "zero, step 7: 4 answers; 1 shown"),
        (["--right", "-n", "1"], "zero, step 7: 4 answers, 2 of them right; 1 shown"),
        (["--errors"], "zero, step 7: 4 answers, 1 of them not judged by a verifier; 1 shown"),
        (["--group", "1"], "zero, step 7: 4 answers, 2 of them in group 1; 2 shown"),
        (["--group", "0", "--wrong"],
         "zero, step 7: 4 answers, 1 of them wrong and in group 0; 1 shown"),
    ],
)  # fmt: skip
def test_the_head_says_how_many_there_are_match_and_are_shown(shown, words, head):
    assert shown(*words).splitlines()[0] == head


HOSTILE = (
    "\x1b]0;title\x07\x1b[31m [bold]x[/bold] :smile: \0 \u202eleft \ud800 \r\nveriloop: ok\n\u2028"
)


def test_hostile_text_is_shown_by_its_codes(run, shown):
    verdict = Verdict(score=0.0, answer=HOSTILE[:40], detail=HOSTILE)
    answers = [judged(0, HOSTILE.replace("\ud800", ""), verdict, prompt=HOSTILE)]
    text = shown(folder=run(zero={1: answers}))
    assert {c for c in text if not c.isprintable()} == {"\n"}
    assert "\\x1b]0;title\\x07\\x1b[31m [bold]x[/bold] :smile: \\x00 \\u202eleft" in text
    assert "\nveriloop: ok" not in text and "  │ veriloop: ok" in text


def test_codes_say_which_character_it_was():
    assert escaped("\x07\x85\u202e\ud800\U000e0001") == "\\x07\\x85\\u202e\\ud800\\U000e0001"
    assert escaped("é中😀\n\tok") == "é中😀\n\tok"


def test_long_texts_keep_their_ends_and_are_whole_when_asked(run, shown):
    text = "begin" + "x" * 100_000 + "end"
    folder = run(zero={1: [judged(0, text, RIGHT)]})
    short = shown(folder=folder)
    assert "begin" in short and "end\n" in short and len(short) < 5000
    assert "characters …" in short and text in shown("--full", folder=folder)


@pytest.mark.slow
def test_lines_are_not_broken_and_have_no_colour_in_a_pipe(run):
    folder = run(zero={1: [judged(0, "word " * 100, RIGHT)]})
    words = [sys.executable, "-m", "veriloop.stages.cli", "samples", folder]
    environment = {key: v for key, v in os.environ.items() if key != "FORCE_COLOR"}
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert b"\x1b" not in told.stdout and b"word " * 99 in told.stdout and not told.stderr


@pytest.mark.slow
def test_a_terminal_has_colour(run):
    words = [sys.executable, "-m", "veriloop.stages.cli", "samples", run()]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the other end has closed
                break
        assert process.wait() == 0
    os.close(ours)
    assert b"\x1b[1mzero, step 7" in seen and b"\x1b[31m" in seen


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_failure(run):
    folder = run(zero={1: [judged(0, "x" * 100_000, RIGHT)] * 20})
    words = f"{sys.executable} -m veriloop.stages.cli samples {folder} --full -n 0 | head -c 10"
    shell = ["bash", "-c", f"{words}; echo ${{PIPESTATUS[0]}}"]
    told = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "zero, step141\n" and told.stderr == ""
