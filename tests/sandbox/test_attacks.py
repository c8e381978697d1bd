"""Every known attack fails and every honest program passes, on each tier this machine gives."""

import pytest

from sandbox.canaries import canaries
from sandbox.namespace.pool import NamespaceExecutor
from sandbox.probe import SandboxUnavailableError
from sandbox.suite import CONTAINED, run_suite
from stages.sandbox_command import grade

# Tier 2 has no writable file: honest programs that need one are refused there, by design.
NEEDS_FILES = {"honest/023_temp_files.py"}


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
    refused = [one for one in report.honest if not one.accepted]
    if executor_tier == 2:
        refused = [one for one in refused if one.file not in NEEDS_FILES]
    return [one for one in report.attacks if one.effect != CONTAINED], refused, table


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
