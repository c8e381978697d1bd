"""Verifiers that break their promises, or change their mind, are found out."""

import pytest

from veriloop.pipeline.doctor import rewards as module
from veriloop.pipeline.doctor.rewards import EXAMPLES, SAME, cases, rewards
from veriloop.verifiers.registry import get, load_plugin

PLUGIN = """
import multiprocessing
from itertools import count

from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

calls = count()


@verifier("NAME", reference={"value": "1"}, accepts="one", rejects=("two",), needs=NEEDS)
def check(problem, response):
    BODY
    return Verdict(score=float(response == "one"))
"""


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Function: only `number` and this verifier are registered, for as long as the test runs."""

    def register(name, body, needs=""):
        file = tmp_path / f"{name}.py"
        text = PLUGIN.replace("NAME", name).replace("BODY", body)
        file.write_text(text.replace("NEEDS", repr(needs)))
        load_plugin(str(file))
        known = {one: get(one) for one in ("number", name)}
        monkeypatch.setattr(module, "all_verifiers", lambda: known)

    return register


@pytest.mark.slow
def test_sound_verifiers_pass_in_every_process(registered, findings):
    registered("sound", "pass")
    found = findings(rewards, None)
    assert {name: f.verdict for name, f in found.items()} == {EXAMPLES: "ok", SAME: "ok"}
    count = len(cases(get("number"))) + 2
    assert found[EXAMPLES].measured == f"2 verifiers score {count} examples as declared"
    assert found[SAME].measured == f"{count} answers, 4 times in 3 processes"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return Verdict(score=1.0)", "'two' scores 1.0, declared 0.0 (graded: )"),
        ("return Verdict(score=0.0)", "'one' scores 0.0, declared 1.0 (graded: )"),
        ("raise OSError('disk full')", "scores None, declared 1.0 (error: OSError: disk full)"),
    ],
)
def test_a_verifier_that_breaks_its_promise_fails_and_the_others_go_on(
    registered, findings, body, said
):
    registered("unsound", body)
    found = findings(rewards, None)
    assert (
        found["verifier unsound"].verdict == "fail" and said in found["verifier unsound"].measured
    )
    assert found["verifier unsound"].fix == "veriloop verifier check unsound"
    assert found[SAME].verdict == "ok" and "1 verifiers" in found[EXAMPLES].measured


@pytest.mark.slow
def test_a_verifier_that_lacks_what_it_needs_is_not_here(registered, findings):
    registered("lacking", "raise OSError('set URL')", needs="an endpoint: URL")
    found = findings(rewards, None)["verifier lacking"]
    assert (found.verdict, found.fix) == ("skipped", "provide an endpoint: URL")
    assert "set URL" in found.measured


@pytest.mark.slow
def test_a_verifier_that_changes_its_mind_fails(registered, findings):
    body = "return Verdict(score=float(response == 'one'), answer=str(next(calls)))"
    registered("moody", body)
    found = findings(rewards, None)
    assert found["verifier moody"].verdict == "fail" and SAME not in found


@pytest.mark.slow
def test_a_verifier_that_depends_on_where_it_runs_fails(registered, findings):
    body = "if multiprocessing.parent_process(): return Verdict(score=0.0)"
    registered("homesick", body)
    found = findings(rewards, None)["verifier homesick"]
    assert found.verdict == "fail" and "0.0 graded, answer None; 1.0 graded" in found.measured


@pytest.mark.slow
def test_every_registered_verifier_is_sound_or_says_what_it_lacks(findings):
    found = findings(rewards, None)
    assert {f.verdict for f in found.values()} <= {"ok", "skipped"}
    assert found[SAME].number > 50
