"""Preference optimisation: DPO and its variants, on pairs from a file or from the policy itself.

Not a step of the paper, which learns preferences with a reward model inside GRPO
(`reward_model.py`, `preference_rl.py`); this stage learns them from pairs directly.

Input: a checkpoint, and pairs, rankings, labelled answers or problems to sample from. Output: the
checkpoint. `ScheduleConfig` documents the schedules (offline, curriculum, iterative, online),
`pipeline/losses/preference.py` the losses; `recipes/tiny/` has a recipe for each loss.
"""

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from veriloop.data.sources import Mixture
from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.preference import CollectPreferencesRecipe, PreferenceRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.evaluation.evaluate import MEASURED
from veriloop.pipeline.model.policy import (
    eos_ids,
    load_generation_config,
    load_policy,
    load_tokenizer,
    saved_weights,
)
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import frozen_copy
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.model.sharded import current_ranks
from veriloop.pipeline.preference.datasets import (
    PreferenceDataset,
    Splits,
    build_dataset,
    kind_of,
    load_rows,
)
from veriloop.pipeline.preference.labelling import (
    VERIFIERS,
    Labeller,
    by_judge,
    by_rewards,
    by_verifiers,
)
from veriloop.pipeline.preference.loop import KEY_METRICS, PreferenceLoop
from veriloop.pipeline.preference.online import OnlineDeps, OnlineSampler
from veriloop.pipeline.preference.reward_judge import response_of, summary_ids, summary_of
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import verifier_names
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit
from veriloop.pipeline.rollouts.sources import held_out_problems, one_of_each, sources_of
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.training.trainer import TrainerDeps
from veriloop.stages.stage_run import StageRun, open_verifiers, run_stage
from veriloop.verifiers.http_json import EndpointError
from veriloop.verifiers.llm_judge import require_endpoint


def run(recipe: PreferenceRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train in `output`/`name` (default: preference); returns the final checkpoint.

    Resumes as `run_stage` does. Raises Stopped after Ctrl-C, with everything saved.
    """
    rows = load_rows(recipe.data, kind_of(recipe.schedule), print)
    return run_stage(recipe, output, partial(_train, recipe, rows), resume=resume, name=name)


def _train(recipe: PreferenceRecipe, rows: Splits, stage: StageRun) -> Path:
    with ExitStack() as stack:
        loop = open_loop(stack, recipe, stage, rows)
        sampler = None if loop.online is None else loop.online.deps.sampler.name
        if sampler is not None:
            stage.note_sampler(sampler)
        evaluations = loop.run(stage.seconds)
    before, after = evaluations["before"], evaluations["after"]
    return stage.finish(loop.step, sampler, before, after, loop.dataset.facts)


def open_loop(
    stack: ExitStack, recipe: PreferenceRecipe, stage: StageRun, rows: Splits | None = None
) -> PreferenceLoop:
    """The loop and, for recipes with problems, its sampler; closed by `stack`, resumed if saved.
    `rows`: those of the data, if they are loaded already."""
    empty = current_ranks().count > 1
    policy = prepare(load_policy(stage.start, empty=empty), recipe.trainer)
    start = frozen_copy(policy) if recipe.keeps_start else None
    stage.divided(recipe, *filter(None, (start, policy)))
    tokenizer = load_tokenizer(stage.start)
    ends = eos_ids(policy.generation_config, tokenizer)
    data, loss, schedule = recipe.data, recipe.loss, recipe.schedule
    dataset = build_dataset(data, loss, schedule, tokenizer, ends, print, rows)
    deps = stage.open_deps(stack, recipe, tokenizer, _steps(recipe, dataset), KEY_METRICS)
    online = None
    if recipe.problems:
        opened = _open_online(stack, recipe, stage.start, deps)
        online = OnlineSampler(recipe, policy, opened, deps.ranks)
    loop = PreferenceLoop(recipe, dataset, policy, deps, online, start)
    if stage.saved is not None:
        loop.trainer.resume(stage.saved[1], saved_weights(policy, stage.saved[0]))
    return loop


def _steps(recipe: PreferenceRecipe, dataset: PreferenceDataset) -> int:
    """Optimizer steps; for sampled rounds the largest possible number."""
    schedule, sizes = recipe.schedule, [len(examples) for examples in dataset.rounds]
    if schedule.samples:
        pairs = recipe.rollout.prompts * recipe.label.pairs
        sizes = [pairs * (2 if recipe.loss.name == "kto" else 1)] * schedule.rounds
    return schedule.epochs * sum(-(-size // recipe.batch) for size in sizes)


def _open_online(
    stack: ExitStack, recipe: PreferenceRecipe, start: Path, deps: TrainerDeps
) -> OnlineDeps:
    """The sampler, verifiers and labeller of a recipe with problems; closed by `stack`."""
    rollout, tokenizer = recipe.rollout, load_tokenizer(start)
    generator = RolloutGenerator(
        tokenizer, load_generation_config(start), rollout.template, rollout.system
    )
    sources, _ = sources_of(
        [*recipe.problems, *recipe.evaluation.sources],
        recipe.sets,
        PromptLimit(
            "rollout.max_prompt", rollout.max_prompt, lambda problem: len(generator.prompt(problem))
        ),
    )
    problems = held_out_problems(recipe.evaluation, sources)
    kinds = one_of_each(sources, recipe.problems, recipe.problem_seed)
    names = verifier_names({**MEASURED, **VERIFIERS}, [*problems, *kinds])
    pool = open_verifiers(stack, recipe, names, deps.directory)
    sampler = open_sampler(
        recipe.sampler,
        str(start),
        max_length=rollout.max_prompt + rollout.max_tokens,
        say=deps.console.note,
    )
    stack.callback(sampler.close)
    return OnlineDeps(
        problem=Mixture(recipe.problems, "rl", recipe.problem_seed, sources),
        held_out=problems,
        generator=generator,
        sampler=sampler,
        pool=pool,
        label=labeller(recipe, pool, tokenizer),
    )


def labeller(
    recipe: PreferenceRecipe | CollectPreferencesRecipe, pool: Any, tokenizer: Any
) -> Labeller:
    """Scores sampled answers, by the verifiers, a reward model or a judge.

    Raises RecipeError for a judge without an endpoint.
    """
    label = recipe.label
    if label.by == "verifiers":
        return by_verifiers(label, pool)
    if label.by == "judge":
        try:
            require_endpoint()
        except EndpointError as missing:
            raise RecipeError(f"label.by: judge: {missing}") from missing
        return by_judge(label, response_of if label.reads == "response" else summary_of)
    head = ScalarHead(find_checkpoint(label.reward_model, "label.reward_model"))
    if label.reads == "summary":
        return by_rewards(
            lambda answers: head.rewards(answers, recipe.trainer), partial(summary_ids, head)
        )
    head.require_tokenizer(tokenizer)
    return by_rewards(lambda answers: head.rewards(answers, recipe.trainer))


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("preference"))
