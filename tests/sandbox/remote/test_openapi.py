"""The OpenAPI document of the sandbox service is true, whatever the executor does."""

import pytest
from schemathesis import GenerationMode

from tests.openapi import fuzz
from veriloop.sandbox.remote.service import Service
from veriloop.sandbox.result import Execution


class Box:
    backend, tier = "box", 2

    def run(self, program, invocation, limits):
        if len(program.source) % 3 == 0:
            raise RuntimeError("the zygote died")
        return Execution(ended="ok", exit_code=0, stdout=invocation.data)


@pytest.fixture(scope="module")
def service():
    with Service(Box()) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_a_program_is_answered_as_documented(service, mode):
    fuzz(service.url, "POST", "/run_code", mode)


def test_health_is_answered_as_documented(service):
    fuzz(service.url, "GET", "/health", GenerationMode.POSITIVE)
