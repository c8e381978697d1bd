"""The OpenAPI document is true: statuses, content types and schemas of what the service answers."""

import pytest
from schemathesis import GenerationMode

from tests.openapi import fuzz

BODIES = ("/v1/verify", "/get_reward", "/slime", "/verify", "/seed_session", "/run_code")


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", BODIES)
def test_a_post_is_answered_as_documented(service, path, mode):
    if path == "/seed_session" and mode is GenerationMode.NEGATIVE:
        pytest.skip("it takes no data that could be wrong")
    fuzz(service.url, "POST", path, mode)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/verifiers", "/healthz", "/readyz", "/metrics"])
def test_a_get_is_answered_as_documented(service, path):
    fuzz(service.url, "GET", path, GenerationMode.POSITIVE)
