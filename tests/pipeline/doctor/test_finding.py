"""Checks are run one after another, and none can end the others."""

import pytest

from veriloop.pipeline.doctor.finding import (
    Check,
    UnavailableError,
    fail,
    first_line,
    ok,
    passed,
    run_checks,
    skipped,
    warn,
)


def crashing(subject):
    yield ok("first half", subject)
    raise OSError("no such thing\nand more")


def leaving(subject):
    yield from ()
    raise SystemExit(3)


def lacking(subject):
    yield from ()
    raise UnavailableError("needs the model", "mend the model first")


def test_a_check_that_crashes_is_a_failure_first_line_and_the_others_go_on():
    checks = [
        Check(name="a", run=crashing),
        Check(name="b", run=leaving),
        Check(name="c", run=lambda subject: iter([ok("c", subject)])),
    ]
    found = list(run_checks(checks, "x"))
    assert [(one.name, one.verdict) for one in found] == [
        ("first half", "ok"),
        ("a", "fail"),
        ("b", "fail"),
        ("c", "ok"),
    ]
    assert found[1].measured == "the check crashed: OSError: no such thing"
    assert found[1].fix and found[2].measured.endswith("SystemExit: 3")


def test_what_a_check_lacks_is_reported_and_is_no_failure():
    (one,) = run_checks([Check(name="it", run=lacking)], None)
    assert (one.verdict, one.measured) == ("skipped", "needs the model")
    assert one.fix == "mend the model first" and passed([one])


@pytest.mark.parametrize("make", [warn, fail, skipped])
def test_what_is_not_ok_comes_with_a_fix(make):
    with pytest.raises(ValueError, match=r"it: a finding with verdict .* needs a fix"):
        make("it", "bad", "")
    assert make("it", "bad", "do that").fix == "do that"


def test_only_failures_are_unhealthy():
    harmless = [ok("a", ""), warn("b", "", "x"), skipped("c", "", "x")]
    assert passed(harmless) and passed([])
    assert not passed([*harmless, fail("d", "", "x")])


def test_an_exception_that_says_nothing_is_reported_by_its_type():
    assert first_line(ValueError()) == "ValueError"
    assert first_line(KeyError("x")) == "KeyError: 'x'"
