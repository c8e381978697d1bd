"""`veriloop sandbox`: does it hold against attacks? Lend it; make the image that Docker runs."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from pipeline.failures import RecipeError, StageError
from sandbox import backends
from sandbox.canaries import canaries
from sandbox.executor import Executor
from sandbox.probe import SandboxUnavailableError
from sandbox.remote.routes import sandbox_routes
from sandbox.remote.service import LOCAL, Service
from sandbox.suite import CONTAINED, Accepted, Attacked, Case, Report, load, run_suite
from stages import sandbox_image
from verifiers.code_suite import grade

SUITE = Path(__file__).parent.parent / "tests" / "sandbox" / "cases"
USAGE = """veriloop sandbox check [--suite DIR] [--backend NAME] [--json FILE] [--help]
       veriloop sandbox serve [--host HOST] [--port PORT] [--backend NAME] [--help]
       veriloop sandbox build-image [--tag NAME] [--from-rootfs TAR] [--help]"""


class SandboxRefusedError(StageError):
    """This machine cannot isolate as asked; the message is the table of what it lacks."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run attacks and honest programs in the sandbox and print what got through."""

    suite: str = str(SUITE)  # folder with manifest.jsonl and honest_manifest.jsonl
    backend: str = backends.DEFAULT  # namespace, reduced, docker or remote:URL
    allow_reduced: bool = False  # the same as --backend reduced
    processes: bool = False  # let programs start processes, which needs a cgroup
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Run programs for others over HTTP: POST /run_code as SandboxFusion has it, GET /health."""

    host: str = LOCAL  # any other than loopback needs a token
    port: int = 8080  # 0: a free one
    backend: str = backends.DEFAULT  # namespace, reduced, docker or remote:URL
    token_variable: str = ""  # of the environment: holds what clients must bring as bearer token


def command(words: Sequence[str]) -> int:
    """check: print the matrix; 0 when nothing got through and no honest program was refused,
    else 1. serve: answer until an interrupt."""
    match list(words):
        case ["sandbox", "check", *flags]:
            return _check(tyro.cli(Options, args=flags, prog="veriloop sandbox check"))
        case ["sandbox", "build-image", *flags]:
            asked = tyro.cli(sandbox_image.Options, args=flags, prog="veriloop sandbox build-image")
            return sandbox_image.build_image(asked)
        case ["sandbox", "serve", *flags]:
            return _serve(tyro.cli(Serving, args=flags, prog="veriloop sandbox serve"))
        case [_, *rest] if {"-h", "--help"} & set(rest):
            print(f"usage: {USAGE}")
            return 0
        case [_, *rest]:
            raise RecipeError(f"veriloop sandbox {' '.join(rest)}: not understood. Usage: {USAGE}")
    return 0


def _check(options: Options) -> int:
    attacks, honest = load(Path(options.suite), processes=options.processes)
    with canaries() as targets:
        box = open_backend(options.backend, allow_reduced=options.allow_reduced)
        try:
            print(f"{box.backend}, tier {box.tier}: {len(attacks)} attacks, {len(honest)} honest")
            report = run_suite(box, targets, attacks, honest, grade, seen=_tell)
        finally:
            box.close()
    print(matrix(report, attacks))
    if options.json:
        Path(options.json).write_text(json.dumps(report.flat(), indent=1))
    return 0 if report.clean else 1


def _serve(options: Serving) -> int:
    token = os.environ.get(options.token_variable, "") if options.token_variable else ""
    if options.token_variable and not token:
        raise RecipeError(f"--token-variable {options.token_variable}: no such variable is set")
    box = open_backend(options.backend)
    try:
        service = _listening(box, options, token)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            print(f"{service.url}: {box.backend}, tier {box.tier}; Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                service.serve()
        finally:
            service.close()
    finally:
        box.close()
    return 0


def _listening(box: Executor, options: Serving, token: str) -> Service:
    try:
        return Service(sandbox_routes(box), options.host, options.port, token=token)
    except (ValueError, OverflowError, OSError) as refusal:
        raise RecipeError(f"cannot listen on {options.host}:{options.port}: {refusal}") from refusal


def open_backend(setting: str, *, allow_reduced: bool = False) -> Executor:
    """The executor that a setting names; see `sandbox.backends`.

    Raises RecipeError for an unknown one, SandboxRefusedError where the machine cannot isolate.
    """
    if allow_reduced and setting not in (backends.DEFAULT, "reduced"):
        raise RecipeError(f"--allow-reduced means --backend reduced, and not {setting!r}")
    try:
        return backends.open_backend("reduced" if allow_reduced else setting)
    except SandboxUnavailableError as refusal:
        raise SandboxRefusedError(str(refusal)) from refusal
    except ValueError as mistake:
        raise RecipeError(str(mistake)) from mistake


def _tell(record: Attacked | Accepted) -> None:
    if isinstance(record, Attacked) and record.effect != CONTAINED:
        print(f"  {record.file}: {record.effect} (reward {record.reward}, {record.why})")
    elif isinstance(record, Accepted) and not record.accepted:
        print(f"  {record.file}: refused ({record.why})")


def matrix(report: Report, attacks: Sequence[Case]) -> str:
    """One line per class of attack, then the honest programs and what could not be tried."""
    groups: dict[str, list[bool]] = {}
    group_of = {case.file: case.group for case in attacks}
    for record in report.attacks:
        groups.setdefault(group_of[record.file], []).append(record.effect == CONTAINED)
    lines = [f"{'class':<16}{'attacks':>8}{'through':>9}"]
    for group, held in sorted(groups.items()):
        lines.append(f"{group:<16}{len(held):>8}{held.count(False):>9}")
    through = sum(record.effect != CONTAINED for record in report.attacks)
    lines.append(f"{'all':<16}{len(report.attacks):>8}{through:>9}")
    refused = sum(not record.accepted for record in report.honest)
    lines.append(f"honest programs: {len(report.honest)}, refused: {refused}")
    if report.missing:
        lines.append("could not be tried: " + "\n  ".join(report.missing))
    return "\n".join(lines)


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["sandbox", *sys.argv[1:]]))
