"""`veriloop doctor` prints a line for each finding, writes them down, and fails when one does."""

import json
import os
import subprocess
import sys

import pytest

from veriloop.pipeline.doctor import machine_checks as machine
from veriloop.pipeline.doctor import model_checks as model
from veriloop.pipeline.doctor.finding import Check, fail, ok, warn
from veriloop.stages.cli import main
from veriloop.stages.commands import doctor as doctor_command


@pytest.fixture
def checks(monkeypatch):
    """Function: the machine is looked over by these alone, and the model by those."""

    def of(machine_finds, model_finds=()):
        def check(found):
            return (Check(name="it", run=lambda subject: iter(found)),)

        monkeypatch.setattr(machine, "MACHINE", check(machine_finds))
        monkeypatch.setattr(model, "MODEL", check(model_finds))

    return of


def test_findings_are_printed_with_their_fixes_and_counted(checks, capsys):
    checks([ok("a", "fine"), warn("b", "not so fine", "do [this]")])
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["a", "ok", "fine"]
    assert lines[1].split() == ["b", "warn", "not", "so", "fine"]
    assert lines[2].strip() == "fix: do [this]"  # brackets are no markup
    assert lines[-1] == "1 ok, 1 warn, 0 fail, 0 skipped"


def test_one_failure_is_enough(checks, capsys):
    checks([fail("a", "bad", "mend it"), ok("b", "fine")])
    assert main(["doctor"]) == 1
    assert "1 ok, 0 warn, 1 fail, 0 skipped" in capsys.readouterr().out


def test_json_has_every_finding(checks, tmp_path):
    checks([ok("a", "fine", 3.5), fail("b", "bad", "mend it")])
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--json", str(file)]) == 1
    rows = json.loads(file.read_text())
    assert [row["name"] for row in rows] == ["a", "b"]
    assert rows[0] == {
        "name": "a",
        "verdict": "ok",
        "measured": "fine",
        "fix": "",
        "number": 3.5,
    }
    assert rows[1]["fix"] == "mend it"


def test_the_model_is_looked_at_only_when_it_is_named(checks, tiny_checkpoint, capsys):
    checks([], [fail("c", "bad model", "mend it")])
    assert main(["doctor"]) == 0
    assert main(["doctor", "--model", str(tiny_checkpoint()), "--sampler", "torch"]) == 1
    assert "bad model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "no/such/folder"], "no such folder"),
        (["--model", "x", "--recipe", "tiny/base"], "--recipe tiny/base: has no rollouts"),
        (["--model", "x", "--recipe", "tiny/zreo"], "tiny/zero"),
    ],
)
def test_what_cannot_be_looked_at_is_a_mistake(checks, words, said, capsys):
    checks([])
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_place_has_the_defaults_of_our_commands(monkeypatch):
    from veriloop.stages.commands.sandbox import Serving
    from veriloop.stages.commands.serve import Options
    from veriloop.stages.commands.serve_reward import Options as RewardOptions
    from veriloop.stages.commands.watch import Options as WatchOptions

    place = doctor_command.machine(doctor_command.Options(sampler="torch"))
    assert place.ports() == {
        "veriloop serve": Options().port,
        "veriloop sandbox serve": Serving().port,
        "veriloop serve-reward": RewardOptions(folder="x").port,
        "veriloop watch": WatchOptions(run="x").port,
    }
    assert len({port for name, port in place.ports().items() if "sandbox" not in name}) == 3
    assert place.sampler == "torch" and set(place.folders()) == {"runs", "model cache"}
    assert (place.root / "pyproject.toml").is_file()


def test_text_of_strangers_reaches_the_terminal_clean(checks, capsys):
    checks([fail("a", "template \x1b[2Jgone\nof it", "\x1b]0;title\x07mend")])
    main(["doctor"])
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said and "\x1b]0" not in said and "gone" in said


def test_a_number_that_is_none_is_valid_json(checks, tmp_path):
    checks([fail("a", "nan nats", "mend it", float("nan"))])
    file = tmp_path / "doctor.json"
    main(["doctor", "--json", str(file)])

    def refuse(word):
        raise ValueError(word)

    assert json.loads(file.read_text(), parse_constant=refuse)[0]["number"] is None


WITHOUT = """
class Hidden:
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Hidden)
"""


def looked_over(setup, *words):
    """Exit code and lines of the doctor in a Python of its own, after `setup`."""
    code = (
        f"import sys\n{setup}\nfrom veriloop.stages.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--sampler", "torch", *words],
        cwd=doctor_command.ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert "Traceback" not in ran.stderr
    lines = [line.partition("  ") for line in ran.stdout.splitlines()]
    return ran.returncode, {name: rest.strip() for name, _, rest in lines}


@pytest.mark.slow
def test_an_install_without_torch_is_still_looked_over(tiny_checkpoint):
    without = WITHOUT.format(name="torch")
    code, lines = looked_over(without, "--model", str(tiny_checkpoint()))
    assert code == 1 and lines["clock"].startswith("ok")
    assert lines["model"].endswith("ModuleNotFoundError: No module named 'torch'")


@pytest.mark.slow
def test_every_check_says_something_of_this_machine_and_of_a_sound_checkpoint(
    tiny_checkpoint, tmp_path, capsys
):
    file = tmp_path / "doctor.json"
    asked = ["--model", str(tiny_checkpoint()), "--sampler", "torch", "--json", str(file)]
    code = main(["doctor", *asked])
    rows = json.loads(file.read_text())
    failed = [row["name"] for row in rows if row["verdict"] == "fail"]
    assert code == bool(failed) and not [row for row in rows if "crashed" in row["measured"]]
    names = [row["name"] for row in rows]
    of_model = names[names.index("weights") :]
    assert len(of_model) >= len(model.MODEL) and not set(of_model) & set(failed)
    assert len(names) - len(of_model) >= len(machine.MACHINE)
    assert f"{len(failed)} fail" in capsys.readouterr().out
