"""`veriloop sandbox`: check the sandbox with attacks, serve it, build its Docker image."""

import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.sandbox import backends
from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.docker.image import build
from veriloop.sandbox.executor import Executor
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.remote.run_code import REQUESTS, Ceiling
from veriloop.sandbox.remote.sockets import LOCAL
from veriloop.sandbox.suite import (
    CONTAINED,
    AttackResult,
    Case,
    HonestResult,
    SuiteReport,
    load,
    run_suite,
)
from veriloop.stages.commands.parse import Verbs, run_verb
from veriloop.stages.commands.serving import serving_on, token_of
from veriloop.verifiers.code.tests import grade

if TYPE_CHECKING:
    from veriloop.sandbox.remote.service import Service

SUITE = Path(__file__).parents[2] / "attack_suite"


class SandboxRefusedError(StageError):
    """This machine lacks something that the backend needs; the message lists what."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run attacks and honest programs in the sandbox; print which attacks had an effect."""

    suite: str = str(SUITE)  # folder with manifest.jsonl and honest_manifest.jsonl
    backend: str = backends.AUTO  # namespace, reduced, docker, remote:URL; auto: VERILOOP_SANDBOX
    allow_reduced: bool = False  # the same as --backend reduced
    processes: bool = False  # allow programs to start processes; needs a cgroup
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Run programs over HTTP: POST /run_code with SandboxFusion's format, GET /health."""

    host: str = LOCAL  # an address other than loopback needs a token
    port: int = 8080  # 0: any free port
    backend: str = backends.AUTO  # namespace, reduced, docker, remote:URL; auto: VERILOOP_SANDBOX
    hosts: tuple[str, ...] = ()  # further names that clients may use in the Host header
    token_variable: str = ""  # environment variable with the bearer token that clients must send
    requests: int = REQUESTS  # programs that run or wait; further ones get a 429
    ceiling: Ceiling = field(default_factory=Ceiling)  # upper bounds of the limits in a request


@dataclass(frozen=True, kw_only=True)
class BuildImage:
    """Build the image of --backend docker from this machine's Python and its libraries."""

    tag: str = ""  # name of the image; empty: the default name
    from_rootfs: str = ""  # tar file of a root file system with /usr/bin/python3 to use instead


def command(words: Sequence[str]) -> int:
    """Run one verb; 1 when an attack gets through or an honest program is refused."""
    return run_verb(words, VERBS, "Check the sandbox, serve it, or build its Docker image.")


def _check(options: Options) -> int:
    attacks, honest = load(Path(options.suite), processes=options.processes)
    with canaries() as targets:
        box = open_backend(options.backend, allow_reduced=options.allow_reduced)
        try:
            print(getattr(box, "table", "the layers of a remote server are unknown"))
            print(f"{box.backend}, tier {box.tier}: {len(attacks)} attacks, {len(honest)} honest")
            report = run_suite(box, targets, attacks, honest, grade, on_result=_print_failure)
        finally:
            box.close()
    print(matrix(report, attacks))
    if options.json:
        Path(options.json).write_text(json.dumps(report.flat(), indent=1))
    return 0 if report.clean else 1


def _serve(options: Serving) -> int:
    token = token_of(options.token_variable)
    box = open_backend(options.backend)
    try:
        service = _open_service(box, options, token)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            print(f"{service.url}: {box.backend}, tier {box.tier}; Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                service.serve_forever()
        finally:
            service.close()
    finally:
        box.close()
    return 0


def _open_service(box: Executor, options: Serving, token: str) -> "Service":
    # Imports the web framework, which the other verbs need not wait for.
    from veriloop.sandbox.remote.service import Service

    with serving_on(options.host, options.port):
        return Service(
            box,
            options.host,
            options.port,
            hosts=options.hosts,
            token=token,
            requests=options.requests,
            ceiling=options.ceiling,
        )


def _build_image(options: BuildImage) -> int:
    """Print the image's name. Raises RecipeError for an unusable root file system, StageError
    without a Docker daemon or a Python to copy."""
    base = Path(options.from_rootfs) if options.from_rootfs else None
    if base is not None and not base.is_file():
        raise RecipeError(f"--from-rootfs {base}: no such file")
    try:
        image = build(options.tag, base)
    except (SandboxUnavailableError, OSError) as refusal:
        raise StageError(str(refusal)) from refusal
    except ValueError as mistake:
        raise RecipeError(str(mistake)) from mistake
    print(f"{image.tag}: {image.size_mb:.0f} MB")
    return 0


def open_backend(setting: str, *, allow_reduced: bool = False) -> Executor:
    """The executor of a backend; see `veriloop.sandbox.backends`.

    Raises RecipeError for an unknown backend, SandboxRefusedError if the machine cannot isolate.
    """
    try:
        setting = backends.resolve(setting)
        if allow_reduced and setting not in ("namespace", "reduced"):
            raise RecipeError(f"--allow-reduced means --backend reduced, not {setting!r}")
        return backends.open_backend("reduced" if allow_reduced else setting)
    except SandboxUnavailableError as refusal:
        raise SandboxRefusedError(str(refusal)) from refusal
    except ValueError as mistake:
        raise RecipeError(str(mistake)) from mistake


def _print_failure(record: AttackResult | HonestResult) -> None:
    if isinstance(record, AttackResult) and record.effect != CONTAINED:
        print(f"  {record.file}: {record.effect} (reward {record.reward}, {record.why})")
    elif isinstance(record, HonestResult) and not record.accepted:
        print(f"  {record.file}: refused ({record.why})")


def matrix(report: SuiteReport, attacks: Sequence[Case]) -> str:
    """One line per class of attack, then counts of honest programs and of skipped cases."""
    groups: dict[str, list[bool]] = {}
    group_of = {case.file: case.group for case in attacks}
    for record in report.attacks:
        groups.setdefault(group_of[record.file], []).append(record.effect == CONTAINED)
    lines = [f"{'class':<16}{'attacks':>8}{'through':>9}"]
    for group, contained in sorted(groups.items()):
        lines.append(f"{group:<16}{len(contained):>8}{contained.count(False):>9}")
    through = sum(record.effect != CONTAINED for record in report.attacks)
    lines.append(f"{'all':<16}{len(report.attacks):>8}{through:>9}")
    refused = sum(not record.accepted for record in report.honest)
    lines.append(f"honest programs: {len(report.honest)}, refused: {refused}")
    if report.missing:
        lines.append("could not be tried: " + "\n  ".join(report.missing))
    return "\n".join(lines)


VERBS: Verbs = {
    "check": (Options, _check),
    "serve": (Serving, _serve),
    "build-image": (BuildImage, _build_image),
}
