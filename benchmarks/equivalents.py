"""Mutants that no test can kill, as equivalents.yaml lists them."""

from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A mutant that no test can notice; the keys are those of equivalents.yaml."""

    path: str
    before: str
    after: str
    reason: str
    within: str = ""
    untestable: bool = False


EQUIVALENT = tuple(
    Equivalent(path=path, **entry)
    for path, entries in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
    for entry in entries
)
