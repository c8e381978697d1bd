"""`veriloop push RUN --to REPO_ID`: upload the final checkpoint of a finished stage to the hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.config.checkpoints import check_hub_id
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.hub_push import HubRepo, require_token
from veriloop.stages.commands.parse import parse_options
from veriloop.stages.publish import finished, push_all


@dataclass(frozen=True, kw_only=True)
class Options:
    """Upload weights, configs, tokenizer and model card of a stage to the Hugging Face hub."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    to: Annotated[str, tyro.conf.arg(metavar="REPO_ID", help="as organisation/model")]
    stage: str = ""  # stage of the run; empty: the last one that is done
    public: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False  # anyone can read it


def command(words: Sequence[str]) -> int:
    """0: uploaded; 1: the hub did not take it."""
    options = parse_options(Options, words)
    try:
        repo = HubRepo(id=check_hub_id(options.to), public=options.public)
    except ValueError as mistake:
        raise RecipeError(f"--to: {mistake}") from mistake
    run = Path(options.run)
    stage = finished(run, options.stage)
    require_token(repo)
    push_all(run, [(stage, repo)])
    return 0
