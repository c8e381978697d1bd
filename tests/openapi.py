"""Requests generated from a service's OpenAPI document, which its responses must obey."""

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS, load_all_checks

load_all_checks()
STATED = CHECKS.get_by_names(
    [
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    ]
)
FEW = settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def fuzz(url, method, path, mode):
    """A few requests to one operation; `mode`: whether they obey the document themselves."""
    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")[path][method]

    @FEW
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def conforms(case):
        response = case.call()
        assert response.status_code < 500 or response.status_code == 503, response.text
        case.validate_response(response, checks=STATED)

    conforms()
