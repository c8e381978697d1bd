"""Published results say how old they are, and pages stay right while the code changes."""

import importlib
import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"


@pytest.fixture
def script(monkeypatch):
    """A benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with ten files in a/ and one in b/, and its commit."""

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    for name in [*(f"a/{n}.py" for n in range(10)), "b/1.py"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git("init", "-q")
    git("add", "-A")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-02T12:00:00Z")
    git("commit", "-q", "-m", "one", "--date", "2020-01-01T00:00:00Z")
    return tmp_path, git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("changed", "paths", "words"),
    [
        ([], "a", "none"),
        (["b/1.py"], "a", "none"),
        (["b/1.py"], "ab", "few files"),
        (["a/0.py"], "a", "some files"),
        ([f"a/{n}.py" for n in range(4)], "a", "some files"),
        ([f"a/{n}.py" for n in range(5)], "a", "most files"),
    ],
)
def test_the_share_of_changed_files_is_told_of_those_that_are_measured(
    script, repository, changed, paths, words
):
    folder, commit = repository
    for name in changed:
        (folder / name).write_text("2\n")
    (folder / "a/9.py").unlink()  # what is gone does not count
    found = script("ages").age(folder, commit, tuple(paths))
    assert found.changed == words
    assert str(found) == f"2020-01-02; code changed since: {words}"


def test_without_its_commit_or_a_repository_the_age_of_a_result_is_unknown(
    script, repository, tmp_path_factory, monkeypatch
):
    ages, (folder, commit) = script("ages"), repository
    assert str(ages.age(folder, "0" * 40, ("a",))) == "unknown; code changed since: unknown"
    assert ages.age(tmp_path_factory.mktemp("no"), commit, ("a",)).changed == "unknown"
    monkeypatch.setenv("PATH", "")
    assert ages.age(folder, commit, ("a", "no git")).changed == "unknown"


NOTE = (
    "by `x.py` at 1234567 (2026-11-20; code changed since: some files). | 1 | 2026-11-20 | none |"
)


@pytest.mark.parametrize(
    ("fresh", "right"),
    [
        (NOTE, True),
        (NOTE.replace("some files", "most files").replace("none", "few files"), True),
        (NOTE.replace("some files", "few files"), False),  # less than the page says
        (NOTE.replace("(2026-11-20", "(2026-11-21"), False),
        (NOTE.replace("2026-11-20 | none", "unknown | unknown"), True),
        (NOTE.replace("1234567", "1234568"), False),
        (NOTE.replace("| 1 |", "| 2 |"), False),
        (NOTE.split(" |")[0], False),
    ],
)
def test_a_page_stays_right_while_more_code_changes(script, fresh, right):
    assert script("ages").agrees(NOTE, fresh) is right


def test_a_page_written_without_git_is_renewed_with_it(script):
    page = NOTE.replace(
        "2026-11-20; code changed since: some files", "unknown; code changed since: unknown"
    )
    assert not script("ages").agrees(page, NOTE)
    assert script("ages").agrees(page, page)


def test_what_scripts_measure_is_there_and_each_pattern_has_a_script(script):
    ages = script("ages")
    scripts = [
        path.relative_to(ROOT / "benchmarks").with_suffix("").as_posix()
        for folder in ("", "faults")
        for path in (ROOT / "benchmarks" / folder).glob("*.py")
    ]
    used = {ages.measured(name) for name in scripts}
    assert used == {*ages.MEASURED.values()}
    for paths in used:
        named = [path.removeprefix(":(exclude)") for path in paths]
        assert [name for name in named if not (ROOT / name).exists()] == []
    assert ages.measured("sandbox_speed") == ("sandbox",)
    assert ages.measured("verify_language") == ("verifiers/text",)
    assert "recipes/tiny" in ages.measured("zero_seeds")


def test_a_result_measured_with_uncommitted_changes_says_so(script, tmp_path, monkeypatch):
    readme = script("readme")
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    git = {"commit": "1234567" + "0" * 33, "dirty": False}
    result = {"command": "python benchmarks/sync.py --seeds 0", "git": git}

    def printed():
        (tmp_path / "sync.json").write_text(json.dumps(result))
        return readme.printed_by("sync")

    assert printed() == "`benchmarks/sync.py --seeds 0` at 1234567"
    git["dirty"] = True
    assert printed() == "`benchmarks/sync.py --seeds 0` at 1234567 with uncommitted changes"
    result["git"] = {}
    assert printed() == "`benchmarks/sync.py --seeds 0`"


def test_every_result_whose_tree_had_changes_says_so_on_its_page():
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for path in RESULTS.rglob("*.json"):
        result = json.loads(path.read_text())
        command = result["command"].removeprefix("python ")
        at = f"`{command}` at {result['git']['commit'][:7]}"
        if result["git"]["dirty"] is not False and at in pages:
            assert pages.count(at) == pages.count(f"{at} with uncommitted changes"), path.name


def test_each_row_and_each_note_of_the_pages_has_an_age(script):
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    lines = [line for line in pages.splitlines() if "`benchmarks/" in line and "` at " in line]
    assert len(lines) > 80
    assert [line for line in lines if not script("ages").SHOWN.search(line)] == []
