"""Run a replay and record it as a run: metrics, the last checkpoint and replay.json."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import yaml

from veriloop.data.counts import counted
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.model.policy import save_policy
from veriloop.pipeline.offline.replay import Replay, Turn, first_difference, first_state, read_turn
from veriloop.pipeline.report.read_run import Run, Stage
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.manifest import RunManifest, failure_recorded
from veriloop.pipeline.runs.provenance import identity
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.sampling.prelaunch import halves
from veriloop.stages.rl import step_scores
from veriloop.stages.stage_run import CORES

SHOWN = {
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "clip_ratio/region_mean": "clipped",
    "grad_norm": "grad norm",
    "off_policy/log_ratio": "|log ratio|",
    "off_policy/ratio_max": "ratio max",
}


def replayed(
    run: Run,
    stage: Stage,
    recipes: tuple[RLRecipe, RLRecipe],
    changes: Sequence[tuple[str, Any, Any]],
    start: Path,
    steps: Sequence[int],
    output: Path,
) -> int:
    """Update on the recorded `steps` and write a run folder to `output`; returns the exit code.

    `recipes` are the recorded one and the one to use.
    """
    recorded, recipe = recipes
    began = monotonic()
    threads = recipe.trainer.threads or CORES
    torch.set_num_threads(min(threads, len(halves()[0])) if recipe.rollout.ahead else threads)
    first_saved = first_state(stage.folder, steps[0] - 1)
    replay = Replay(recipe, recorded, start, first_saved, step_scores(recipe))
    turns = (read_turn(stage.folder, step, {r["step"]: r for r in stage.metrics}) for step in steps)
    first = next(turns)
    replay.check(first)
    manifest = _begun(stage, recipe, start, output)
    with failure_recorded(manifest, stage.name, lambda: monotonic() - began):
        print(f"{'step':>6} {'':<4}" + "".join(f"{title:>12}" for title in SHOWN.values()))
        with StageRecord(output / stage.name, tensorboard=False) as record:
            rows = [_turn(replay, turn, stage, record) for turn in (first, *turns)]
        saved = _saved(replay, steps[-1], output / stage.name)
        summary = {
            "run": str(run.folder),
            "stage": stage.name,
            "from_step": steps[0] - 1,
            "changes": {key: [old, new] for key, old, new in changes},
            "turns": rows,
        }
        write_atomically(output / "replay.json", lambda fresh: fresh.write_text(_json(summary)))
        made = {"checkpoint": str(saved)}
        manifest.end_stage(stage.name, monotonic() - began, None, {}, {}, made)
    equal = _verdict(replay, rows, run)
    print(f"\ncheckpoint: {saved}\nrecorded and new numbers: {output / 'replay.json'}")
    return 0 if equal or not replay.same else 1


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _begun(stage: Stage, recipe: RLRecipe, start: Path, output: Path) -> RunManifest:
    manifest, values = RunManifest(output / "run.json"), recipe.model_dump(mode="json")
    manifest.begin_stage(stage.name, {"start": str(start), "recipe": values})
    (output / stage.name).mkdir(parents=True)
    (output / stage.name / "recipe.yaml").write_text(yaml.safe_dump(values))
    return manifest


def _turn(replay: Replay, turn: Turn, stage: Stage, record: StageRecord) -> dict[str, Any]:
    numbers = replay(turn)
    record.write_metrics(turn.step, numbers)
    path = stage.folder / "checkpoints" / f"step_{turn.step:06d}"
    apart = replay.weight_difference(path) if (path / "config.json").is_file() else None
    print("\n".join(_lines(turn.step, turn.recorded, numbers)), flush=True)
    if apart is not None:
        far = "equal bit for bit" if apart == 0.0 else f"up to {apart:.3g} apart"
        print(f"{'':>6} weights against the checkpoint of step {turn.step}: {far}", flush=True)
    return {
        "step": turn.step,
        "recorded": {name: turn.recorded[name] for name in numbers if name in turn.recorded},
        "replayed": numbers,
        "differs": first_difference(turn.recorded, numbers),
        "weights_apart": apart,
    }


def _lines(step: int, recorded: Mapping[str, float], now: Mapping[str, float]) -> Iterator[str]:
    """Two printed lines per step: the recorded numbers and the new ones."""
    for word, numbers in (("was", recorded), ("now", now)):
        cells = [f"{numbers[name]:>12.4g}" if name in numbers else f"{'-':>12}" for name in SHOWN]
        yield f"{step if word == 'was' else '':>6} {word:<4}" + "".join(cells)


def _saved(replay: Replay, step: int, folder: Path) -> Path:
    return checkpoint.save(
        folder,
        step,
        write_model=lambda fresh: save_policy(replay.policy, replay.generator.tokenizer, fresh),
        state={"step": step, "learning": replay.learner.state()},
        keep=1,
    )


def _verdict(replay: Replay, rows: Sequence[dict[str, Any]], run: Run) -> bool:
    """Whether all numbers and weights are as recorded; printed if nothing was changed."""
    off = next((row for row in rows if row["differs"] or row["weights_apart"]), None)
    if not replay.same:
        furthest = max(row["replayed"].get("off_policy/ratio_max", 1.0) for row in rows)
        print(f"\nlargest ratio to the sampler over all turns: {furthest:.3g}")
        if furthest > math.e:
            print("that is far off-policy: use fewer turns or another checkpoint")
        return off is None
    if off is None:
        weights = sum(row["weights_apart"] is not None for row in rows)
        print(
            f"\nevery number of {counted(len(rows), 'turn')} is the recorded one, bit for bit; "
            f"so are the weights at {counted(weights, 'checkpoint')}"
        )
        return True
    name = off["differs"] or "weights"
    print(f"\nNOT as recorded, though nothing was changed: {name} from step {off['step']} on")
    before, now = run.manifest.get("versions", {}), identity()["versions"]
    apart = [f"{n} {before[n]} -> {v}" for n, v in now.items() if before.get(n, v) != v]
    print(f"versions that differ: {', '.join(apart) or 'none'}; so may machine and threads")
    return False
