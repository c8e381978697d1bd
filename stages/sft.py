"""Supervised fine-tuning of a checkpoint on prompts with completions, in TRL's data formats.

Paper (DeepSeek-R1, arXiv 2501.12948v2, B.4.2): cold start and second SFT both fine-tune
DeepSeek-V3-*Base* for 2 to 3 epochs, batch 128, 32,768 tokens, a cosine from 5e-5 to 5e-6.

Input: a checkpoint and a .jsonl or .parquet file, or generated rows. Output: the checkpoint.
`cold_start.py`, `rejection_sft.py` and `distill.py` produce or choose their rows and then call
`fine_tune`. `recipes/tiny/sft.yaml` trains 3 epochs in batches of 32 at 1e-3, on a cosine to a
tenth.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from veriloop.data import sft_rows
from veriloop.data.card import hash_of
from veriloop.data.generated_rows import GENERATED
from veriloop.data.sft_ids import EncodedExample
from veriloop.data.sft_rows import Row
from veriloop.data.template import CHAT
from veriloop.data.worked_rows import worked_rows
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.sections import ERROR_SHARE, Judged
from veriloop.pipeline.config.sft import (
    SFTDataConfig,
    SFTExamplesConfig,
    SFTRecipe,
    SupervisedRecipe,
    WorkedDataConfig,
)
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import eos_ids, load_policy, load_tokenizer, saved_weights
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import current_ranks
from veriloop.pipeline.rollouts.sources import sources_of, summary_lines
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.sft.dataset import SFTDataset, build_dataset
from veriloop.pipeline.sft.step import gradient, measure
from veriloop.pipeline.training.epoch_loop import EpochLoop, Numbers
from veriloop.stages.held_out import evaluate_checkpoint
from veriloop.stages.stage_run import StageRun, run_stage

KEY_METRICS = (
    *("loss", "entropy", "grad_norm", "eval_loss", "eval_mean_token_accuracy"),
    "kl_to_teacher",
)
SUMMARY_METRICS = ("eval_loss", "kl_to_teacher", "pass@1")
Recipe = SupervisedRecipe | DistillRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTObjective:
    """The loss on a batch and the metrics on held-out rows."""

    gradient: Callable[[Sequence[EncodedExample]], Numbers]  # backward pass of a step; its metrics
    measure: Callable[[], Numbers]


ObjectiveBuilder = Callable[  # of (model, tokenizer, dataset, say)
    [Any, Any, SFTDataset, Callable[[str], None]], SFTObjective
]


def run(recipe: SFTRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Fine-tune in `output`/`name` (default: sft); returns the final checkpoint.

    Resumes as `run_stage` does. Raises Stopped after Ctrl-C, with everything saved.
    """
    rows = load_rows(recipe.data, recipe.sets)

    def train(stage: StageRun) -> Path:
        outputs = {"data": recipe.data.source or ", ".join(recipe.data.problems)}
        if Path(recipe.data.source).is_file():
            outputs["data_sha256"] = hash_of(Path(recipe.data.source))
        return fine_tune(stage, recipe, rows, outputs)

    return run_stage(recipe, output, train, resume=resume, name=name)


def load_rows(config: SFTDataConfig, sets: Mapping[str, SetConfig] = {}) -> list[Row]:
    """The rows of `data`. Raises RecipeError with line and column of a malformed one."""
    if isinstance(config, WorkedDataConfig) and config.problems:
        return _worked_rows(config, sets)
    try:
        if config.source in GENERATED:
            generated = GENERATED[config.source](config.seed, config.rows)
            return sft_rows.parse_rows(generated, "generated data, row")
        rows = sft_rows.read(Path(config.source))
    except ValueError as mistake:
        raise RecipeError(f"data.source: {mistake}") from mistake
    if config.rows > len(rows):
        raise RecipeError(f"data.rows={config.rows}: {config.source} has {len(rows)} rows")
    return list(islice(rows, config.rows or None))


def _worked_rows(config: WorkedDataConfig, sets: Mapping[str, SetConfig]) -> list[Row]:
    sources, facts = sources_of(config.problems, sets)
    for line in summary_lines(facts):
        print(f"data: {line}")
    try:
        rows = worked_rows(sources, config.problems, config.seed, config.rows, config.steps)
    except ValueError as mistake:
        raise RecipeError(f"data.problems: {mistake}") from mistake
    return sft_rows.parse_rows(rows, "worked solutions, row")


def fine_tune(
    stage: StageRun,
    recipe: Recipe,
    rows: list[Row],
    outputs: dict[str, Any],
    build_objective: ObjectiveBuilder | None = None,
) -> Path:
    """Evaluate, train on `rows`, evaluate and record the end; returns the checkpoint.

    `outputs` joins the stage's outputs in run.json. The default objective is cross-entropy.
    """
    with ExitStack() as stack:
        loop, dataset, objective = _open_loop(stack, recipe, rows, stage, build_objective)
        before = stage.evaluated_once(
            lambda: {
                "data": dataset.key,
                "numbers": _evaluated(loop, objective, recipe, stage.start, step=0),
            }
        )
        stage.accept_change("file", {"data": before["data"]}, {"data": dataset.key})
        loop.run(stage.seconds)
        final = loop.trainer.save(stage.seconds())
        after = _evaluated(loop, objective, recipe, final, step=loop.step)
        summary = ", ".join(f"{k} {after[k]:.3f}" for k in SUMMARY_METRICS if k in after)
        loop.deps.console.note(f"after {loop.step} steps: {summary or 'nothing is held out'}")
    return stage.finish(loop.step, None, before["numbers"], after, dataset.facts | outputs)


def _open_loop(
    stack: ExitStack,
    recipe: Recipe,
    rows: list[Row],
    stage: StageRun,
    build_objective: ObjectiveBuilder | None,
) -> tuple[EpochLoop[EncodedExample], SFTDataset, SFTObjective]:
    """The loop with its console and record, which `stack` closes; resumed if the stage is."""
    with activity("loading the model and the data"):
        tokenizer = open_tokenizer(stage.start, recipe.data)
        start = load_policy(stage.start, empty=current_ranks().count > 1)
        model = stage.divided(recipe, prepare(start, recipe.trainer))
        ends = eos_ids(model.generation_config, tokenizer)
        dataset = build_dataset(rows, recipe.data, tokenizer, ends, recipe.seed)
    if dataset.too_long:
        limit = recipe.data.max_tokens
        print(f"data: {dataset.too_long} of {len(rows)} rows exceed {limit} tokens; left out")
    steps = recipe.epochs * -(-len(dataset.train) // recipe.batch)
    deps = stage.open_deps(stack, recipe, tokenizer, steps, KEY_METRICS)
    if build_objective is None:
        objective = cross_entropy_objective(recipe, model, dataset)
    else:
        objective = build_objective(model, tokenizer, dataset, deps.console.note)
    loop = EpochLoop(
        recipe,
        dataset.train,
        model,
        deps,
        objective.gradient,
        purpose="sft",
        evaluate=objective.measure,
    )
    if stage.saved is not None:
        loop.trainer.resume(stage.saved[1], saved_weights(model, stage.saved[0]))
    return loop, dataset, objective


def cross_entropy_objective(recipe: Recipe, model: Any, dataset: SFTDataset) -> SFTObjective:
    """Cross-entropy of the learned tokens."""
    ranks, trainer, held_out = current_ranks(), recipe.trainer, dataset.held_out
    return SFTObjective(
        gradient=lambda batch: ranks.together(gradient, model, batch, trainer),
        measure=lambda: ranks.together(measure, model, held_out, trainer) if held_out else {},
    )


def open_tokenizer(start: Path, config: SFTExamplesConfig) -> Any:
    """The start's tokenizer, with the chat template that the recipe selects."""
    tokenizer = load_tokenizer(start)
    if config.template == "r1_zero":
        tokenizer.chat_template = CHAT
    return tokenizer


def _evaluated(
    loop: EpochLoop[EncodedExample],
    objective: SFTObjective,
    recipe: Recipe,
    checkpoint: Path,
    *,
    step: int,
) -> dict[str, Any]:
    """Metrics on held-out rows and, with `examine`, accuracy on held-out problems of the
    checkpoint after `step` steps."""
    metrics: dict[str, Any] = dict(objective.measure())
    if recipe.examine:
        own = recipe.data.template == "own" and loop.deps.tokenizer.chat_template
        metrics |= evaluate_checkpoint(
            checkpoint,
            recipe.evaluation,
            recipe.sampler,
            max_tokens=recipe.max_tokens,
            stop=recipe.stop,
            say=loop.deps.console.note,
            **_judging(recipe),
            keep=lambda answers: loop.deps.record.write_evaluated(step, answers),
            store=loop.deps.evaluations(step),
            sources=sources_of(recipe.evaluation.sources, recipe.sets)[0],
            template="chat" if own else "r1_zero",  # as the rows
            directory=loop.deps.directory,
        ).flat()
    return metrics


def _judging(recipe: Recipe) -> dict[str, Any]:
    """How answers to held-out problems are judged: as collected ones, where a stage collects."""
    judged = getattr(recipe, "collect", recipe)
    if not isinstance(judged, Judged):
        return {"error_share": ERROR_SHARE}
    judging = {"workers": judged.verifier_workers, "limit_s": judged.verifier_limit_s,
               "sandbox": judged.sandbox.backend, "facts": judged.verifier_facts}  # fmt: skip
    return {
        "judging": judging,
        "verifier_service": judged.verifier_service,
        "error_share": judged.verifier_error_share,
    }


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("sft"))
