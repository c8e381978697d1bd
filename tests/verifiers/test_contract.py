"""Every verifier, in the folder or installed, keeps these promises. No edit needed to add one."""

import dataclasses
import math
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from data.problem import Problem
from verifiers import registry
from verifiers.registry import all_verifiers, fingerprint, get, judge, load_plugin, verify_location
from verifiers.verdict import Verdict

ALL = sorted(all_verifiers())
JUNK = [
    "",
    " \n\t",
    "<answer>",
    "<answer></answer>",
    "<answer></answer>" * 2,
    "</answer><answer>",
    "<think>" * 50,
    "</think>" * 50,
    r"\boxed{",
    r"\boxed{}",
    "\x00",
    "\ud800",
    "9" * 10_000,
    "<answer>" + "9" * 10_000 + "</answer>",
    "<answer>" + "(" * 5_000 + "</answer>",
    "<answer>9**9**9**9</answer>",
    "<answer>__import__('os').abort()</answer>",
]
ECHO = (
    "The assistant first thinks and then answers, as in <think> reasoning process here </think> "
    "<answer> answer here </answer>."
)


@pytest.fixture
def scratch(monkeypatch):
    """A registry whose additions are forgotten again."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    all_verifiers.cache_clear()
    yield registry._REGISTRY
    all_verifiers.cache_clear()


def test_the_first_three_are_there():
    assert {"number", "think_format", "math_answer"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_accepts_its_own_example(name):
    verdict = judge(get(name).example_problem(), get(name).example.accepts)
    assert (verdict.score, verdict.status) == (1.0, "graded"), verdict


@pytest.mark.parametrize("name", ALL)
def test_rejects_its_near_misses(name):
    one = get(name)
    assert one.example.rejects, f"{name} names no near miss"
    for response in one.example.rejects:
        assert judge(one.example_problem(), response).score == 0.0, response


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_scores_zero_and_never_raises(name, junk):
    verdict = judge(get(name).example_problem(), junk)
    assert verdict.score == 0.0 and verdict.status != "error", verdict


@pytest.mark.parametrize("name", ALL)
def test_repeating_the_prompt_earns_nothing(name):
    assert judge(get(name).example_problem(), ECHO).score == 0.0


@pytest.mark.parametrize("name", ALL)
def test_thinking_without_end_earns_nothing(name):
    one = get(name)
    assert judge(one.example_problem(), "<think>" + one.example.accepts + "<think>").score == 0.0


@pytest.mark.parametrize("name", ALL)
def test_a_second_answer_earns_nothing(name):
    one = get(name)
    decoy = one.example.accepts + "<answer>decoy</answer><answer>lure</answer>"
    assert judge(one.example_problem(), decoy).score == 0.0


@pytest.mark.parametrize("name", ALL)
def test_threads_agree_with_one_another(name):
    one = get(name)
    responses = [one.example.accepts, *one.example.rejects] * 8
    with ThreadPoolExecutor(4) as threads:
        verdicts = list(threads.map(lambda r: judge(one.example_problem(), r), responses))
    expected = ([1.0] + [0.0] * len(one.example.rejects)) * 8
    assert [verdict.score for verdict in verdicts] == expected


@pytest.mark.parametrize("name", ALL)
def test_the_same_response_gets_the_same_components(name):
    one = get(name)
    seen = {
        frozenset(judge(one.example_problem(), response).components)
        for response in (one.example.accepts, *one.example.rejects, *JUNK[:6])
    }
    assert len(seen) == 1, f"the keys of {name} change from response to response: {seen}"


def test_time_spent_judging_is_filled_in():
    verdict = judge(get("number").example_problem(), "<answer>12</answer>")
    assert 0.0 < verdict.exec_s < 1.0 and verdict.queue_s == 0.0


def test_an_unknown_name_is_an_error_with_the_nearest_match():
    with pytest.raises(KeyError, match="Did you mean 'number'"):
        get("numbr")
    with pytest.raises(KeyError, match=r"no verifier 'numbr'.*math_answer, number"):
        judge(Problem(id="x", prompt="", verifier="numbr", reference={}), "")


def test_a_missing_reference_is_our_error_and_no_wrong_answer():
    bad = Problem(id="x/1", prompt="", reference={}, verifier="number")
    verdict = judge(bad, "<answer>12</answer>")
    assert (verdict.score, verdict.status) == (None, "error") and "value" in verdict.detail


@pytest.mark.parametrize(
    ("made", "said"),
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
def test_an_unsound_verdict_is_an_error(scratch, made, said):
    registry.verifier("odd", reference={}, accepts="")(lambda problem, response: made())
    verdict = judge(get("odd").example_problem(), "")
    assert (verdict.score, verdict.status) == (None, "error") and said in verdict.detail


def test_scores_leave_as_plain_floats(scratch):
    made = Verdict(score=True, components={"a": 1})
    registry.verifier("odd", reference={}, accepts="")(lambda problem, response: made)
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
    ("fields", "said"),
    [
        ({"score": 1.5}, r"\[0, 1\], got 1.5"),
        ({"score": math.nan}, r"\[0, 1\], got nan"),
        ({"score": 0.0, "status": "error"}, "does not fit"),
        ({"score": None}, "does not fit"),
        ({"score": 0.5, "status": "no_answer"}, "scores 0, got 0.5"),
        ({"score": 0.0, "status": "fine"}, "'fine' is not one of"),
    ],
)
def test_verdicts_are_bounded(fields, said):
    with pytest.raises(ValueError, match=said):
        Verdict(**fields)


def test_a_name_is_given_once(scratch):
    with pytest.raises(ValueError, match=r"'number' of .* is already taken by verifiers.number"):
        registry.verifier("number", reference={}, accepts="")(lambda problem, response: None)


def test_the_fingerprint_follows_version_and_source(scratch, tmp_path):
    source = """
        from verifiers.registry import verifier
        from verifiers.verdict import Verdict

        @verifier("{name}", version="{version}", reference={{}}, accepts="")
        def check(problem, response):
            return Verdict(score=1.0)
    """
    for name, version in [("one", "1"), ("two", "7")]:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source.format(name=name, version=version)))
        load_plugin(str(path))
        load_plugin(str(path))  # once is enough, twice is harmless
    found = fingerprint(["one", "two"])
    assert found["one"].startswith("1+") and found["two"].startswith("7+")
    assert len(found["one"]) == 14 and found["one"][2:] != found["two"][2:]
    assert fingerprint(["one"]) == {"one": found["one"]}


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


def test_a_broken_installed_plugin_is_named(scratch, monkeypatch):
    broken = registry.importlib.metadata.EntryPoint("mine", "no.such:check", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken])
    with pytest.raises(ImportError, match=r"'mine = no.such:check' cannot be imported"):
        all_verifiers()


def test_a_package_of_the_same_name_elsewhere_is_refused(tmp_path):
    verify_location()
    other = ModuleType("verifiers")
    other.__file__ = str(tmp_path / "site-packages" / "verifiers" / "__init__.py")
    with pytest.raises(ImportError, match=r"site-packages/verifiers.*pip uninstall verifiers"):
        verify_location(other)
    other.__file__ = None
    with pytest.raises(ImportError, match="no file at all"):
        verify_location(other)
