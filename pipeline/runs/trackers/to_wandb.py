"""Weights & Biases: online with an API key, else into local files for `wandb sync`."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.trackers.completions import NAME, CompletionTable
from veriloop.pipeline.runs.trackers.mirror import PROJECT, Row, Tracked

BEGIN_S, FINISH_S = 20.0, 20.0  # seconds that an unreachable service may delay start and end
QUIET = {  # no error reports, and no hint to install weave
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_WEAVE": "true",
}


class WandbRun:
    """Offline files cannot be queried, so the last step is saved in a file: before it is logged, as
    a missing step is better than a duplicate."""

    def __init__(self, run: Any, note: Path, table_type: Any) -> None:
        self._run, self._note, self._table_type = run, note, table_type
        self.reached = json.loads(note.read_text()) if note.exists() else -1

    def log(self, step: int, row: Row, table: CompletionTable | None) -> None:
        write_atomically(self._note, lambda draft: draft.write_text(json.dumps(step)))
        entries = dict[str, Any](row)
        if table is not None:
            rows = [list(values) for values in table.rows]
            entries[NAME] = self._table_type(columns=list(table.columns), data=rows)
        self._run.log(entries, step=step, commit=True)

    def close(self) -> None:
        self._run.finish()


def open_run(stage: Tracked) -> WandbRun:
    """Start the run, or continue it. Never prompts for a login."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    wandb: Any = import_module("wandb")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=stage.id,
        name=stage.label,
        group=stage.run.absolute().name,
        config=dict(stage.config),
        dir=str(stage.folder),
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
    return WandbRun(run, stage.folder / f"wandb-{stage.id}.json", wandb.Table)


def _mode(wandb: Any) -> str:
    mode = os.environ.get("WANDB_MODE", "online")
    return mode if mode != "online" or _has_key(wandb) else "offline"


def _has_key(wandb: Any) -> bool:
    from requests.utils import get_netrc_auth

    settings = wandb.setup().settings
    key = settings.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(key or get_netrc_auth(settings.base_url))
