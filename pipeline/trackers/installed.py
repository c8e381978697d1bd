"""Whether the trackers that a recipe asks for are there, which is said before anything begins."""

from collections.abc import Sequence
from importlib.util import find_spec

from pipeline.failures import RecipeError

INSTALL = "pip install --no-deps -r requirements/trackers.txt"


def installed(name: str) -> bool:
    """Whether the package is there; a folder of that name, as wandb leaves behind, is none."""
    found = find_spec(name)
    return found is not None and found.origin is not None


def require_installed(names: Sequence[str]) -> None:
    """Raise RecipeError for the first tracker that is not installed, with what installs it."""
    for name in names:
        if not installed(name):
            raise RecipeError(f"trackers: {name} is not installed; {INSTALL}")
