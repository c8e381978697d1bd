"""`veriloop sandbox check`: does a sandbox hold against attacks? `build-image`: for Docker."""

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from pipeline.failures import RecipeError, StageError
from sandbox.canaries import canaries
from sandbox.executor import Executor
from sandbox.suite import CONTAINED, Accepted, Attacked, Case, Report, load, run_suite
from stages import sandbox_image
from verifiers.code_reference import CodeReference
from verifiers.code_tests import judge_program

SUITE = Path(__file__).parent.parent / "tests" / "sandbox" / "cases"
BACKENDS = {
    "namespace": "sandbox.namespace.pool:NamespaceExecutor",
    "docker": "sandbox.docker.pool:DockerExecutor",
}
USAGE = """veriloop sandbox check [--suite DIR] [--backend NAME] [--json FILE] [--help]
       veriloop sandbox build-image [--tag NAME] [--from-rootfs TAR] [--help]"""


class SandboxRefusedError(StageError):
    """This machine cannot isolate as asked; the message is the table of what it lacks."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run attacks and honest programs in the sandbox and print what got through."""

    suite: str = str(SUITE)  # folder with manifest.jsonl and honest_manifest.jsonl
    backend: str = "namespace"
    allow_reduced: bool = False  # accept a machine that cannot make namespaces
    processes: bool = False  # let programs start processes, which needs a cgroup
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


def command(words: Sequence[str]) -> int:
    """Print the matrix; 0 when nothing got through and no honest program was refused, else 1."""
    match list(words):
        case ["sandbox", "check", *flags]:
            return _check(tyro.cli(Options, args=flags, prog="veriloop sandbox check"))
        case ["sandbox", "build-image", *flags]:
            asked = tyro.cli(sandbox_image.Options, args=flags, prog="veriloop sandbox build-image")
            return sandbox_image.build_image(asked)
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


def open_backend(name: str, *, allow_reduced: bool = False) -> Executor:
    """The executor called `name`.

    Raises RecipeError for an unknown name, SandboxRefusedError where the machine cannot isolate.
    """
    if name not in BACKENDS:
        close = get_close_matches(name, BACKENDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise RecipeError(f"no backend {name!r}.{hint} Known: {', '.join(BACKENDS)}")
    module, _, kind = BACKENDS[name].partition(":")
    from sandbox.probe import SandboxUnavailableError

    try:
        return getattr(importlib.import_module(module), kind)(allow_reduced=allow_reduced)
    except SandboxUnavailableError as refusal:
        raise SandboxRefusedError(str(refusal)) from refusal


def grade(box: Executor, case: Case) -> tuple[float | None, str]:
    """The reward a case earns from the verifier of programs, and how its tests ended."""
    reference = CodeReference.read(
        {"tests": case.tests, "function": case.function, "limits": _flat(case)}
    )
    verdict = judge_program(box, case.source, reference)
    return verdict.score, verdict.detail


def _flat(case: Case) -> dict[str, object]:
    return {name: getattr(case.limits, name) for name in case.limits.__slots__}


def _tell(record: Attacked | Accepted) -> None:
    if isinstance(record, Attacked) and record.effect != CONTAINED:
        print(f"  {record.file}: {record.effect} (reward {record.reward}, {record.why})")
    elif isinstance(record, Accepted) and not record.accepted:
        print(f"  {record.file}: refused ({record.why})")


def matrix(report: Report, attacks: Sequence[Case]) -> str:
    """One line per class of attack, then the honest programs and what could not be tried."""
    groups: dict[str, list[bool]] = {}
    for case, record in zip(attacks, report.attacks, strict=True):
        groups.setdefault(case.group, []).append(record.effect == CONTAINED)
    lines = [f"{'class':<16}{'attacks':>8}{'through':>9}"]
    for group, held in sorted(groups.items()):
        lines.append(f"{group:<16}{len(held):>8}{held.count(False):>9}")
    through = sum(record.effect != CONTAINED for record in report.attacks)
    lines.append(f"{'all':<16}{len(report.attacks):>8}{through:>9}")
    refused = sum(not record.accepted for record in report.honest)
    lines.append(f"honest programs: {len(report.honest)}, refused: {refused}")
    if report.missing:
        lines.append(f"could not be set up as a target: {', '.join(report.missing)}")
    return "\n".join(lines)


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["sandbox", *sys.argv[1:]]))
