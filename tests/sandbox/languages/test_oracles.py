"""An attack prints the right answer once it has escaped: if it cannot, it proves nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.suite import load
from veriloop.stages.commands.sandbox import grade

ATTACKS, _ = load(Path(__file__).parents[1] / "cases")
ENDS = {  # where the part ends that all attacks in a language share, and how it is used
    "c": ("fflush(stdout);\n}\n", "int main(void) { verdict(1); }\n"),
    "javascript": ("'blocked');\n}\n", "verdict(true);\n"),
    "bash": ("else echo blocked; fi; }\n", "verdict 1\n"),
}
SUM = "select sum(x) from numbers;\n"


def rewarded(strong, case):
    try:
        return grade(strong, case)[0] == 1.0
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize("language", ENDS)
def test_an_attack_that_had_escaped_would_be_rewarded(language, strong):
    end, use = ENDS[language]
    oracles = [case for case in ATTACKS if case.language == language and end in case.source]
    shared = {case.source.partition(end)[0] + end for case in oracles}
    assert len(oracles) >= 4 and len(shared) == 1
    assert rewarded(strong, replace(oracles[0], source=shared.pop() + use))


def test_a_query_that_had_escaped_would_be_rewarded(strong):
    oracles = [case for case in ATTACKS if case.language == "sql" and case.source.endswith(SUM)]
    assert len(oracles) >= 4 and rewarded(strong, replace(oracles[0], source=SUM))
