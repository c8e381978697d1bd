"""`veriloop rescore RUN --verifier NAME`: verify recorded rollouts again and compare verdicts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from veriloop.pipeline.config.fields import Count, Positive, Whole
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.sandbox.backends import resolve
from veriloop.stages.commands.parse import JudgeOptions, parse_options
from veriloop.verifiers.registry import fingerprint, with_settings

# These import pyarrow, which --help need not wait for.
if TYPE_CHECKING:
    from veriloop.pipeline.offline.rescore import Rejudgement
    from veriloop.pipeline.offline.verdict_diff import Flips
    from veriloop.pipeline.report.read_run import Run, Stage

CLIP = 300  # characters printed of a text


@dataclass(frozen=True, kw_only=True)
class Options(JudgeOptions):
    """Verify the rollouts of a run again and compare with the recorded verdicts."""

    run: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help="a run folder with run.json")
    ]
    verifier: str  # NAME, or NAME@VERSION to require a version
    component: str = "accuracy"  # reward component to verify again
    stage: str = ""  # stage of the run; empty: every stage that recorded the component
    json: str = ""  # also write all counts to this file
    show: Whole = 5  # largest flips to print in full
    workers: Count = 1  # verifier processes
    limit_s: Positive = 5.0  # seconds per verification
    memory_mb: Count = 2048  # memory of a worker


def command(words: Sequence[str]) -> int:
    """Write and compare new verdicts; recorded ones are never changed.

    After an interruption, the same command continues after the last step that was written.
    """
    options = parse_options(Options, words)
    from veriloop.pipeline.report.read_run import read_run

    run = read_run(Path(options.run))
    rejudgement = _rejudgement(options)
    folder = rejudgement.folder(run.folder, "").parent
    summaries: dict[str, dict[str, Any]] = {}
    try:
        for stage, flips in rejudged(run, _stages(run, options), rejudgement, options):
            summaries[stage.name] = summarize(stage, rejudgement, flips)
            print("\n".join(summary_lines(stage, rejudgement, flips, options.show)), flush=True)
    except KeyboardInterrupt as stop:
        raise Stopped(f"stopped; new verdicts so far are in {folder}") from stop
    if options.json:
        _write(Path(options.json), {"run": run.name, "stages": summaries})
    print(f"\nnew verdicts: {folder}")
    return 0


def _rejudgement(options: Options) -> "Rejudgement":
    """Raises RecipeError for a verifier, or a version of it, that is not installed."""
    from veriloop.pipeline.offline.rescore import Rejudgement
    from veriloop.stages.commands.verify import find

    name, _, required_version = options.verifier.partition("@")
    verifier = find(name)
    code = fingerprint([verifier.name])
    version = with_settings(code, options.judging()["facts"])[verifier.name]
    if required_version not in ("", verifier.version, code[verifier.name], version):
        raise RecipeError(
            f"--verifier {options.verifier}: {name} is version {verifier.version!r} here, in full "
            f"{version!r}; another version needs another checkout"
        )
    return Rejudgement(
        verifier=verifier,
        version=version,
        component=options.component,
        conditions={
            "sandbox": resolve(options.sandbox_backend),
            "limit_s": options.limit_s,
            "memory_mb": options.memory_mb,
        },
    )


def _stages(run: "Run", options: Options) -> list["Stage"]:
    """Stages that recorded verdicts of the component; raises RecipeError if none did."""
    names = [stage.name for stage in run.stages]
    if options.stage and options.stage not in names:
        raise RecipeError(f"--stage {options.stage}: {run.folder} has {', '.join(names) or 'none'}")
    candidates = [s for s in run.stages if options.stage in ("", s.name)]
    components = {stage.name: _components(stage) for stage in candidates}
    stages = [stage for stage in candidates if options.component in components[stage.name]]
    if not stages:
        recorded = "; ".join(f"{name} has {', '.join(c)}" for name, c in components.items() if c)
        raise RecipeError(
            f"--component {options.component}: no recorded rollout was judged by it in "
            f"{run.folder}: {recorded or 'no rollouts are recorded'}"
        )
    return stages


def _components(stage: "Stage") -> list[str]:
    """The reward components of recorded rollouts. A file has columns of those alone that judged an
    answer of its step."""
    import pyarrow.parquet as pq

    from veriloop.pipeline.runs.rollout_file import reading

    columns = dict[str, None]()
    for _, path in stage.rollout_files:
        with reading(path):
            columns |= dict.fromkeys(pq.read_schema(path).names)
    return [name.removeprefix("status/") for name in columns if name.startswith("status/")]


def rejudged(
    run: "Run", stages: Sequence["Stage"], rejudgement: "Rejudgement", options: Options
) -> Iterator[tuple["Stage", "Flips"]]:
    """Verify stage by stage and step by step; writes a summary next to the verdicts of a stage.

    A stage of which the verifier can judge no rollout is named and left out. Raises RecipeError if
    that is every stage.
    """
    from veriloop.pipeline.offline.rescore import rescore
    from veriloop.pipeline.offline.verdict_diff import Flips
    from veriloop.stages.commands.verify import judged
    from veriloop.verifiers.pool import VerifierPool

    bounds = (options.workers, options.limit_s, options.memory_mb)
    refused: list[str] = []
    with VerifierPool(*bounds, **options.judging()) as pool:
        for stage in stages:
            flips, folder = Flips(), rejudgement.folder(run.folder, stage.name)
            asked = replace(rejudgement, reference=_reference(stage, options.component))
            for step, path in stage.rollout_files:
                target = folder / path.name
                flips.add(step, rescore(path, target, asked, lambda tasks: judged(pool, tasks)))
            if not flips.rollouts:
                refused.append(f"{stage.name}: {_left_out(flips.left_out)}")
                continue
            _write(folder.with_name(f"{folder.name}.json"), summarize(stage, rejudgement, flips))
            yield stage, flips
    nothing = f"{rejudgement.verifier.name} can judge nothing of {'; of '.join(refused)}; it reads "
    nothing += f"{dict(rejudgement.verifier.example.reference)}"
    if len(refused) == len(stages):
        raise RecipeError(nothing)
    if refused:
        print(f"left out: {nothing}", flush=True)


def _reference(stage: "Stage", component: str) -> Mapping[str, Any]:
    """The reference of a reward term of the stage's recipe; {} for other components."""
    terms = (stage.recipe.get("reward") or {}).get("terms") or {}
    return (terms.get(component) or {}).get("reference") or {}


def summarize(stage: "Stage", rejudgement: "Rejudgement", flips: "Flips") -> dict[str, Any]:
    """All counts of a stage, for --json and for the report."""
    return {
        "verifier": rejudgement.verifier.name,
        "version": rejudgement.version,
        "component": rejudgement.component,
        "recorded_by": stage.versions.get("verifiers", {}),
        **flips.as_json(),
    }


def _write(path: Path, value: Mapping[str, Any]) -> None:
    from veriloop.pipeline.runs.atomic_write import write_atomically

    write_atomically(path, lambda fresh: fresh.write_text(json.dumps(value, indent=1) + "\n"))


def summary_lines(
    stage: "Stage", rejudgement: "Rejudgement", flips: "Flips", show: int
) -> Iterator[str]:
    """The lines printed for a stage."""
    steps = len(flips.steps)
    yield f"{stage.name}: {rejudgement.component} of {flips.rollouts:,} rollouts in {steps} steps"
    verifier = f"{rejudgement.verifier.name} {rejudgement.version}"
    yield f"  verified again by {verifier}; {_before(stage, rejudgement)}"
    if flips.left_out:
        yield f"  left out: {_left_out(flips.left_out)}"
    yield from _matrix(flips)
    up, down, errors = (flips.total(kind) for kind in ("up", "down", "errors"))
    yield f"  {up + down:,} rewards flip: {up:,} up, {down:,} down"
    if errors:
        yield f"  {errors:,} have no score on one side (error): not flips, and not wrong"
    yield from _by_step(flips)
    for flip in flips.largest[: max(show, 0)]:
        yield from _flip(flip)


def _before(stage: "Stage", rejudgement: "Rejudgement") -> str:
    versions = stage.versions.get("verifiers", {})
    before = versions.get(rejudgement.verifier.name)
    if before == rejudgement.version:
        return "the same version judged when it was recorded"
    if before is not None:
        return f"recorded by {rejudgement.verifier.name} {before}"
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"recorded by others: {known or 'their versions are not on record'}"


def _left_out(reasons: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _matrix(flips: "Flips") -> Iterator[str]:
    matrix = flips.as_json()["matrix"]
    yield f"  {'recorded, now':<16}" + "".join(f"{new:>11}" for new in matrix)
    for old, row in matrix.items():
        yield f"  {old:<16}" + "".join(f"{count:>11,}" for count in row.values())


def _by_step(flips: "Flips") -> Iterator[str]:
    flipped = [step for step in flips.steps if step["up"] or step["down"]]
    if flipped:
        yield f"  {'step':>6}{'rollouts':>10}{'up':>6}{'down':>6}{'errors':>8}"
    for step in flipped:
        yield (
            f"  {step['step']:>6}{step['rollouts']:>10,}{step['up']:>6,}{step['down']:>6,}"
            f"{step['errors']:>8,}"
        )


def _flip(flip: Mapping[str, Any]) -> Iterator[str]:
    from veriloop.pipeline.runs.console import clip

    where = f"step {flip['step']}, group {flip['group']}, answer {flip['i']}"
    yield f"\n  {where}: {clip(flip['problem'], 80)}"
    for name in ("prompt", "response", "reference"):
        yield f"    {name:<10}{clip(flip[name], CLIP)}"
    for name in ("old", "new"):
        verdict = flip[name]
        answer = "" if verdict["answer"] is None else f", read {clip(verdict['answer'], 80)!r}"
        detail = f": {clip(verdict['detail'], CLIP)}" if verdict["detail"] else ""
        yield f"    {name:<10}{verdict['status']} {verdict['score']:g}{answer}{detail}"
