"""Break a run on purpose, one fault at a time: each must be caught by the check made for it.

    python benchmarks/faults/planted.py [--quick] [--json FILE]

Every fault is planted in the loop of the shipped recipe on the tiny base, once for each combination
of tolerance and precisions among the shipped recipes. The run without a fault must pass; otherwise
a check that always fails would look good.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
from publish import ROOT, arguments, publish, table

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.rl.loop import Loop
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.sampling.engine_cache import warm_samplers
from veriloop.stages import rl, zero
from veriloop.stages.stage_run import starting_point

Fault = Callable[[Loop], None]
Precision = tuple[str, str, float]  # of the sampler, of the trainer, and the tolerance in nats


def no_fault(loop: Loop) -> None:
    del loop


def sync_off(loop: Loop) -> None:
    """The sampler loads the weights of the first sync again and again."""
    load, first = loop.deps.sampler.load_weights, list[Any]()

    def load_weights(weights: Any, version: int) -> None:
        first[:] = first or [(name, weight.clone()) for name, weight in weights]
        load(iter(first), version)

    loop.deps.sampler.load_weights = load_weights  # type: ignore[method-assign]


def wrong_temperature(loop: Loop) -> None:
    """The engine samples at 0.9 what it was asked to sample at 1."""
    sample = loop.deps.sampler.sample
    loop.deps.sampler.sample = lambda prompts, sampling, *rest: sample(  # type: ignore[method-assign]
        prompts, sampling if not sampling.temperature else replace(sampling, temperature=0.9), *rest
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
        lambda *arguments: [replace(r, logp=(*r.logp[1:], r.logp[0])) for r in rollouts(*arguments)]
    )


FAULTS: dict[str, tuple[Fault, str | None]] = {
    "none": (no_fault, None),
    "weight sync off": (sync_off, "SyncError"),
    "sampler at another temperature": (wrong_temperature, "SyncError"),
    "reference never replaced": (reference_never_replaced, "StaleReferenceError"),
    "reference drifts": (reference_drifts, "StaleReferenceError"),
    "log-probs one token late": (log_probs_shifted, "MismatchError"),
}


def precisions() -> Counter[Precision]:
    """Of all shipped recipes that sample, with the number of recipes."""
    counts: Counter[Precision] = Counter()
    for path in sorted((ROOT / "recipes").rglob("*.yaml")):
        recipe: Any = read(str(path))
        if hasattr(recipe, "sampler"):
            sampler, compute = recipe.sampler, recipe.trainer.compute
            counts[sampler.dtype, compute, sampler.tolerance] += 1
    return counts


def at(recipe: ZeroRecipe, precision: Precision) -> ZeroRecipe:
    """The recipe in another precision, with the engine that supports it."""
    dtype, compute, tolerance = precision
    engine = "torch" if dtype == "float32" else "vllm"
    sampler = {"engine": engine, "dtype": dtype, "tolerance": tolerance, "cache_gib": 0.25}
    return recipe.model_copy(
        update={
            "sampler": recipe.sampler.model_copy(update=sampler),
            "trainer": recipe.trainer.model_copy(update={"compute": compute}),
        }
    )


def planted(recipe: ZeroRecipe, start: Path, precision: Precision) -> list[dict[str, Any]]:
    """The outcome of each fault in this precision."""
    recipe, (dtype, compute, tolerance) = at(recipe, precision), precision
    results: list[dict[str, Any]] = []
    with warm_samplers():
        for name, (fault, wanted) in FAULTS.items():
            kind, step, message = caught(recipe, start, fault)
            results.append(
                {"fault": name, "wanted": wanted, "caught": kind, "step": step, "message": message,
                 "sampler": dtype, "trainer": compute, "tolerance": tolerance}
            )  # fmt: skip
    return results


def caught(recipe: ZeroRecipe, start: Path, fault: Fault) -> tuple[str | None, int, str]:
    """The error that ended the run (None: no error), its step and its message."""
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
        }
    )
    manifest = RunManifest(Path(tempfile.mkdtemp()) / "run.json")
    start = starting_point(recipe.start, manifest)
    results = [
        result | {"recipes": recipes}
        for precision, recipes in precisions().items()
        for result in planted(recipe, start, precision)
    ]
    settings = ("recipes", "sampler", "trainer", "tolerance", "fault")
    rows = [
        [*(str(r[name]) for name in settings), r["caught"] or "ran through", str(r["step"])]
        for r in results
    ]
    failed = [
        f"{r['fault']}, sampler in {r['sampler']}, trainer in {r['trainer']}: {r['caught']}"
        for r in results
        if r["caught"] != r["wanted"]
    ]
    header = [*settings, "caught by", "in step"]
    return publish(options, table(header, rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
