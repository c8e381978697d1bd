"""A container is stale when its owner has ended, and never because its owner cannot be seen."""

import os
import subprocess

import pytest

from sandbox.docker import owner


def test_our_own_containers_are_not_stale():
    assert not owner.is_stale(owner.label(), running=True)
    assert not owner.is_stale(owner.label(), running=False)
    assert owner.label() == owner.label(os.getpid())


def test_those_of_a_process_that_has_ended_are():
    with subprocess.Popen(["sleep", "60"]) as process:
        label = owner.label(process.pid)
        assert not owner.is_stale(label, running=True)
        process.kill()
    assert owner.is_stale(label, running=True)


def test_another_process_with_the_same_number_is_not_the_owner():
    boot, space, pid, started = owner.label().split()
    assert owner.is_stale(f"{boot} {space} {pid} {int(started) - 1}", running=True)


@pytest.mark.parametrize("place", [0, 1], ids=["another machine", "another pid namespace"])
def test_of_an_owner_out_of_sight_only_what_has_stopped_is_stale(place):
    words = owner.label().split()
    words[place] = "elsewhere"
    words[2] = "999999999"
    assert not owner.is_stale(" ".join(words), running=True)
    assert owner.is_stale(" ".join(words), running=False)


@pytest.mark.parametrize("written", ["", "junk", "a b c d e"])
def test_a_label_of_somebody_elses_making_harms_no_running_container(written):
    assert not owner.is_stale(written, running=True)
