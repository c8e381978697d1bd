"""What the RL stages share: building the task, opening the loop, running and recording it.

A stage adds its verifiers and the formula that combines their scores into a reward.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from veriloop.data.jsonl import read_rows
from veriloop.data.problem import Problem
from veriloop.data.sources import SOURCES, Mixture, source_of
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.evaluation.evaluate import MEASURED
from veriloop.pipeline.losses.dapo import soft_overlong_penalty
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, saved_weights
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.sharded import OPEN, SINGLE, Ranks
from veriloop.pipeline.protocols import LearnerProtocol
from veriloop.pipeline.rl.controls import CONTROLS
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.loop import Loop, LoopDeps
from veriloop.pipeline.rl.reward_checks import ZeroRewardAlarm
from veriloop.pipeline.rollouts.generate import RolloutGenerator, prompt_ids
from veriloop.pipeline.rollouts.grade import (
    Judges,
    Reward,
    StepScores,
    Task,
    Verifiers,
    verifier_names,
)
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit
from veriloop.pipeline.rollouts.reward_terms import (
    term_functions,
    term_verifiers,
    with_terms,
)
from veriloop.pipeline.rollouts.sources import (
    Sources,
    held_out_problems,
    one_of_each,
    sources_of,
    summary_lines,
)
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.console import LOG, StageConsole, activity
from veriloop.pipeline.runs.json_file import read_object
from veriloop.pipeline.runs.trackers.open import open_record
from veriloop.pipeline.sampling.engine_cache import abandon
from veriloop.pipeline.sampling.open import open_sampler, open_servers
from veriloop.pipeline.sampling.prelaunch import halves, served
from veriloop.pipeline.sampling.sampler import Sampler
from veriloop.pipeline.types import Rollout
from veriloop.sandbox.host import affinity, bind
from veriloop.stages.resumption import changed_content
from veriloop.stages.stage_run import StageRun, open_verifiers, require_ranks, run_stage
from veriloop.verifiers.registry import get
from veriloop.verifiers.verdict import Verdict

_UNKNOWN = "unknown"  # in place of a hash that sets.json lacks
WEIGHTED = ("accuracy", "format", "language", "preference")  # components of the reward
RolloutRecipe = RLRecipe | DistillRecipe
Recipe = TypeVar("Recipe", bound=RolloutRecipe)
LearnerBuilder = Callable[  # of (policy, generator, start checkpoint)
    [Any, RolloutGenerator, Path], LearnerProtocol
]


def task(
    recipe: RLRecipe,
    verifiers: Verifiers,
    reward: Reward,
    *,
    sources: Sources = SOURCES,
) -> Task:
    """Problems of the RL split to train on and of the test split to evaluate on.

    The terms of `reward.terms` are added to `reward`.
    """
    terms = recipe.reward.terms
    return Task(
        problem=Mixture(recipe.problems, "rl", recipe.problem_seed, sources),
        held_out=held_out_problems(recipe.evaluation, sources),
        kinds=one_of_each(sources, recipe.problems, recipe.problem_seed),
        verifiers={**verifiers, **term_verifiers(terms)},
        reward=with_recipe_terms(recipe, reward),
        batch_judges=term_functions(terms),
        step_scores=step_scores(recipe),
        regrade=CONTROLS.get(recipe.reward.control),
    )


def step_scores(recipe: RLRecipe) -> StepScores | None:
    """Scores of single steps by the verifiers of `reward.steps`; None unless they are used."""
    if recipe.algorithm.advantage != "process":
        return None
    verifiers = {source: get(name).steps for source, name in recipe.reward.steps.items()}

    def scores(problem: Problem, response: str) -> Sequence[tuple[int, float]]:
        steps = verifiers[source_of(problem)]
        assert steps is not None, "the recipe refuses verifiers without scores of steps"
        return steps(problem, response)

    return scores


def with_recipe_terms(recipe: RLRecipe, reward: Reward) -> Reward:
    """The stage's reward plus the recipe's terms and its penalty for overlong responses."""
    return with_overlong_penalty(recipe, with_terms(reward, recipe.reward.terms))


def with_overlong_penalty(recipe: RLRecipe, reward: Reward) -> Reward:
    """The reward plus DAPO's soft overlong penalty, if `reward.overlong` is set."""
    cache, limit = recipe.reward.overlong, recipe.rollout.max_tokens
    if not cache:
        return reward

    def penalised(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        length = torch.tensor(len(rollout.response_ids))
        penalty = soft_overlong_penalty(length, limit=limit, cache=cache)
        return reward(rollout, verdicts) + penalty.item()

    return penalised


def run(
    recipe: Recipe,
    build_task: Callable[[Recipe, Sources], Task],
    output: Path,
    *,
    resume: bool,
    name: str = "",
    build_learner: LearnerBuilder | None = None,
) -> Path:
    """Train in `output`/`name`, by default the kind of stage; returns the final checkpoint.

    Without `build_learner` the policy learns from the task's rewards. Resumes as `run_stage`
    does. Raises Stopped after Ctrl-C, with everything saved.
    """

    def train(stage: StageRun) -> Path:
        accept = partial(stage.accept_change, "file")
        task = build_task(recipe, open_sources(recipe, stage.start, stage.directory, accept))
        with ExitStack() as stack:
            loop = open_loop(
                stack, recipe, task, stage.directory, stage.start, stage.saved, build_learner
            )
            sampler = loop.deps.sampler.name
            stage.note_sampler(sampler)
            loop.run(stage.seconds)
        evaluations = list(read_rows(loop.evaluations))
        return stage.finish(loop.step, sampler, evaluations[0], evaluations[-1], {})

    return run_stage(recipe, output, train, resume=resume, name=name)


def open_sources(
    recipe: RolloutRecipe,
    start: Path,
    directory: Path,
    accept: Callable[[Mapping[str, str], Mapping[str, str]], object] | None = None,
) -> Sources:
    """The recipe's problem sources, without prompts that are too long.

    Prints what became of the rows of published sets and writes it to sets.json. Raises RecipeError
    if a set changed since the run began, unless the command allows it; `accept`, given both hashes
    by name, can record that.
    """
    tokenizer, rollout = load_tokenizer(start), recipe.rollout

    def length(problem: Problem) -> int:
        return len(prompt_ids(problem, tokenizer, rollout.template, rollout.system))

    limit = PromptLimit("rollout.max_prompt", rollout.max_prompt, length)
    with activity("reading the data sets"):
        names = [*recipe.problems, *recipe.evaluation.sources]
        sources, facts = sources_of(names, recipe.sets, limit)
    if not facts:
        return sources
    print("\n".join(summary_lines(facts)), flush=True)
    path, before = directory / "sets.json", dict[str, Any]()
    if path.exists():
        before = read_object(path)
        (accept or partial(changed_content, "file"))(
            {f"questions of {name}": _recorded_hash(was) for name, was in before.items()},
            {f"questions of {name}": now["sha256"] for name, now in facts.items()},
        )
    elif checkpoint.latest(directory) is not None:
        print(
            f"WARNING: {path} is lost, so it is not known whether the run began with these "
            "questions",
            flush=True,
        )
    begun = {name: was for name, was in before.items() if _recorded_hash(was) != _UNKNOWN}
    text = json.dumps({**facts, **begun}, indent=1)
    write_atomically(path, lambda draft: draft.write_text(text))
    return sources


def _recorded_hash(facts: Any) -> str:
    return facts.get("sha256", _UNKNOWN) if isinstance(facts, dict) else _UNKNOWN


def open_loop(
    stack: ExitStack,
    recipe: RolloutRecipe,
    task: Task,
    directory: Path,
    start: Path,
    saved: tuple[Path, dict[str, Any]] | None,
    build_learner: LearnerBuilder | None = None,
) -> Loop:
    """The loop with its sampler, verifiers and record, which `stack` closes.

    `saved` is the checkpoint to resume from and its state.
    """
    ranks = require_ranks(recipe)
    local = not served(recipe)
    cores = _reserve_sampler_cores(stack) if recipe.rollout.ahead and local else ()
    rollout = recipe.rollout
    console = stack.enter_context(
        StageConsole(
            recipe.stage,
            recipe.steps,
            done=0 if saved is None else saved[1]["step"],
            log=directory / LOG,
        )
    )
    # Verifiers first: their processes import what they need while the engine loads.
    names = verifier_names({**MEASURED, **task.verifiers}, [*task.kinds, *task.held_out])
    if isinstance(recipe, RLRecipe):
        names = sorted({*names, *recipe.reward.steps.values()})
    pool = open_verifiers(stack, recipe, names, directory)
    sampler = _open_sampler(recipe, directory, start, console.note, cores)
    stack.callback(sampler.close)
    ranks.command(OPEN, recipe, str(start), None if saved is None else str(saved[0]))
    policy = prepare(load_policy(start, empty=ranks.count > 1), recipe.trainer)
    tokenizer = load_tokenizer(start)
    generator = RolloutGenerator(
        tokenizer, policy.generation_config, rollout.template, rollout.system
    )
    if build_learner is not None:
        learner = build_learner(policy, generator, start)
    else:
        assert isinstance(recipe, RLRecipe), "other recipes have no rewards and bring a learner"
        learner = PolicyLearner(recipe, policy, generator, ranks)
    record = stack.enter_context(open_record(recipe, directory))
    after = recipe.warn_zero_reward_after if isinstance(recipe, RLRecipe) else 0
    deps = LoopDeps(
        tokenizer=tokenizer,
        generator=generator,
        sampler=sampler,
        pool=pool,
        record=record,
        console=console,
        reward_alarm=ZeroRewardAlarm(after, record.metrics_path, console.note, unweighted(recipe)),
        directory=directory,
        start=start,
        bound_gib=recipe.trainer.memory_gib,
        ranks=ranks,
    )
    loop = Loop(recipe, task, policy, deps, _leading(learner, ranks))
    if loop.prefetcher is not None:
        stack.callback(loop.prefetcher.close)
        stack.push(_give_up_prefetching(sampler, pool))
    if saved is not None:
        loop.trainer.resume(saved[1], saved_weights(policy, saved[0]))
    return loop


def _open_sampler(
    recipe: RolloutRecipe,
    directory: Path,
    start: Path,
    say: Callable[[str], None],
    cores: Collection[int],
) -> Sampler:
    """The engine of the recipe, or the servers of its `cluster`."""
    length = recipe.rollout.max_prompt + recipe.rollout.max_tokens
    if isinstance(recipe, RLRecipe) and served(recipe):
        return open_servers(
            recipe.cluster, recipe.sampler, str(start), directory, max_length=length, say=say
        )
    return open_sampler(recipe.sampler, str(start), max_length=length, say=say, cores=cores)


def _leading(learner: LearnerProtocol, ranks: Ranks) -> LearnerProtocol:
    """The learner that the loop drives: on several ranks one that leads them."""
    if ranks is SINGLE:
        return learner
    # Loads FSDP, which one process has no use for.
    from veriloop.pipeline.cluster.rank_group import RankGroup
    from veriloop.pipeline.rl.ranked_learner import RankZeroLearner

    assert isinstance(ranks, RankGroup), "several ranks form a group"
    return RankZeroLearner(learner, ranks)


def _give_up_prefetching(sampler: Sampler, pool: Judges) -> Callable[..., None]:
    """An exit callback: after an exception nothing waits for the turn that is still collected."""

    def end(failure: type[BaseException] | None, *_: object) -> None:
        if failure is not None:
            abandon(sampler)
            pool.close()

    return end


def unweighted(recipe: RolloutRecipe) -> set[str]:
    """Components whose weight in the recipe is 0, terms that are penalties, and functions."""
    if not isinstance(recipe, RLRecipe):
        return set()
    silent = {name for name, weight in recipe.reward if name in WEIGHTED and not weight}
    # A penalty that is never due is no sign of a mistake, nor is a value below 0.
    terms = recipe.reward.terms.items()
    return silent | {name for name, term in terms if term.weight <= 0 or term.function}


def _reserve_sampler_cores(stack: ExitStack) -> tuple[int, ...]:
    """Bind the trainer to one half of the cores until `stack` closes; returns the other half."""
    threads, cores = torch.get_num_threads(), affinity()
    trainer_cores, sampler_cores = halves()
    bind(trainer_cores)
    stack.callback(bind, cores)
    torch.set_num_threads(min(threads, len(trainer_cores)))
    stack.callback(torch.set_num_threads, threads)
    return sampler_cores
