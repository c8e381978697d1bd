"""Every known attack fails and every honest program passes, on each tier this machine gives."""

import pytest

from tests.sandbox.known import unexplained
from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.suite import run_suite
from veriloop.stages.commands.sandbox import grade


def outcome(executor_tier, attacks, honest):
    """All that went wrong, as text."""
    with canaries() as targets:
        try:
            executor = NamespaceExecutor(slots=2, tier=executor_tier)  # one for a neighbour
        except SandboxUnavailableError as refusal:
            pytest.skip(str(refusal))
        with executor:
            report = run_suite(executor, targets, attacks, honest, grade)
            table = "\n".join([str(executor.probe), "not tried:", *report.missing])
    return *unexplained(report), table


@pytest.mark.slow
@pytest.mark.parametrize("tier", [1, 2])
def test_no_attack_gets_through_and_no_honest_program_is_refused(suite, tier, capsys):
    name, attacks, honest = suite
    through, refused, table = outcome(tier, attacks, honest)
    with capsys.disabled():
        print(
            f"\n{name} suite at tier {tier}: {len(attacks)} attacks, {len(honest)} honest\n{table}"
        )
    assert (through, refused) == ([], [])


@pytest.mark.parametrize("tier", [1, 2])
def test_one_attack_of_every_class_fails_and_two_honest_programs_pass(sample, tier):
    attacks, honest = sample
    through, refused, _ = outcome(
        tier, [one for one in attacks if one.language == "python"], honest
    )
    assert (through, refused) == ([], [])
