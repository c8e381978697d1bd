"""The command line as a user meets it: quick, and its exit codes mean something."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.failures import RecipeError, StageError, Stopped
from stages import command

ROOT = Path(command.__file__).parent.parent
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

    def doing(run, name="stages.zero"):
        module = ModuleType(name)
        module.run = run
        monkeypatch.setitem(sys.modules, name, module)

    return doing


def raising(failure):
    def run(recipe, output, *, resume):
        raise failure

    return run


@pytest.mark.parametrize(
    "words", [["--help"], ["zero", "tiny/zero", "--dry-run"], ["zero", "--help"], ["recipes", "ls"]]
)
def test_answering_imports_nothing_heavy(words):
    code = (
        f"import sys; from stages.command import main; code = main({words!r});"
        f"print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)), code)"
    )
    status, out, err = python("-c", code)
    assert (status, err) == (0, "") and out.endswith("heavy: [] 0\n")


def test_help_comes_at_once():
    began = time.monotonic()
    status, out, _ = python("-m", "stages.command", "--help")
    assert time.monotonic() - began < 2  # benchmarks/startup.py measures the real figure
    assert status == 0 and out.startswith("usage: veriloop COMMAND")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words, capsys):
    assert command.main(words) == 0
    shown = capsys.readouterr().out
    for name, (_, told) in command.COMMANDS.items():
        assert f"  {name} " in shown and told in shown


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_command_of_the_help_is_there(name):
    module = command.COMMANDS[name][0]
    assert importlib.util.find_spec(module) is not None
    assert "def command(words" in Path(importlib.util.find_spec(module).origin).read_text()


@pytest.mark.parametrize("name", ["zero", "base", "recipes", "config"])
def test_every_command_has_help(name, capsys):
    assert command.main([name, "--help"]) == 0
    assert f"veriloop {name}" in capsys.readouterr().out


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
        output.mkdir(parents=True)
        (output / "run.json").write_text('{"stages": []}')
        return Path("there")

    stage(run)
    assert command.main(["zero", "tiny/zero"]) == 0
    shown = capsys.readouterr().out
    assert "checkpoint: there\n" in shown and shown.endswith("/report.html\n")


class WrongWeightsError(StageError):
    pass


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (WrongWeightsError("hash a, not b"), 1, "veriloop: WrongWeightsError: hash a, not b\n"),
        (RecipeError("no such thing"), 2, "veriloop: no such thing\n"),
        (FileNotFoundError("models/x holds no checkpoint"), 2,
         "veriloop: models/x holds no checkpoint\n"),
        (ModuleNotFoundError("vLLM is not installed; set sampler.engine to torch"), 2,
         "veriloop: vLLM is not installed; set sampler.engine to torch\n"),
        (ModuleNotFoundError("No module named 'pebble'", name="pebble"), 2,
         f"veriloop: No module named 'pebble'; install what veriloop needs with `pip install -e .` "
         f"in {ROOT}\n"),
        (KeyboardInterrupt(), 130,
         "veriloop: interrupted; checkpoints written before are complete\n"),
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
    "bug",
    [
        ZeroDivisionError("a bug"),
        ValueError("a bug"),
        ModuleNotFoundError("No module named 'pipeline.x'", name="pipeline.x"),
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


def test_a_reader_that_leaves_early_gets_no_traceback():
    asked = subprocess.Popen(
        [sys.executable, "-m", "stages.command", "config", "schema"],
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
    status, out, err = python("-m", f"stages.{name}", *words, env={"OMP_NUM_THREADS": "1"})
    assert (status, err) == (0, "")
    assert command.main([name, *words]) == 0
    assert out == capsys.readouterr().out and "seed: 7\n" in out


def test_another_package_called_verifiers_is_told_apart_and_never_run(tmp_path):
    (tmp_path / "verifiers").mkdir()
    (tmp_path / "verifiers/__init__.py").write_text("print('the other one ran')")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}];"
        "from stages.command import main; sys.exit(main(['zero', 'tiny/zero', '--dry-run']))"
    )
    status, out, err = python("-c", code, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert f"finds {tmp_path / 'verifiers/__init__.py'}, not the folder beside" in err
    assert f"`pip uninstall verifiers`, then run `pip install -e .` in {ROOT}" in err


@pytest.mark.parametrize("found", [None, SimpleNamespace(origin=None)])
def test_no_verifiers_at_all_is_told_as_well(found, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(RecipeError, match="finds no such package, not the folder"):
        command.check_verifiers()


def test_our_own_verifiers_pass_and_the_help_needs_none(monkeypatch, capsys):
    command.check_verifiers()
    with pytest.raises(RecipeError, match="hides it"):
        command.check_verifiers(Path("/elsewhere"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command.main(["--help"]) == 0
    assert command.main(["recipes", "ls"]) == 2
    assert "no such package" in capsys.readouterr().err
