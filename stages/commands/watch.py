"""`veriloop watch RUN`: curves and latest rollouts of a run in the browser, while it trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import parse_options


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show a run in the browser while it grows. Only reads the files of the run."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    host: str = "127.0.0.1"  # an address other than loopback needs --exposed
    port: int = 8070  # 0: any free port
    exposed: Annotated[
        bool,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.arg(help="allow everyone who reaches --host to read the run"),
    ] = False


def command(words: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM. Raises RecipeError if the address cannot be used."""
    from veriloop.pipeline.watch.server import Watch

    options = parse_options(Options, words)
    try:
        watch = Watch(
            Path(options.run), host=options.host, port=options.port, exposed=options.exposed
        )
    except (OSError, OverflowError) as refusal:
        raise RecipeError(
            f"cannot listen on {options.host}:{options.port}: {refusal}; --port 0 takes a free one"
        ) from refusal
    if options.exposed:
        print("whoever reaches this address reads the run: there is no password", flush=True)
    print(f"{watch.url}: {options.run}, as it grows; Ctrl-C ends it", flush=True)
    try:
        watch.serve_forever()
    finally:
        watch.close()
    return 0
