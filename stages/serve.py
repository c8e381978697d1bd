"""`veriloop serve`: the reward service. What it is told, and how its end is reported."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pipeline.failures import RecipeError, StageError
from sandbox.probe import SandboxUnavailableError
from verifiers.service.gate import Bounds
from verifiers.service.server import LOCAL, RewardService, Settings


class ServiceError(StageError):
    """The service could not go on."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Judge responses over HTTP: POST /v1/verify, and as the reward servers of other trainers."""

    host: str = LOCAL  # any other than loopback needs a token
    port: int = 8080  # 0: a free one
    token_variable: str = ""  # of the environment: holds what clients must bring as bearer token
    token_file: str = ""  # the same from the first line of a file
    verifiers: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="names to offer; default: all that need no endpoint or extra"),
    ] = ()
    default: str = ""  # verifier of labels that name none
    plugins: tuple[str, ...] = ()  # modules of further verifiers: path/to/file.py or package.module
    workers: int = 1  # processes that judge
    limit_s: float = 5.0  # seconds of a verifier on one response
    memory_mb: int = 2048  # of one worker
    sandbox: Annotated[
        str, tyro.conf.arg(help="backend that runs programs of others, as in `namespace`; '': none")
    ] = ""
    slots: int = 1  # such programs at a time
    openrlhf_on_error: Literal["503", "zero"] = "503"  # what OpenRLHF gets for a failure of ours
    bounds: Bounds = field(default_factory=Bounds)


def command(words: Sequence[str]) -> int:
    """`veriloop serve`: answer until SIGTERM or Ctrl-C, then finish what is in progress.

    Raises RecipeError for what cannot be served, ServiceError where a verifier cannot work here.
    """
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop serve")
    try:
        service = RewardService(_settings(options))
    except (ValueError, OverflowError, OSError, ImportError) as refusal:
        raise RecipeError(f"cannot serve on {options.host}:{options.port}: {refusal}") from refusal
    except KeyError as unknown:
        raise RecipeError(str(unknown.args[0])) from unknown
    except SandboxUnavailableError as refusal:
        raise ServiceError(str(refusal)) from refusal
    print(f"{service.url}: {', '.join(service.judging.names)}; Ctrl-C ends it", flush=True)
    try:
        service.serve()
    except RuntimeError as failure:
        raise ServiceError(f"{failure}; --verifiers names those to offer") from failure
    finally:
        service.close()
    return 0


def _settings(options: Options) -> Settings:
    return Settings(
        host=options.host,
        port=options.port,
        token=_token(options),
        verifiers=options.verifiers,
        default=options.default,
        plugins=options.plugins,
        workers=options.workers,
        limit_s=options.limit_s,
        memory_mb=options.memory_mb,
        sandbox=options.sandbox,
        slots=options.slots,
        openrlhf_on_error=options.openrlhf_on_error,
        bounds=options.bounds,
    )


def _token(options: Options) -> str:
    """Raises RecipeError for a variable that is not set, a file that holds no token, or both."""
    if options.token_variable and options.token_file:
        raise RecipeError("--token-variable and --token-file: one of them")
    if not options.token_variable and not options.token_file:
        return ""
    if options.token_file:
        where = f"--token-file {options.token_file}"
        lines = Path(options.token_file).read_text().splitlines()
        token = lines[0].strip() if lines else ""
    else:
        where = f"--token-variable {options.token_variable}"
        token = os.environ.get(options.token_variable, "")
    if not (token and token.isascii() and token.isprintable()):
        raise RecipeError(f"{where} holds no token")
    return token


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["serve", *sys.argv[1:]]))
