"""A stage that ends by an exception is recorded as failed, with the reason."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.runs.manifest import RunManifest


@contextmanager
def failure_recorded(
    manifest: RunManifest, name: str, seconds: Callable[[], float]
) -> Iterator[None]:
    """Record the stage `name`, which has begun, as failed when an exception passes through.

    A stop is no failure, and a stage that is done stays done. If the record cannot be written, for
    example because the disk is full, a line on stderr says so; the exception is raised unchanged.
    """
    try:
        yield
    except Stopped:
        raise
    except Exception as failure:
        if not manifest.is_done(name):
            _record(manifest, name, seconds(), failure)
        raise


def _record(manifest: RunManifest, name: str, seconds: float, failure: Exception) -> None:
    (sampler,) = (entry["sampler"] for entry in manifest.stages if entry["name"] == name)
    outputs = {"failure": reason(failure)}
    try:
        manifest.end_stage(name, seconds, sampler, {}, {}, outputs, status="failed")
    except Exception as second:  # noqa: BLE001  the first failure is the one to report
        print(
            f"WARNING: {manifest.path} still says that {name} is running, as it could not be "
            f"written: {reason(second)}",
            file=sys.stderr,
        )


def reason(failure: Exception) -> str:
    """The message of a failure; that of an unexpected one begins with its class."""
    expected = isinstance(failure, StageError | RecipeError)
    return str(failure) if expected else f"{type(failure).__name__}: {failure}"
