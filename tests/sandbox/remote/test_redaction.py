"""No message holds a credential: not of an address, and not of the environment."""

import logging

import pytest

from veriloop.sandbox.remote.connection import Address
from veriloop.sandbox.remote.redaction import has_credentials, redact_logs, redacted

SECRETS = {"JUDGE_KEY": "sk-abcdefgh", "HF_TOKEN": "hf_12345678", "DB_PASSWORD": "correct horse"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://anna:pw@host/v1: HTTP 401", "http://***@host/v1: HTTP 401"),
        ("redis://:p@w@host:1", "redis://***@host:1"),
        ("https://token@host", "https://***@host"),
        ("at https://host/v1?api_key=abc&n=2, https://a:b@c", "at https://host/v1?api_key=***&n=2, https://***@c"),
        ("'https://host/?access_token=abc'", "'https://host/?access_token=***'"),
        ("X-Amz-Signature: https://host/a?X-Amz-Signature=ab#c", "X-Amz-Signature: https://host/a?X-Amz-Signature=***#c"),
        ("Incorrect API key provided: sk-abcdefgh.", "Incorrect API key provided: <JUDGE_KEY>."),
        ("Bearer hf_12345678 for correct horse", "Bearer <HF_TOKEN> for <DB_PASSWORD>"),
    ],
)  # fmt: skip
def test_a_secret_is_replaced(text, shown):
    assert redacted(text, SECRETS) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8000/v1: HTTP 404",
        "organisation/model@main of https://huggingface.co/a/b@main",
        "a = b ? key=1",
        "write to anna@host.org",
    ],
)
def test_other_text_stays(text):
    assert redacted(text, SECRETS) == text


def test_short_values_and_other_variables_are_no_secrets():
    environment = {"KEY": "1", "TOKEN": "", "HOME": "/home/anna", "KEY_FILE": "/run/secret.txt"}
    assert redacted("1 in /home/anna and /run/secret.txt", environment) == (
        "1 in /home/anna and /run/secret.txt"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://a:b@host/v1", True),
        ("https://host/v1?key=abc", True),
        ("https://host:8000/v1", False),
        ("https://host/a@b", False),
        ("organisation/model@main", False),
        ("Connect to http://a:b@host and say what you see.", False),  # a prompt
    ],
)
def test_credentials_of_an_address_are_recognised(value, expected):
    assert has_credentials(value) is expected


def test_the_refusal_of_an_address_does_not_repeat_its_password():
    with pytest.raises(ValueError, match=r"http://\*\*\*@host:80") as refusal:
        Address.read("http://anna:hunter2hunter2@host:80")
    assert "hunter2" not in str(refusal.value)


@pytest.fixture
def logged(caplog):
    """Function: what is printed of a log call of a library, after `redact_logs`."""
    factory = logging.getLogRecordFactory()
    redact_logs()

    def run(*arguments, **named):
        caplog.clear()
        logging.getLogger("a.library").warning(*arguments, **named)
        return caplog.messages

    yield run
    logging.setLogRecordFactory(factory)


@pytest.mark.parametrize(
    "arguments",
    [
        ("thrown while requesting HEAD http://anna:pw@host/v1",),
        ("%s thrown while requesting %s %s", OSError(111), "HEAD", "http://anna:pw@host/v1"),
    ],
)
def test_logs_of_libraries_hold_no_secret(logged, arguments):
    (said,) = logged(*arguments)
    assert said.endswith("thrown while requesting HEAD http://***@host/v1")


def test_other_logs_keep_their_arguments(logged, caplog):
    assert logged("%s of %d", "one", 2) == ["one of 2"]
    (record,) = caplog.records
    assert (record.msg, record.args) == ("%s of %d", ("one", 2))
