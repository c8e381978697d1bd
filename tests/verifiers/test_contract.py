"""Every verifier, in the folder or installed, keeps these promises. No edit needed to add one."""

import dataclasses
import math
import re
import textwrap
from pathlib import Path

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers import registry
from veriloop.verifiers.contract import examine
from veriloop.verifiers.registry import (
    all_verifiers,
    describe,
    fingerprint,
    get,
    judge,
    load_plugin,
)
from veriloop.verifiers.verdict import Verdict

ALL = sorted(all_verifiers())
SLOW = {"code_tests"}


@pytest.fixture
def scratch(monkeypatch):
    """A registry whose additions are forgotten again."""
    for table in ("_REGISTRY", "_LOADED", "_BROKEN"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    all_verifiers.cache_clear()
    yield registry._REGISTRY
    all_verifiers.cache_clear()


def test_the_first_three_are_there():
    assert {"number", "think_format", "math_answer"} <= set(ALL)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in ALL]
)
def test_every_verifier_keeps_every_promise(name, endpoint):
    findings = list(examine(get(name), judge))
    assert [finding for finding in findings if finding.kept is False] == []
    tried = {finding.promise for finding in findings if finding.kept}
    assert {"accepts its example", "rejects near misses", "empty earns nothing"} <= tried
    if get(name).kind != "text":
        assert "another problem's gold earns nothing" in tried, f"{name} names no other problem"
        assert len(tried) >= len(findings) - 1, findings  # look-alikes may have no letters


def test_a_broken_verifier_is_found_out(scratch):
    generous = {"reference": {"a": 1}, "accepts": "<answer>acc</answer>", "rejects": ("no",)}
    other = ({"a": 2}, "<answer>bob</answer>")

    @registry.verifier("always", **generous, other=other)
    def always(problem, response):
        return Verdict(score=1.0)

    @registry.verifier("searching", **generous, other=other)
    def searching(problem, response):
        gold = {1: "acc", 2: "bob"}.get(problem.reference.get("a"), "?")
        return Verdict(score=float(gold in response))

    @registry.verifier("stateful", **generous, components=("calls",))
    def stateful(problem, response):
        calls.append(response)
        keys = {"calls": 1.0} if len(calls) % 2 else {}
        return Verdict(score=float(len(calls) == 1), components=keys)

    calls = []
    broken = {name: _broken(get(name)) for name in ("always", "searching")}
    assert len(broken["always"]) == 9, broken["always"]
    assert broken["searching"] == {
        "thinking alone earns nothing",
        "a second answer earns nothing",
        "all answers at once earn nothing",
    }
    unguarded = {
        finding.promise for finding in examine(get("stateful"), stateful) if not finding.kept
    }
    assert "components have fixed keys" in unguarded


def _broken(verifier):
    return {finding.promise for finding in examine(verifier, judge) if finding.kept is False}


def test_an_installed_package_of_verifiers_is_found(scratch, monkeypatch, tmp_path):
    package = tmp_path / "verifiers_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parity.py").write_text(
        "from veriloop.verifiers.registry import verifier\n"
        "from veriloop.verifiers.verdict import Verdict\n"
        "@verifier('parity_of_mine', reference={}, accepts='odd')\n"
        "def check(problem, response):\n"
        "    return Verdict(score=float(response == 'odd'))\n"
    )
    dist_info = tmp_path / "mine-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(
        f"[{registry.ENTRY_POINTS}]\nmine = verifiers_of_mine.parity\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert judge(get("parity_of_mine").example_problem(), "odd").score == 1.0


def test_errors_have_the_components_too():
    verifier = get("countdown")
    verdict = judge(verifier.problem({"numbers": [1], "target": "x"}), "<answer>1</answer>")
    assert verdict.status == "error"
    assert verdict.components == {"parsed": 0.0, "numbers_right": 0.0, "value_right": 0.0}


def test_undeclared_components_are_an_error(scratch):
    undeclared = Verdict(score=1.0, components={"b": 1.0})
    registry.verifier("odd", reference={}, accepts="", components=("a",))(lambda p, r: undeclared)
    verdict = judge(get("odd").example_problem(), "")
    assert (
        verdict.status == "error"
        and "components ['b'], but the decorator of 'odd' declares ['a']" in verdict.detail
    )


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"must be one of .*'answer'.* got 'answers'"):
        registry.verifier("odd", reference={}, accepts="", kind="answers")


def test_time_spent_judging_is_filled_in():
    verdict = judge(get("number").example_problem(), "<answer>12</answer>")
    assert 0.0 < verdict.exec_s < 1.0 and verdict.queue_s == 0.0


def test_an_unknown_name_is_an_error_with_the_nearest_match():
    with pytest.raises(KeyError, match="Did you mean 'number'"):
        get("numbr")
    with pytest.raises(KeyError, match=r"no verifier 'numbr'.*math_answer, .*number"):
        judge(Problem(id="x", prompt="", verifier="numbr", reference={}), "")


def test_a_missing_reference_is_our_error_and_no_wrong_answer():
    bad = Problem(id="x/1", prompt="", reference={}, verifier="number")
    verdict = judge(bad, "<answer>12</answer>")
    assert (verdict.score, verdict.status) == (None, "error") and "value" in verdict.detail


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: None, "must return a Verdict, got NoneType"),
        (lambda: 1.0, "got float"),
        (lambda: Verdict(score=math.nan), "got nan"),
        (lambda: Verdict(score=math.inf), "got inf"),
        (lambda: Verdict(score=1.5), "got 1.5"),
        (lambda: Verdict(score=1.0, components={"a": math.nan}), "'a' must be finite"),
        (lambda: Verdict(score=1.0, answer=7), "must be text"),
        (lambda: Verdict(score=1.0, detail=None), "must be text"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: exit(3), "SystemExit: 3"),
        (lambda: [][0], "IndexError"),
    ],
)
def test_an_unsound_verdict_is_an_error(scratch, create, message):
    registry.verifier("odd", reference={}, accepts="")(lambda problem, response: create())
    verdict = judge(get("odd").example_problem(), "")
    assert (verdict.score, verdict.status) == (None, "error") and message in verdict.detail


def test_scores_leave_as_plain_floats(scratch):
    unsound = Verdict(score=True, components={"a": 1})
    registry.verifier("odd", reference={}, accepts="", components=("a",))(lambda p, r: unsound)
    verdict = judge(get("odd").example_problem(), "")
    assert type(verdict.score) is float and type(verdict.components["a"]) is float


def test_verdicts_and_verifiers_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Verdict(score=1.0).score = 0.5
    with pytest.raises(dataclasses.FrozenInstanceError):
        get("number").version = "2"
    with pytest.raises(TypeError, match="does not support item assignment"):
        all_verifiers()["number"] = None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": 1.5}, r"\[0, 1\], got 1.5"),
        ({"score": math.nan}, r"\[0, 1\], got nan"),
        ({"score": 0.0, "status": "error"}, "does not fit"),
        ({"score": None}, "does not fit"),
        ({"score": 0.5, "status": "no_answer"}, "scores 0, got 0.5"),
        ({"score": 0.0, "status": "fine"}, "'fine' is not one of"),
    ],
)
def test_verdicts_are_bounded(fields, message):
    with pytest.raises(ValueError, match=message):
        Verdict(**fields)


def test_a_name_is_given_once(scratch):
    with pytest.raises(
        ValueError, match=r"'number' of .* is already registered by veriloop.verifiers.number"
    ):
        registry.verifier("number", reference={}, accepts="")(lambda problem, response: None)


def test_the_fingerprint_follows_version_and_source(scratch, tmp_path):
    source = """
        from veriloop.verifiers.registry import verifier
        from veriloop.verifiers.verdict import Verdict

        @verifier("{name}", version="{version}", reference={{}}, accepts="")
        def check(problem, response):
            return Verdict(score=1.0)
    """
    for name, version in [("one", "1"), ("two", "7")]:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source.format(name=name, version=version)))
        load_plugin(str(path))
        load_plugin(str(path))  # once is enough, twice is harmless
    fingerprints = fingerprint(["one", "two"])
    assert fingerprints["one"].startswith("1+") and fingerprints["two"].startswith("7+")
    assert len(fingerprints["one"]) == 14 and fingerprints["one"][2:] != fingerprints["two"][2:]
    assert fingerprint(["one"]) == {"one": fingerprints["one"]}


def test_the_fingerprint_names_the_model_that_judges(monkeypatch):
    monkeypatch.delenv("VERILOOP_JUDGE_MODEL", raising=False)
    without = fingerprint(["llm_judge"])["llm_judge"]
    monkeypatch.setenv("VERILOOP_JUDGE_MODEL", "org/One-7B")
    assert fingerprint(["llm_judge"]) == {"llm_judge": f"{without},model=org_One-7B"}
    monkeypatch.setenv("VERILOOP_PROCESS_MARK", "<+>")
    assert fingerprint(["process_reward"])["process_reward"].endswith(",mark=___")


def test_the_fingerprint_follows_the_parts_too(scratch, tmp_path, monkeypatch):
    package = tmp_path / "graded_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text("LIMIT = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.verifier("odd", reference={}, accepts="", parts=("graded_parts",))(
        lambda problem, response: None
    )
    before = fingerprint(["odd"])
    assert fingerprint(["odd"]) == before
    (package / "rules.py").write_text("LIMIT = 2\n")
    assert fingerprint(["odd"]) != before


def test_a_broken_plugin_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 // 0")
    with pytest.raises(ImportError, match=r"broken.py' cannot be imported: ZeroDivisionError"):
        load_plugin(str(path))
    with pytest.raises(ImportError, match=r"'no.such.module' cannot be imported: ModuleNotFound"):
        load_plugin("no.such.module")
    with pytest.raises(ImportError, match=r"absent.py is not a file"):
        load_plugin(str(tmp_path / "absent.py"))


def test_a_broken_installed_plugin_is_named_and_stops_no_other(scratch, monkeypatch, capsys):
    points = [
        registry.importlib.metadata.EntryPoint(name, value, registry.ENTRY_POINTS)
        for name, value in (("mine", "no.such:check"), ("sound", "json:loads"))
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert "number" in all_verifiers()
    printed = capsys.readouterr()
    reason = "'mine = no.such:check' cannot be imported: ModuleNotFoundError"
    assert reason in printed.err and "sound" not in printed.err and printed.out == ""
    with pytest.raises(KeyError, match=r"no verifier 'its_own'.*'mine = no.such:check' cannot"):
        get("its_own")


def test_a_plugin_cannot_change_the_reference(scratch):
    @registry.verifier("changes", reference={"a": [1]}, accepts="")
    def changes(problem, response):
        problem.reference["a"].append(2)
        problem.reference["a"] = "changed"
        return Verdict(score=1.0)

    problem = get("changes").problem({"a": [1]})
    verdict = judge(problem, "")
    assert verdict.status == "error" and "does not support item assignment" in verdict.detail
    assert problem.reference == {"a": [1]}


def test_the_documentation_lists_every_verifier_with_its_kind_and_components():
    text = (Path(__file__).parent.parent.parent / "docs" / "verifiers.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    listed = {row[0].strip("`"): row for row in rows if len(row) == 5 and row[0].startswith("`")}
    assert set(listed) == set(ALL)
    for name, row in listed.items():
        assert row[1] == get(name).kind, name
        assert re.findall(r"`(\w+)`", row[4]) == list(get(name).components), name


def test_the_error_of_a_verifier_shows_no_secret(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-hunter2hunter2")
    message = "401 for http://anna:hunter2@host/v1 with key sk-hunter2hunter2"
    assert describe(ConnectionError(message)) == (
        "ConnectionError: 401 for http://***@host/v1 with key <JUDGE_API_KEY>"
    )
