import json
import subprocess
import sys

import pytest

from veriloop.sandbox import interpreter
from veriloop.sandbox.interpreter import ENVIRONMENT, PACKAGE, Interpreter


@pytest.fixture
def fresh():
    """`find` forgets what it found, before and after."""
    interpreter.find.cache_clear()
    yield interpreter.find
    interpreter.find.cache_clear()


def pretend(monkeypatch, answers):
    """Each path's answer: version and prefix, or an error text."""

    def run(command, **_):
        answer = answers.get(command[0], "No such file")
        if isinstance(answer, str):
            return subprocess.CompletedProcess(command, 1, "", f"Traceback\n{answer}\n")
        version, *prefixes = answer
        lines = json.dumps([version, "numpy" in command[0], *prefixes, prefixes[-1]])
        return subprocess.CompletedProcess(command, 0, lines, "")

    monkeypatch.setattr(interpreter.subprocess, "run", run)


OWN = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"


def test_the_systems_python_is_preferred(monkeypatch, fresh):
    pretend(monkeypatch, {"/usr/bin/python3": ([3, 12], "/usr"), OWN: ([3, 11], "/opt/x")})
    assert fresh() == Interpreter(path="/usr/bin/python3", read_only=("/usr",))


@pytest.mark.parametrize("system", ["no module named json", ([3, 9], "/usr")])
def test_our_own_python_is_taken_with_its_folder_when_the_systems_will_not_do(
    monkeypatch, fresh, system
):
    pretend(monkeypatch, {"/usr/bin/python3": system, OWN: ([3, 11], "/opt/x")})
    assert fresh() == Interpreter(path=OWN, read_only=("/usr", "/opt/x"))


def test_with_neither_the_error_says_why_for_both(monkeypatch, fresh):
    pretend(monkeypatch, {"/usr/bin/python3": ([3, 9], "/usr"), OWN: "no module named ctypes"})
    with pytest.raises(OSError, match=r"is 3\.9, older than 3\.11.*no module named ctypes"):
        fresh()


def test_an_interpreter_that_programs_could_not_see_is_refused(monkeypatch, fresh):
    pretend(monkeypatch, {"/tmp/own/bin/python": ([3, 12], "/tmp/own")})
    monkeypatch.setenv(interpreter.VARIABLE, "/tmp/own/bin/python")
    with pytest.raises(OSError, match=r"/tmp/own lies in /tmp, where programs see only their own"):
        fresh()


def test_the_environment_may_name_the_interpreter_of_programs(monkeypatch, fresh, tmp_path):
    monkeypatch.setattr(interpreter, "HIDDEN", "/hidden")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    chosen = f"{tmp_path}/numpy/bin/python"
    pretend(monkeypatch, {chosen: ([3, 12], f"{tmp_path}/numpy", "/opt/x")})
    monkeypatch.setenv(interpreter.VARIABLE, f"{link}/numpy/bin/python")
    folders = ("/usr", f"{tmp_path}/numpy", "/opt/x")
    assert fresh() == Interpreter(path=chosen, read_only=folders, numpy=True)
    assert "with numpy" in str(fresh()) and "without" not in str(fresh())


def test_a_named_interpreter_that_does_not_work_is_an_error(monkeypatch, fresh):
    pretend(monkeypatch, {"/usr/bin/python3": ([3, 12], "/usr")})
    monkeypatch.setenv(interpreter.VARIABLE, "/no/python")
    with pytest.raises(OSError, match="VERILOOP_SANDBOX_PYTHON=/no/python: /no/python: No such"):
        fresh()


def test_a_folder_inside_another_is_not_listed_twice(monkeypatch, fresh):
    pretend(monkeypatch, {OWN: ([3, 12], "/opt/x/env", "/opt/x")})
    assert fresh().read_only == ("/usr", "/opt/x")


def start(package, module, *arguments):
    command = Interpreter(path=sys.executable, read_only=()).command(module, *arguments)
    command[command.index(str(PACKAGE))] = str(package)
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)


def test_a_module_of_ours_starts_with_its_arguments_and_leaves_the_path_clean(tmp_path):
    (tmp_path / "entry_of_test.py").write_text(
        "import sys\ndef main(words): print(words, sys.flags.safe_path, sys.path)\n"
    )
    ran = start(tmp_path, "entry_of_test", "a", "b")
    assert ran.stdout.startswith("['a', 'b'] True") and str(tmp_path) not in ran.stdout


def test_nothing_but_the_sandbox_is_imported_from_where_it_is_installed(tmp_path):
    """Of a site-packages, neither other packages nor other parts of veriloop can be reached."""
    package = tmp_path / "veriloop" / "sandbox"
    package.mkdir(parents=True)
    for other in ("cmd.py", "neighbour.py", "veriloop/__init__.py", "veriloop/other.py"):
        (tmp_path / other).write_text(f"raise SystemExit('{other} was imported')\n")
    (package / "limits_of_test.py").write_text("VALUE = 7\n")
    (package / "entry_of_test.py").write_text(
        "import cmd, importlib.util\n"
        "from veriloop.sandbox.limits_of_test import VALUE\n"
        "def main(words):\n"
        "    others = [importlib.util.find_spec(n) for n in ('neighbour', 'veriloop.other')]\n"
        "    print(VALUE, hasattr(cmd, 'Cmd'), others)\n"
    )
    assert start(package, "entry_of_test").stdout == "7 True [None, None]\n"


def test_hashes_are_fixed_by_the_environment():
    python = Interpreter(path=sys.executable, read_only=())
    command = [*python.command("", "")[:6], "-c", "print(hash('x'))"]
    texts = {subprocess.check_output(command, env=ENVIRONMENT) for _ in range(2)}
    assert len(texts) == 1
