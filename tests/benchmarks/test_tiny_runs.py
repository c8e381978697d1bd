"""A long benchmark goes on where it was stopped, but only with runs of the code as it is."""

import importlib
import subprocess
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
STUB = """
import os, pathlib, sys
output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
output.mkdir()
(output / "said").write_text(os.environ["OMP_NUM_THREADS"])
raise SystemExit(3)
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout whose command does next to nothing; function: commit all that changed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    runs, root = importlib.import_module("tiny_runs"), tmp_path / "checkout"
    files = {
        "src/veriloop/__init__.py": "",
        "src/veriloop/stages/__init__.py": "",
        "src/veriloop/stages/cli.py": STUB,
        "recipes/tiny/base.yaml": "{}",
        ".gitignore": "__pycache__",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(runs, "ROOT", root)

    def commit():
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
            subprocess.run(["git", *words], cwd=root, check=True)

    commit()
    return runs, root, commit


@pytest.mark.slow
def test_a_run_is_kept_for_its_flags_and_commit_and_for_no_changed_tree(checkout, tmp_path):
    runs, root, commit = checkout
    ended = []

    def told(run):
        ended.append((run.output / "said").read_text())
        return {"status": run.status}

    def asked(*flags):
        found = runs.run(tmp_path, "one", flags, 0, told, quick=False)
        assert found == {"status": 3}
        return len(ended)

    assert asked() == asked() == 1 and ended == ["1"]  # one thread
    assert asked("--steps", "2") == asked("--steps", "2") == 2
    (tmp_path / "one.json").write_text('{"command": [], "told": {"status": 3}}')  # of an older one
    assert asked("--steps", "2") == asked("--steps", "2") == 3
    (root / "new.py").write_text("")
    assert asked("--steps", "2") == 4 and asked("--steps", "2") == 5
    commit()
    assert asked("--steps", "2") == asked("--steps", "2") == 6
