"""Break a run on purpose, one fault at a time: each must be caught by the check made for it.

    python benchmarks/faults/planted.py [--quick] [--json FILE]

Every fault is planted in the shipped recipe's own loop on the tiny base; the run without a fault
must pass, or a check that always fires would look like a good one.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
from publish import arguments, publish, table

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.rl.loop import Loop
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.stages import rl, zero
from veriloop.stages.stage_run import starting_point

Fault = Callable[[Loop], None]


def no_fault(loop: Loop) -> None:
    del loop


def sync_off(loop: Loop) -> None:
    """The sampler says that it loaded the weights, and did not."""

    def load_weights(weights: Any, version: int) -> None:
        del weights
        loop.deps.sampler.version = version

    loop.deps.sampler.load_weights = load_weights  # type: ignore[method-assign]


def wrong_temperature(loop: Loop) -> None:
    """The engine samples at 0.9 what it was asked to sample at 1."""
    sample = loop.deps.sampler.sample
    loop.deps.sampler.sample = lambda prompts, sampling: sample(  # type: ignore[method-assign]
        prompts, sampling if not sampling.temperature else replace(sampling, temperature=0.9)
    )


def reference_never_replaced(loop: Loop) -> None:
    """The copy of the policy into the reference is lost."""
    assert loop.learner.reference is not None
    loop.learner.reference._copy = lambda policy: None  # type: ignore[method-assign]


def reference_drifts(loop: Loop) -> None:
    """Something trains the reference."""
    assert loop.learner.reference is not None
    with torch.no_grad():
        next(loop.learner.reference.model.parameters())[0, 0] += 1e-6


def log_probs_shifted(loop: Loop) -> None:
    """Log-probs reach the batch one token late."""
    rollouts = loop.deps.generator.rollouts
    loop.deps.generator.rollouts = (  # type: ignore[method-assign]
        lambda *asked: [replace(r, logp=(*r.logp[1:], r.logp[0])) for r in rollouts(*asked)]
    )


FAULTS: dict[str, tuple[Fault, str | None]] = {
    "none": (no_fault, None),
    "weight sync off": (sync_off, "SyncError"),
    "sampler at another temperature": (wrong_temperature, "SyncError"),
    "reference never replaced": (reference_never_replaced, "StaleReferenceError"),
    "reference drifts": (reference_drifts, "StaleReferenceError"),
    "log-probs one token late": (log_probs_shifted, "MismatchError"),
}


def caught(recipe: ZeroRecipe, start: Path, fault: Fault) -> tuple[str | None, int, str]:
    """The error that ended the run (None: it ran through), the step it came in, its message."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    with ExitStack() as stack:
        loop = rl.open_loop(stack, recipe, zero.task(recipe), folder, start, None)
        fault(loop)
        try:
            loop.run(lambda: 0.0)
        except StageError as failure:
            return type(failure).__name__, loop.step + 1, str(failure)
        return None, loop.step, ""


def main() -> int:
    options = arguments(__doc__ or "")
    recipe = read("tiny/zero")
    assert isinstance(recipe, ZeroRecipe)
    size = {"prompts": 4, "per_prompt": 8} if options.quick else {"prompts": 16}
    recipe = recipe.model_copy(
        update={
            "steps": 2,
            "rollout": recipe.rollout.model_copy(update=size),
            "algorithm": recipe.algorithm.model_copy(update={"reference_every": 8}),
            "evaluation": recipe.evaluation.model_copy(update={"problems": 8}),
            "sampler": recipe.sampler.model_copy(update={"engine": "torch"}),
        }
    )
    manifest = RunManifest(Path(tempfile.mkdtemp()) / "run.json")
    start = starting_point(recipe.start, manifest)
    results = [
        {"fault": name, "wanted": wanted, "caught": kind, "step": step, "message": message}
        for name, (fault, wanted) in FAULTS.items()
        for kind, step, message in [caught(recipe, start, fault)]
    ]
    rows = [[r["fault"], r["caught"] or "ran through", str(r["step"])] for r in results]
    failed = [f"{r['fault']}: {r['caught']}" for r in results if r["caught"] != r["wanted"]]
    return publish(options, table(["fault", "caught by", "in step"], rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
