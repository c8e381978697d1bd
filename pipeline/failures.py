"""Failures that are a message to the user, not a bug: what they mean decides the exit code."""


class RecipeError(ValueError):
    """What was asked for cannot be done; the message names the nearest thing that can."""


class StageError(RuntimeError):
    """A stage ended because something that it proves or needs does not hold."""


class Stopped(Exception):  # noqa: N818 - not an error: the user asked
    """A run ended early, with everything saved."""
