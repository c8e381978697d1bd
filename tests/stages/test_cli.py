"""The command line as a user meets it: quick, and its exit codes mean something."""

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from veriloop.pipeline.errors import NonFiniteError, RecipeError, StageError, Stopped
from veriloop.stages import cli as command
from veriloop.verifiers.verdict import UnreadyVerifierError

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "vllm", "sympy", "transformers", "numpy")


def python(*words, cwd=ROOT, env=()):
    """Run this Python with `words`: exit code, standard output, standard error."""
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **dict(env)},
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """A stage that does what the test says, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def doing(run, name="veriloop.stages.zero"):
        module = ModuleType(name)
        module.run = run
        monkeypatch.setitem(sys.modules, name, module)

    return doing


def raising(failure):
    def run(recipe, output, *, resume):
        raise failure

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--help"], ["zero", "tiny/zero", "--dry-run"], ["zero", "--help"], ["recipes", "ls"]]
)
def test_answering_imports_nothing_heavy(words):
    code = (
        f"import sys; from veriloop.stages.cli import main; code = main({words!r});"
        f"print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)), code)"
    )
    status, out, err = python("-c", code)
    assert (status, err) == (0, "") and out.endswith("heavy: [] 0\n")


def test_help_comes_at_once():
    began = time.monotonic()
    status, out, _ = python("-m", "veriloop", "--help")
    assert time.monotonic() - began < 2  # benchmarks/startup.py measures the real figure
    assert status == 0 and out.startswith("usage: veriloop [-h] [--version] COMMAND")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words, capsys):
    assert command.main(words) == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in command.COMMANDS.items():
        assert f"│ {name} " in shown and summary in shown


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_command_of_the_help_is_there(name):
    module = command.COMMANDS[name][0]
    assert importlib.util.find_spec(module) is not None
    assert "def command(words" in Path(importlib.util.find_spec(module).origin).read_text()


@pytest.mark.parametrize("name", ["zero", "base", "recipes", "config", "evaluate"])
def test_every_command_has_help_of_its_own_words(name, capsys):
    assert command.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"veriloop {name}" in said and "Creates a new" not in said and "pydantic" not in said


def test_the_version_is_the_installed_one(capsys):
    assert command.main(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "veriloop" and version[0].isdigit()


def test_nothing_asked_shows_what_can_be_and_is_a_mistake(capsys):
    assert command.main([]) == 2
    assert "usage: veriloop" in capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys):
    assert command.main(["zreo", "tiny/zero"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("veriloop: no command 'zreo'. Did you mean 'zero'?")
    assert shown.out == ""


def test_a_command_like_no_other_gets_no_hint(capsys):
    assert command.main(["xyz"]) == 2
    assert "no command 'xyz'.\n" in capsys.readouterr().err


def test_a_stage_that_ends_well_is_0(stage, capsys):
    def run(recipe, output, *, resume):
        output.mkdir(parents=True, exist_ok=True)
        (output / "run.json").write_text('{"stages": []}')
        return Path("there")

    stage(run)
    assert command.main(["zero", "tiny/zero"]) == 0
    shown = capsys.readouterr().out
    assert "checkpoint: there\n" in shown and shown.endswith("/report.html\n")


class WrongWeightsError(StageError):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (WrongWeightsError("hash a, not b"), 1, "veriloop: WrongWeightsError: hash a, not b\n"),
        (NonFiniteError("grad_norm is nan at optimizer step 3"), 1,
         "veriloop: NonFiniteError: grad_norm is nan at optimizer step 3\n"),
        (OSError(errno.ENOSPC, "No space left on device", "run/x"), 1,
         "veriloop: run/x: No space left on device. Checkpoints written before are complete: make "
         "room, then go on with --resume\n"),
        (PermissionError(errno.EACCES, "Permission denied", "run/y"), 1,
         "veriloop: run/y: Permission denied. Checkpoints written before are complete: allow "
         "access or name another place, then go on with --resume\n"),
        (OSError("no number"), 1, "veriloop: no number. Checkpoints written before are complete: "
         "remove the cause, then go on with --resume\n"),
        (UnreadyVerifierError("verifiers ['parity'] cannot judge their examples: no engine"), 1,
         "veriloop: UnreadyVerifierError: verifiers ['parity'] cannot judge their examples: no "
         "engine\n"),
        (RecipeError("no such thing"), 2, "veriloop: no such thing\n"),
        (FileNotFoundError("models/x holds no checkpoint"), 2,
         "veriloop: models/x holds no checkpoint\n"),
        (ModuleNotFoundError("vLLM is not installed; set sampler.engine to torch"), 2,
         "veriloop: vLLM is not installed; set sampler.engine to torch\n"),
        (ModuleNotFoundError("No module named 'pebble'", name="pebble"), 2,
         "veriloop: No module named 'pebble'; install what veriloop needs with "
         "pip install veriloop\n"),
        (KeyboardInterrupt(), 130,
         "veriloop: interrupted; checkpoints written before are complete; go on with: veriloop "
         "zero tiny/zero --output outputs/tiny-zero-1 --resume\n"),
        (Stopped("stopped after step 3 of 5"), 130,
         "veriloop: stopped after step 3 of 5; go on with: veriloop zero tiny/zero --output "
         "outputs/tiny-zero-1 --resume\n"),
    ],
)  # fmt: skip
def test_each_end_has_its_exit_code_and_one_message(failure, code, said, stage, capsys):
    stage(raising(failure))
    assert command.main(["zero", "tiny/zero"]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", said)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [("ENOSPC", "make room"), ("EROFS", "allow access or name another place"), ("EIO", "check")],
)
def test_only_a_command_that_resumes_is_advised_to(number, remedy, monkeypatch, capsys):
    number = getattr(errno, number)

    def failing(words):
        raise OSError(number, os.strerror(number), "there/report.html")

    monkeypatch.setattr("veriloop.stages.commands.report.command", failing)
    assert command.main(["report", "there"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        f"veriloop: there/report.html: {os.strerror(number)}. To go on, {remedy}"
    )
    assert said.endswith(" and repeat the command\n") and "--resume" not in said


@pytest.mark.parametrize(
    "bug",
    [
        ZeroDivisionError("a bug"),
        ValueError("a bug"),
        ModuleNotFoundError("No module named 'veriloop.x'", name="veriloop.x"),
    ],
)
def test_a_bug_is_not_dressed_up_as_a_message(bug, stage):
    stage(raising(bug))
    with pytest.raises(type(bug)) as met:
        command.main(["zero", "tiny/zero"])
    assert met.value is bug


@pytest.mark.parametrize("flag", [["--rollout.promts", "4"], ["--seed", "x"], ["junk"]])
def test_a_wrong_flag_is_a_mistake_and_starts_nothing(flag, stage, tmp_path):
    stage(raising(AssertionError("started")))
    assert command.main(["zero", "tiny/zero", *flag]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_reader_that_leaves_early_gets_no_traceback():
    asked = subprocess.Popen(
        [sys.executable, "-m", "veriloop.stages.cli", "config", "schema"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    asked.stdout.close()
    with asked.stderr as said:
        assert said.read() == b""
    assert asked.wait() == 141


@pytest.mark.slow
@pytest.mark.parametrize("name", ["base", "zero"])
def test_a_stage_can_be_started_by_its_own_name(name, capsys):
    words = [f"tiny/{name}", "--seed", "7", "--dry-run"]
    status, out, err = python("-m", f"veriloop.stages.{name}", *words, env={"OMP_NUM_THREADS": "1"})
    assert (status, err) == (0, "")
    assert command.main([name, *words]) == 0
    assert out == capsys.readouterr().out and "seed: 7\n" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_interpreter_ends_leaves_the_exit_code(number):
    code = (
        "import atexit, signal, sys; from veriloop.stages.cli import entry;"
        "code = entry('--version');"
        f"atexit.register(signal.raise_signal, {int(number)}); sys.exit(code)"
    )
    status, out, err = python("-c", code)
    assert (status, err) == (0, "") and out.startswith("veriloop ")


def test_a_message_shows_no_credentials(capsys):
    assert (
        command.main(["zero", "tiny/zero", "--verifier-service", "http://anna:hunter2@host:80"])
        == 2
    )
    said = capsys.readouterr().err
    assert "hunter2" not in said and "'http://***@host:80' holds credentials" in said


def test_a_word_that_is_not_utf_8_is_refused(capsys):
    assert command.main(["zero", "tiny/zero", "--output", "runs/\udcff"]) == 2
    said = capsys.readouterr().err
    assert said == "veriloop: b'runs/\\xff' on the command line is not UTF-8\n"


def test_an_interrupt_outside_of_the_command_ends_in_a_message():
    code = (
        "import signal, sys; from veriloop.stages import cli;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # ignored in the background
        "cli.main = lambda words: signal.raise_signal(signal.SIGINT); sys.exit(cli.entry('zero'))"
    )
    assert python("-c", code) == (130, "", "veriloop: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_the_end_of_a_run_and_its_last_message_is_no_crash(number):
    script = f"""
import signal, sys
from veriloop.pipeline.training.stop import CommandSignals
from veriloop.stages import cli

def main(words):
    with CommandSignals():
        pass
    signal.raise_signal({int(number)})
    return 0

cli.main = main
sys.exit(cli.entry())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "veriloop: interrupted\n")


def test_a_package_missing_beside_a_checkout_that_is_not_installed_is_named(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    said = command._missing_package(ModuleNotFoundError("No module named 'x'", name="x"))
    assert said == "No module named 'x'; install what veriloop needs with pip install veriloop"


@pytest.mark.parametrize("setting", ["choose_waiting", "limit_caches"])
@pytest.mark.parametrize(("word", "computes"), [("zero", True), ("recipes", False)])
def test_a_command_that_computes_is_set_up_before_torch_is_imported(setting, word, computes):
    assert (word in command.COMPUTING) is computes
    code = (
        f"import sys; from veriloop.stages import cli; cli.{setting} = lambda: "
        f"print('set', 'torch' in sys.modules); cli.main([{word!r}, '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ("set False" in done.stdout) is computes
