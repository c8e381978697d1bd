"""Weights & Biases: online where there is a key, else into files that `wandb sync` sends later."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from pipeline.durable import write_atomically
from pipeline.trackers.mirror import PROJECT, Row, Tracked

BEGIN_S, FINISH_S = 20.0, 20.0  # that a service out of reach may hold up the end of the process
QUIET = {  # what is sent nowhere, and a hint at a package that is called as a folder of ours is
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_WEAVE": "true",
}


class WandbRun:
    """Offline files cannot be asked what they hold, so the last step is noted beside them: before
    it is logged, since a step that is twice in a curve is worse than one that is not."""

    def __init__(self, run: Any, note: Path) -> None:
        self._run, self._note = run, note
        self.reached = json.loads(note.read_text()) if note.exists() else -1

    def log(self, step: int, row: Row) -> None:
        write_atomically(self._note, lambda fresh: fresh.write_text(json.dumps(step)))
        self._run.log(dict(row), step=step, commit=True)

    def close(self) -> None:
        self._run.finish()


def open_run(about: Tracked) -> WandbRun:
    """Begin the run, or go on with it. Nobody is asked for a login."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    wandb: Any = import_module("wandb")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=about.id,
        name=about.label,
        group=about.run.absolute().name,
        config=dict(about.config),
        dir=str(about.folder),
        resume="allow",
        reinit="create_new",
        mode=_mode(wandb),
        settings=wandb.Settings(
            console="off",
            silent=True,
            save_code=False,
            disable_git=True,
            x_disable_stats=True,
            init_timeout=BEGIN_S,
            finish_timeout=FINISH_S,
        ),
    )
    return WandbRun(run, about.folder / f"wandb-{about.id}.json")


def _mode(wandb: Any) -> str:
    asked = os.environ.get("WANDB_MODE", "online")
    return asked if asked != "online" or _has_key(wandb) else "offline"


def _has_key(wandb: Any) -> bool:
    from requests.utils import get_netrc_auth

    settings = wandb.setup().settings
    told = settings.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(told or get_netrc_auth(settings.base_url))
