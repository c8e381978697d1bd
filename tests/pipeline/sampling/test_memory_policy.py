"""A thread's memory policy outlives what changes it in between."""

import ctypes
from contextlib import nullcontext
from pathlib import Path

import pytest

from veriloop.pipeline.sampling import memory_policy
from veriloop.pipeline.sampling.memory_policy import memory_policy_kept

BIND = 2  # MPOL_BIND of set_mempolicy(2)


def policy():
    """The kernel's word for this thread's policy: default, bind:0, ..."""
    return Path("/proc/thread-self/numa_maps").read_text().split(maxsplit=2)[1]


@pytest.fixture
def libnuma():
    try:
        library = ctypes.CDLL("libnuma.so.1")
    except OSError:
        pytest.skip("libnuma is not installed, nor is vLLM, which needs it")
    if library.set_mempolicy(0, None, ctypes.c_ulong()):
        pytest.skip("the kernel or the container does not let a process set its memory policy")
    return library


def bound(libnuma, nodes):
    mask = (ctypes.c_ulong * 1)(nodes)
    assert libnuma.set_mempolicy(BIND, mask, ctypes.c_ulong(64)) == 0


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_block_binds_is_unbound_after_it(libnuma, fails):
    before = policy()
    with pytest.raises(KeyError) if fails else nullcontext(), memory_policy_kept():
        bound(libnuma, 1)
        assert policy() == "bind:0"
        if fails:
            raise KeyError
    assert policy() == before == "default"


def test_a_policy_that_the_user_chose_is_kept(libnuma):
    bound(libnuma, 1)
    try:
        with memory_policy_kept():
            libnuma.set_mempolicy(0, None, ctypes.c_ulong())
            assert policy() == "default"
        assert policy() == "bind:0"
    finally:
        libnuma.set_mempolicy(0, None, ctypes.c_ulong())


def test_without_libnuma_the_block_runs(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(memory_policy, "ctypes", type("C", (), {"CDLL": staticmethod(missing)}))
    with memory_policy_kept():
        ran = True
    assert ran
