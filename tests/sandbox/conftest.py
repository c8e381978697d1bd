"""Executors of this machine, opened once; a tier the machine cannot give skips its tests."""

from pathlib import Path

import pytest
from filelock import FileLock

from veriloop.sandbox.docker.engine import connect, find_image
from veriloop.sandbox.docker.image import build
from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.suite import load

HERE = Path(__file__).resolve()
GIVEN = HERE.parents[3] / "shared/cases"
SUITES = {
    "own": HERE.parent / "cases",
    "given": GIVEN / "attacks",
    "second given": GIVEN / "attacks_2",
}
# To share the waiting.
PARTS = [("own", 0, 2), ("own", 1, 2), ("given", 0, 1), ("second given", 0, 1)]


def opened(tier):
    try:
        return NamespaceExecutor(slots=2, tier=tier)
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))


@pytest.fixture(scope="session", params=[1, 2], ids=["tier1", "tier2"])
def sandbox(request):
    """Each tier in turn."""
    with opened(request.param) as executor:
        yield executor


@pytest.fixture(scope="session")
def strong():
    """Tier 1 alone."""
    with opened(1) as executor:
        yield executor


@pytest.fixture(scope="session")
def engine():
    """A client of the Docker daemon that answers here."""
    try:
        client = connect()
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine, tmp_path_factory):
    """The id of an image with the sandbox as it is now; one made for this is taken away again.

    Test processes that run beside each other share it: the last one takes it away.
    """
    folder = tmp_path_factory.getbasetemp().parent
    lock, users = FileLock(folder / "image.lock"), folder / "image.users"
    made_for_us = folder / "image.tag"
    with lock:
        try:
            found = find_image(engine, None)
        except SandboxUnavailableError:
            made_for_us.write_text(build().tag)
            found = find_image(engine, None)
        users.write_text(users.read_text() + "+" if users.exists() else "+")
    yield found
    with lock:
        users.write_text(users.read_text()[1:])
        if not users.read_text() and made_for_us.exists():
            engine.images.remove(made_for_us.read_text(), force=True)
            made_for_us.unlink()


@pytest.fixture(scope="session", params=[1, 2], ids=["tier1", "tier2"])
def docked(request, image):
    """Each tier in containers; `image` says that there is one."""
    with DockerExecutor(slots=2, tier=request.param) as executor:
        yield executor


@pytest.fixture(params=PARTS, ids=[f"{name}{part}" for name, part, _ in PARTS])
def suite(request):
    """A part of a suite, classes of attacks left whole: (its name, attacks, honest programs)."""
    name, part, parts = request.param
    if not (SUITES[name] / "manifest.jsonl").is_file():
        pytest.skip(f"no suite at {SUITES[name]}")
    attacks, honest = load(SUITES[name])
    groups = sorted({one.group for one in attacks})[part::parts]
    chosen = [one for one in attacks if one.group in groups]
    assert chosen
    files = {one.file for one in chosen}
    alone = [one for one in honest[1:] if not one.run_beside]
    beside = [one for one in honest[1:] if one.run_beside in files]
    label = f"{name}, part {part + 1} of {parts}"
    return label, chosen, [honest[0], *alone[part::parts], *beside]


@pytest.fixture(scope="session")
def sample():
    """An attack of every class that earns no reward, and two honest programs."""
    attacks, honest = load(SUITES["own"])
    quick = [one for one in attacks if one.must == "no_reward" and not one.run_after]
    chosen = list({one.group: one for one in quick}.values())
    assert len(chosen) >= 4
    return chosen, honest[:2]
