"""Break a run on purpose, one fault at a time: each must be caught by the check made for it.

    python benchmarks/faults/planted.py [--quick] [--json FILE]

Every fault is planted in the loop of the shipped recipe on the tiny base, once for each family of
the shipped recipes: precisions, tolerance, adapters, and whose log-probs are the old ones. The run
without a fault must pass; otherwise a check that always fails would look good.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
from publish import ROOT, arguments, publish, table

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sections import LoraConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.lora import LoraLinear
from veriloop.pipeline.rl.loop import Loop
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.sampling.engine_cache import warm_samplers
from veriloop.stages import rl, zero
from veriloop.stages.stage_run import starting_point

Fault = Callable[[Loop], None]
ADAPTERS, RATE = LoraConfig(rank=16, alpha=32.0), 10.0  # as shipped; times the learning rate
ATTENTION = "model.layers.1.self_attn.v_proj"  # the layer of a fault in one layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the checks of a recipe depend on."""

    sampler: str  # precision
    trainer: str  # precision
    tolerance: float  # nats
    adapters: bool
    old_logp: str


def no_fault(loop: Loop) -> None:
    del loop


def sync_off(loop: Loop) -> None:
    """The sampler loads the weights of the first sync again and again."""
    load, first = loop.deps.sampler.load_weights, list[Any]()

    def load_weights(weights: Any, version: int) -> None:
        first[:] = first or [(name, weight.clone()) for name, weight in weights]
        load(iter(first), version)

    loop.deps.sampler.load_weights = load_weights  # type: ignore[method-assign]


def one_layer_lost(loop: Loop) -> None:
    """The sampler keeps one matrix as it first was."""
    load, first = loop.deps.sampler.load_weights, dict[str, Any]()

    def load_weights(weights: Any, version: int) -> None:
        load(((name, kept(name, weight)) for name, weight in weights), version)

    def kept(name: str, weight: Any) -> Any:
        return first.setdefault(name, weight.clone()) if name.startswith(ATTENTION) else weight

    loop.deps.sampler.load_weights = load_weights  # type: ignore[method-assign]


def one_sync_late(loop: Loop) -> None:
    """The sampler loads the weights of the sync before."""
    load, before = loop.deps.sampler.load_weights, list[Any]()

    def load_weights(weights: Any, version: int) -> None:
        new = [(name, weight.clone()) for name, weight in weights]
        load(iter(before or new), version)
        before[:] = new

    loop.deps.sampler.load_weights = load_weights  # type: ignore[method-assign]


def adapter_not_merged(loop: Loop) -> None:
    """One layer is sent without its adapter."""
    layer = loop.policy.get_submodule(ATTENTION)
    assert isinstance(layer, LoraLinear)
    layer.merged = lambda: layer.weight.detach().clone()  # type: ignore[method-assign]


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
    reference = loop.learner.reference
    assert reference is not None
    with torch.no_grad():
        next(p for n, p in reference.model.named_parameters() if n in reference._own)[0, 0] += 1e-6


def log_probs_shifted(loop: Loop) -> None:
    """Log-probs reach the batch one token late."""
    rollouts = loop.deps.generator.rollouts
    loop.deps.generator.rollouts = (  # type: ignore[method-assign]
        lambda *arguments: [replace(r, logp=(*r.logp[1:], r.logp[0])) for r in rollouts(*arguments)]
    )


FAULTS: dict[str, tuple[Fault, str | None]] = {
    "none": (no_fault, None),
    "weight sync off": (sync_off, "SyncError"),
    "one layer's update lost": (one_layer_lost, "SyncError"),
    "weights of the sync before": (one_sync_late, "SyncError"),
    "sampler at another temperature": (wrong_temperature, "SyncError"),
    "reference never replaced": (reference_never_replaced, "StaleReferenceError"),
    "reference drifts": (reference_drifts, "StaleReferenceError"),
    "log-probs one token late": (log_probs_shifted, "MismatchError"),
}


OF_ADAPTERS: dict[str, tuple[Fault, str | None]] = {
    "one adapter not merged": (adapter_not_merged, "MergeError"),
}


def faults(family: Family) -> dict[str, tuple[Fault, str | None]]:
    return FAULTS | OF_ADAPTERS if family.adapters else FAULTS


def families() -> Counter[Family]:
    """Of all shipped recipes that sample, with the number of recipes, stages of whole runs too."""
    counts: Counter[Family] = Counter()
    for path in sorted((ROOT / "recipes").rglob("*.yaml")):
        recipe: Any = read(str(path))
        for stage in [s.recipe for s in steps(recipe)] if recipe.stage == "r1" else [recipe]:
            if hasattr(stage, "sampler"):
                counts[family_of(stage)] += 1
    return counts


def family_of(recipe: Any) -> Family:
    return Family(
        sampler=recipe.sampler.dtype,
        trainer=recipe.trainer.compute,
        tolerance=recipe.sampler.tolerance,
        adapters=recipe.trainer.lora.rank > 0,
        old_logp=getattr(getattr(recipe, "algorithm", None), "old_logp", "sampler"),
    )


def at(recipe: ZeroRecipe, family: Family) -> ZeroRecipe:
    """The recipe as one of the family, with the engine that supports it."""
    engine = "torch" if family.sampler == "float32" else "vllm"
    sampler = {"engine": engine, "dtype": family.sampler, "tolerance": family.tolerance}
    trainer: dict[str, Any] = {"compute": family.trainer}
    rate = recipe.optimizer.learning_rate
    if family.adapters:
        trainer, rate = trainer | {"lora": ADAPTERS}, RATE * rate
    changes = {
        "sampler": sampler | {"cache_gib": 0.25},
        "trainer": trainer,
        "algorithm": {"old_logp": family.old_logp},
        "optimizer": {"learning_rate": rate},
    }
    sections = {k: getattr(recipe, k).model_copy(update=v) for k, v in changes.items()}
    return recipe.model_copy(update=sections)


def planted(recipe: ZeroRecipe, start: Path, family: Family) -> list[dict[str, Any]]:
    """The outcome of each fault in a recipe of this family."""
    results: list[dict[str, Any]] = []
    with warm_samplers():
        for name, (fault, wanted) in faults(family).items():
            kind, step, message = caught(at(recipe, family), start, fault)
            told = {"fault": name, "wanted": wanted, "caught": kind, "step": step}
            results.append(told | {"message": message} | asdict(family))
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
        for family, recipes in families().items()
        for result in planted(recipe, start, family)
    ]
    settings = ("recipes", *asdict(next(iter(families()))), "fault")
    rows = [
        [*(str(r[name]) for name in settings), r["caught"] or "ran through", str(r["step"])]
        for r in results
    ]
    failed = [
        f"{', '.join(f'{name} {r[name]}' for name in settings)}: {r['caught']}, not {r['wanted']}"
        for r in results
        if r["caught"] != r["wanted"]
    ]
    header = [*settings, "caught by", "in step"]
    return publish(options, table(header, rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
