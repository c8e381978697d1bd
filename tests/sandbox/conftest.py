"""Executors of this machine, opened once; a tier the machine cannot give skips its tests."""

import pytest

from sandbox.docker.engine import connect, find_image
from sandbox.docker.image import build
from sandbox.docker.pool import DockerExecutor
from sandbox.namespace.pool import NamespaceExecutor
from sandbox.probe import SandboxUnavailableError


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
def image(engine):
    """The id of an image with the sandbox as it is now; one made for this is taken away again."""
    try:
        yield find_image(engine, None)
    except SandboxUnavailableError:
        tag = build().tag
        yield engine.images.get(tag).id
        engine.images.remove(tag, force=True)


@pytest.fixture(scope="session", params=[1, 2], ids=["tier1", "tier2"])
def docked(request, image):
    """Each tier in containers; `image` says that there is one."""
    with DockerExecutor(slots=2, tier=request.param) as executor:
        yield executor
