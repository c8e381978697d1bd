"""Every known attack fails in a container too, and every honest program passes."""

import pytest

from tests.sandbox.known import unexplained
from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.suite import run_suite
from veriloop.stages.commands.sandbox import grade

pytestmark = pytest.mark.docker


def outcome(tier, attacks, honest):
    """All that went wrong."""
    slots = 2  # one for a neighbour
    with canaries() as targets, DockerExecutor(slots=slots, tier=tier) as executor:
        report = run_suite(executor, targets, attacks, honest, grade)
    return unexplained(report)


@pytest.mark.slow
@pytest.mark.parametrize("tier", [1, 2])
def test_no_attack_gets_through_and_no_honest_program_is_refused(image, suite, tier, capsys):
    name, attacks, honest = suite
    through, refused = outcome(tier, attacks, honest)
    with capsys.disabled():
        print(
            f"\n{name} suite in Docker at tier {tier}: {len(attacks)} attacks, {len(honest)} honest"
        )
    assert (through, refused) == ([], [])


@pytest.mark.parametrize("tier", [1, 2])
def test_one_attack_of_every_class_fails_and_two_honest_programs_pass(image, sample, tier):
    assert outcome(tier, *sample) == ([], [])
