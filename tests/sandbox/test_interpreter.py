import json
import subprocess
import sys

import pytest

from sandbox.namespace import interpreter
from sandbox.namespace.interpreter import ENVIRONMENT, ROOT, Interpreter


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
        version, prefix = answer
        return subprocess.CompletedProcess(command, 0, json.dumps([version, prefix, prefix]), "")

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


def test_a_module_of_ours_starts_with_its_arguments_and_leaves_the_path_clean(tmp_path):
    module = tmp_path / "entry_of_test.py"
    module.write_text(
        "import sys\ndef main(words): print(words, sys.flags.safe_path, sys.path[:1])\n"
    )
    command = Interpreter(path=sys.executable, read_only=()).command("entry_of_test", "a", "b")
    command[command.index(str(ROOT))] = str(tmp_path)
    ran = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert ran.stdout.startswith("['a', 'b'] True") and str(tmp_path) not in ran.stdout


def test_hashes_are_fixed_by_the_environment():
    python = Interpreter(path=sys.executable, read_only=())
    command = [*python.command("", "")[:6], "-c", "print(hash('x'))"]
    texts = {subprocess.check_output(command, env=ENVIRONMENT) for _ in range(2)}
    assert len(texts) == 1
