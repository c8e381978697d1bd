"""A container is stale when its owner has ended, and never because its owner cannot be seen."""

import os
import subprocess

import pytest

from veriloop.sandbox.docker import ownership


def test_our_own_containers_are_not_stale():
    assert not ownership.is_stale(ownership.owner_label(), running=True)
    assert not ownership.is_stale(ownership.owner_label(), running=False)
    assert ownership.owner_label() == ownership.owner_label(os.getpid())


def test_those_of_a_process_that_has_ended_are():
    with subprocess.Popen(["sleep", "60"]) as process:
        label = ownership.owner_label(process.pid)
        assert not ownership.is_stale(label, running=True)
        process.kill()
    assert ownership.is_stale(label, running=True)


def test_another_process_with_the_same_number_is_not_the_owner():
    boot, space, pid, started = ownership.owner_label().split()
    assert ownership.is_stale(f"{boot} {space} {pid} {int(started) - 1}", running=True)


@pytest.mark.parametrize("place", [0, 1], ids=["another machine", "another pid namespace"])
def test_of_an_owner_out_of_sight_only_what_has_stopped_is_stale(place):
    words = ownership.owner_label().split()
    words[place] = "elsewhere"
    words[2] = "999999999"
    assert not ownership.is_stale(" ".join(words), running=True)
    assert ownership.is_stale(" ".join(words), running=False)


@pytest.mark.parametrize("written", ["", "junk", "a b c d e"])
def test_a_label_of_somebody_elses_making_harms_no_running_container(written):
    assert not ownership.is_stale(written, running=True)
