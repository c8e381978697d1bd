import subprocess

import pytest

from veriloop.sandbox import probe as probe_module
from veriloop.sandbox.interpreter import Interpreter
from veriloop.sandbox.probe import SandboxUnavailableError, build_probe, choose_tier, probe

PYTHON = Interpreter(path="/usr/bin/python3", read_only=("/usr",))
NAMES = """user namespace|mount namespace|pid namespace|net namespace|ipc namespace
|file tree as root|file tree as user|seccomp|landlock|pidfd""".replace("\n", "").split("|")


def machine_without(*missing, cgroup=True):
    outcomes = {name: "Operation not permitted" if name in missing else "" for name in NAMES}
    tried = {"errors": outcomes, "details": {"landlock": "ABI 5"}}
    tried |= {"cgroup": cgroup, "cgroup detail": "v2 at /x"}
    return build_probe(tried, PYTHON)


@pytest.mark.parametrize(
    ("missing", "tier", "way"),
    [
        ((), 1, "root"),
        (("file tree as root",), 1, "user"),
        (("file tree as user",), 1, "root"),
        (("file tree as root", "file tree as user"), 2, "user"),
        (("landlock",), 1, "root"),
        (("file tree as root", "file tree as user", "landlock"), 0, "user"),
        (("seccomp",), 0, "root"),
        (("pidfd",), 0, "root"),
    ],
)
def test_the_tier_follows_from_what_works(missing, tier, way):
    found = machine_without(*missing)
    assert (found.tier, found.way) == (tier, way)


def test_the_table_names_every_layer_and_why_one_is_missing():
    text = str(machine_without("file tree as root", "file tree as user", cgroup=False))
    assert text.startswith("sandbox: tier 2")
    for name in NAMES:
        assert name in text
    rows = {line.split("  ")[1]: line for line in text.splitlines()[1:]}
    assert "no   Operation not permitted" in rows["file tree as user"]
    assert "yes" in rows["landlock"] and "ABI 5" in rows["landlock"]
    assert "no" in rows["cgroup memory+pids"]


NO_TREE = ("file tree as root", "file tree as user")


@pytest.mark.parametrize(
    ("missing", "wanted", "allow_reduced", "tier"),
    [
        ((), None, False, 1),
        ((), None, True, 1),
        ((), 1, True, 1),
        ((), 2, False, 2),
        (NO_TREE, None, True, 2),
        (NO_TREE, 2, False, 2),
    ],
)
def test_the_tier_that_is_taken(missing, wanted, allow_reduced, tier):
    assert choose_tier(machine_without(*missing), wanted, allow_reduced) == tier


@pytest.mark.parametrize(
    ("missing", "wanted", "allow_reduced"),
    [
        (NO_TREE, None, False),
        (NO_TREE, 1, True),
        (("landlock",), 2, True),
        (("seccomp",), None, True),
        (("seccomp",), 2, True),
    ],
)
def test_less_than_asked_for_is_refused_with_the_table(missing, wanted, allow_reduced):
    found = machine_without(*missing)
    with pytest.raises(SandboxUnavailableError) as refusal:
        choose_tier(found, wanted, allow_reduced)
    assert str(found) in str(refusal.value)


def test_a_refused_tier_1_says_how_to_accept_tier_2():
    with pytest.raises(SandboxUnavailableError, match="allow_reduced=True would accept tier 2"):
        choose_tier(machine_without(*NO_TREE), None, False)


def test_there_is_no_third_tier():
    with pytest.raises(ValueError, match="got 3"):
        choose_tier(machine_without(), 3, True)


def test_this_machine_is_probed_once_and_the_table_is_whole(capsys):
    found = probe()
    assert probe() is found
    assert found.tier in (0, 1, 2)
    if found.tier:
        assert {layer.name for layer in found.layers} == {*NAMES, "cgroup memory+pids", "python"}
    with capsys.disabled():
        print(f"\n{found}")


def test_a_layer_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        machine_without().works("magic")


def test_a_self_test_that_does_not_end_is_tried_again(monkeypatch):
    genuine = probe_module._run_selftest
    attempts = []

    def slow_once(python):
        attempts.append(python)
        if len(attempts) == 1:
            raise subprocess.TimeoutExpired("python", 30)
        return genuine(python)

    monkeypatch.setattr(probe_module, "_run_selftest", slow_once)
    probe_module._tested.cache_clear()
    try:
        first = probe()
        assert (first.tier, first.python) == (0, None) and "timed out" in str(first)
        found = probe()
        assert found.python is not None and probe() is found and len(attempts) == 2
    finally:
        probe_module._tested.cache_clear()
