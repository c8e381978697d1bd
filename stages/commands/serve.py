"""`veriloop serve`: options of the reward service and its exit codes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

import tyro

from veriloop.pipeline.config.fields import Count, Positive
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.remote.sockets import LOCAL
from veriloop.stages.commands.parse import PluginOptions, parse_options
from veriloop.stages.commands.serving import serving_on, token_of
from veriloop.verifiers.service.middleware import Bounds
from veriloop.verifiers.service.server import RewardService, Settings


class ServiceError(StageError):
    """The service had to stop."""


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    """Judge responses over HTTP: POST /v1/verify, and as the reward servers of other trainers."""

    host: str = LOCAL  # any other than loopback needs a token
    port: int = 8080  # 0: a free one
    hosts: tuple[str, ...] = ()  # further names that clients may use in the Host header
    token_variable: str = ""  # environment variable with the bearer token that clients must send
    token_file: str = ""  # file with the token in its first line
    verifiers: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="names to offer; default: all that need no endpoint or extra"),
    ] = ()
    default: str = ""  # verifier of labels that name none
    workers: Count = 1  # processes that judge
    limit_s: Positive = 5.0  # seconds of a verifier on one response
    memory_mb: Count = 2048  # of one worker
    sandbox: Annotated[
        str, tyro.conf.arg(help="backend for programs of clients, as in `namespace`; '': none")
    ] = ""
    slots: Count = 1  # programs at a time
    openrlhf_on_error: Literal["503", "zero"] = "503"  # response to OpenRLHF where judging fails
    bounds: Bounds = field(default_factory=Bounds)


def command(words: Sequence[str]) -> int:
    """`veriloop serve`: answer until SIGTERM or Ctrl-C, then finish what is in progress.

    Raises RecipeError for invalid options, ServiceError where a verifier does not work here.
    """
    options = parse_options(Options, words)
    try:
        with serving_on(options.host, options.port):
            service = RewardService(_settings(options))
    except ImportError as missing:
        raise RecipeError(f"cannot load a plugin: {missing}") from missing
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
    shared = {setting.name for setting in fields(Settings)} - {"token", "plugins"}
    return Settings(
        token=token_of(options.token_variable, options.token_file),
        **{name: getattr(options, name) for name in shared},
    )
