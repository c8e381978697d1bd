"""Failures that are a message to the user, not a bug: their class decides the exit code."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class RecipeError(ValueError):
    """The request cannot be carried out; the message names the nearest valid one."""


class StageError(RuntimeError):
    """A stage ended because a check failed or something it needs is missing."""


class NonFiniteError(StageError, FloatingPointError):
    """A loss, gradient, reward or log-prob is NaN or infinite, and the step was not taken; or a
    metric after one is."""


class Stopped(Exception):  # noqa: N818 - not an error: the user asked
    """A run was stopped early by the user, with everything saved."""


def some_of(items: Sequence[str], most: int) -> str:
    """The first `most`, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the nearest of the known names, after a space; "" where none is near."""
    close = get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
