"""Removes secrets from messages: credentials in addresses, and values of the environment."""

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^\s/?#]*@")  # user:password@ of an address
_QUERY = re.compile(
    r"([?&][\w.-]*(?:key|token|secret|password|passwd|signature|credential)=)[^&#\s\"'<>]+",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
_LEAST = 8  # characters of a value that no message holds by chance


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without credentials in addresses and without secrets of the environment.

    A secret is the value of a variable whose name ends in KEY, TOKEN, SECRET, PASSWORD or PASSWD;
    its name takes its place.
    """
    text = _QUERY.sub(rf"\g<1>{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
    for name, value in environment.items():
        if len(value) >= _LEAST and value in text and _VARIABLE.fullmatch(name):
            text = text.replace(value, f"<{name}>")
    return text


def has_credentials(value: str) -> bool:
    """Whether a value is an address with a user name, a password or a key in it."""
    is_address = "://" in value and not re.search(r"\s", value)
    return is_address and bool(_USER.search(value) or _QUERY.search(value))


def redact_logs() -> None:
    """Remove secrets from everything that libraries log in this process from now on."""
    logging.setLogRecordFactory(_redacted_record)


def _redacted_record(*arguments: Any, **named: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **named)
    try:
        text = record.getMessage()
    except (TypeError, ValueError):  # arguments that do not fit: logging reports them
        return record
    if (clean := redacted(text)) != text:
        record.msg, record.args = clean, ()
    return record
