"""The setting `verifier_service`: the reward services of a recipe or a command."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from veriloop.sandbox import backends

Services = str | Sequence[str]  # a URL or several; "": none


def _services(value: Any) -> Any:
    """The URL, or the URLs, each named once. Raises ValueError for anything else.

    A single URL is checked where it is used.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(url, str) for url in value):
        raise ValueError(
            f"must be the URL of a reward service or a list of such URLs, got {value!r}"
        )
    from veriloop.verifiers.service.services import read_addresses  # imports an HTTP client

    read_addresses(value)
    return value


# The first kind is that of the default, "": a recipe with one URL is recorded as it was written.
ServiceUrls = Annotated[str | tuple[str, ...], BeforeValidator(_services)]


def require_one_sandbox(backend: str, services: Services) -> None:
    """Raise ValueError for a backend with a reward service."""
    if services and backend != backends.AUTO:
        raise ValueError(
            f"sandbox.backend={backend!r} with verifier_service={services!r}: the service runs "
            "programs in its own sandbox; set only one of them"
        )
