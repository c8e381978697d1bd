"""A port for a server that begins later is nobody else's meanwhile."""

import socket

import pytest

from veriloop.pipeline.sampling.ports import reserved_port


@pytest.fixture
def held():
    with reserved_port("127.0.0.1") as port:
        yield port


def test_a_server_listens_on_the_port_that_is_reserved_for_it(held):
    with socket.create_server(held.getsockname()) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
        server.accept()[0].close()


def test_nobody_reaches_a_reserved_port_before_its_server_listens(held):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(held.getsockname(), timeout=5)


def test_a_reserved_port_is_given_to_no_program_that_does_not_ask_for_it(held):
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(held.getsockname())
