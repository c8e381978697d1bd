"""How old published results are: the date of the commit that they measured, and how much of the
code that their scripts measure has changed since.

What git does not know, as in a shallow clone or an installed package, is "unknown".
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from itertools import starmap
from pathlib import Path

UNKNOWN = "unknown"
# Of the files there are now: none, fewer than a tenth, fewer than half, half or more.
AMOUNTS = ("none", "few files", "some files", "most files")
FEW, SOME = 0.1, 0.5
HEADER = ("commit of", "code changed since")
SHOWN = re.compile(
    rf"(\d{{4}}-\d\d-\d\d|{UNKNOWN})(; {HEADER[1]}: | \| )({'|'.join((*AMOUNTS, UNKNOWN))})"
)

NOT_MEASURED = (
    ":(exclude)pipeline/report",
    ":(exclude)pipeline/watch",
    ":(exclude)pipeline/doctor",
)
RUN = ("pipeline", "stages", "data", "verifiers", *NOT_MEASURED)
UPDATE = ("pipeline/model", "pipeline/training", "pipeline/rl", "pipeline/losses")
STEP = (*UPDATE, "pipeline/rollouts", "pipeline/sampling", "stages/rl.py", "verifiers/pool.py")
MEASURED = {  # pattern of a script's name -> pathspecs of what it measures; the first that matches
    **dict.fromkeys(("update_speed", "memory", "grpo_memory"), UPDATE),
    **dict.fromkeys(("against_trl", "trl_curves", "scaling", "verify_share"), STEP),
    "tuning_speed": (*UPDATE[:2], "pipeline/losses", "pipeline/sft", "pipeline/preference"),
    "gpu": (*UPDATE, "pipeline/sampling"),
    "report": ("pipeline/report",),
    **dict.fromkeys(("prefix", "cluster_sim"), ("pipeline/sampling",)),
    **dict.fromkeys(("pool_overhead", "service_speed", "faults/services"), ("verifiers",)),
    "peers": ("verifiers", "data", "pipeline/model"),
    "verify_language": ("verifiers/text",),
    "verify_reasoning_gym": ("verifiers", "data/gym.py"),
    "verify_*": ("verifiers",),
    "sandbox_*": ("sandbox",),
    "faults/sandbox_services": ("sandbox",),
    "published_*": (*RUN, "recipes/real/smollm2"),
    "mutation": ("tests/data", "tests/pipeline", "tests/verifiers", "tests/conftest.py"),
    "*": (*RUN, "recipes/tiny"),
}


@dataclass(frozen=True, slots=True)
class Age:
    """The date of a commit, and which of AMOUNTS has changed since."""

    date: str
    changed: str

    def __str__(self) -> str:
        return f"{self.date}; {HEADER[1]}: {self.changed}"


def measured(script: str) -> tuple[str, ...]:
    """The pathspecs of what a script measures, by its name without the ending."""
    return next(paths for pattern, paths in MEASURED.items() if fnmatch(script, pattern))


@cache
def age(root: Path, commit: str, paths: Sequence[str]) -> Age:
    """That of a result of `commit`. Files that are gone do not count."""
    date = _git(root, "show", "--no-patch", "--format=%cs", f"{commit}^{{commit}}")
    now = _git(root, "ls-files", "--", *paths)
    differing = ("diff", "--name-only", "--no-renames", "--diff-filter=d")
    changed = _git(root, *differing, commit, "--", *paths)
    if date is None or now is None or changed is None:
        return Age(UNKNOWN, UNKNOWN)
    share = len(changed.split("\n")) / len(now.split("\n")) if changed else 0.0
    return Age(date, AMOUNTS[(share > 0) + (share >= FEW) + (share >= SOME)])


def agrees(page: str, fresh: str) -> bool:
    """Whether a page is as it would be written now. Code may have changed since it was written, so
    it may say that less has changed; where git does not know an age, any is right."""
    if SHOWN.sub(r"\2", page) != SHOWN.sub(r"\2", fresh):
        return False
    pairs = zip(SHOWN.findall(page), SHOWN.findall(fresh), strict=True)
    return all(starmap(_may_stand, pairs))


def _may_stand(page: tuple[str, str, str], fresh: tuple[str, str, str]) -> bool:
    (date, _, changed), (date_now, _, changed_now) = page, fresh
    if UNKNOWN in (date_now, changed_now):
        return True
    known = UNKNOWN not in (date, changed)
    return known and date == date_now and AMOUNTS.index(changed) <= AMOUNTS.index(changed_now)


def _git(root: Path, *words: str) -> str | None:
    """What git says at `root`; None where it fails or is not installed."""
    # Inside a git hook GIT_DIR names the hook's repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
