"""Whom the gate lets in: requests that name this machine, and none of another site's pages."""

import pytest
from starlette.testclient import TestClient

from veriloop.pipeline.watch.app import build
from veriloop.pipeline.watch.middleware import POLICY
from veriloop.sandbox.remote.sockets import is_own_name


@pytest.mark.parametrize(
    ("name", "host", "ours_is"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "127.0.0.1", True),
        ("evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("10.0.0.7", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("10.0.0.7", "0.0.0.0", True),
        ("localhost", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("Box.example", "box.example", True),
    ],
)
def test_names_of_this_machine(name, host, ours_is):
    assert is_own_name(name, host) is ours_is


@pytest.fixture
def client(growing):
    growing.step(1)
    return TestClient(build(growing.folder, host="127.0.0.1"), base_url="http://127.0.0.1:8090")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "[::2]:80", "10.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/events", "/page.js", "/none"])
def test_a_foreign_name_is_refused_everywhere(client, host, path):
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403 and "use the address of 127.0.0.1" in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "[::1]:8090", "127.0.0.1"])
def test_any_port_of_loopback_is_ours_for_who_forwards_one(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_another_sites_page_gets_nothing_but_a_link_works(client):
    foreign = {"sec-fetch-site": "cross-site"}
    assert client.get("/events", headers=foreign).status_code == 403
    assert client.get("/page.js", headers=foreign).status_code == 403
    assert client.get("/", headers=foreign).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/plotly.js", "/none"])
def test_every_answer_forbids_what_the_page_does_not_need(client, path):
    told = client.get(path).headers
    assert told["content-security-policy"] == POLICY and "unsafe-eval" not in POLICY
    assert "script-src 'self';" in POLICY and told["x-content-type-options"] == "nosniff"
    assert told["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client, method):
    for path in ("/", "/events", "/page.js"):
        assert client.request(method, path).status_code == 405
    assert {client.get(path).status_code for path in ("/docs", "/openapi.json")} == {404}
