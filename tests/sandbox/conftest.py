"""Executors of this machine, opened once; a tier the machine cannot give skips its tests."""

import pytest

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
