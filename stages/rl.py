"""What the stages of reinforcement learning share: how one is opened, run and noted.

Each stage adds its task: the verifiers, and the line that adds their scores up to a reward.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import torch

from data.mixture import Mixture, held_out
from data.problem import Problem
from data.sources import SOURCES
from pipeline.compute import prepare
from pipeline.console import StageConsole
from pipeline.control import CONTROLS
from pipeline.course import Learns
from pipeline.distill_config import DistillRecipe
from pipeline.evaluate import MEASURED
from pipeline.failures import RecipeError
from pipeline.grade import Judges, Reward, Verifiers, names_of, open_judges
from pipeline.learning import Learning
from pipeline.loop import Loop, Tools
from pipeline.losses.overlong import soft_overlong_penalty
from pipeline.policy import load_policy, load_tokenizer, saved_weights
from pipeline.prompt import prompt_ids
from pipeline.questions import Facts, Sources, one_of_each, sources_of, told
from pipeline.records import Graded, Rollout
from pipeline.rl_config import RewardConfig, RLRecipe
from pipeline.run_json import write_versions
from pipeline.sampling.choose import open_sampler
from pipeline.sampling.early import halves
from pipeline.scribe import Scribe
from pipeline.task import Task
from pipeline.trackers.choose import open_record
from pipeline.unpaid import Unpaid
from stages.entry import enter
from verifiers import unit_chain
from verifiers.verdict import Verdict

WEIGHED = ("accuracy", "format", "language", "preference")  # components of the reward
Asking = RLRecipe | DistillRecipe
Recipe = TypeVar("Recipe", bound=Asking)
Taught = Callable[[Any, Scribe, Path], Learns]  # policy, scribe, the checkpoint it started from


def task(
    recipe: RLRecipe,
    verifiers: Verifiers,
    reward: Reward,
    *,
    best: float,
    sources: Sources = SOURCES,
) -> Task:
    """Questions of the RL split, from the recipe's sources; held-out ones to see what was
    learned. `best` is the highest `reward`."""
    return Task(
        problem=Mixture(recipe.problems, "rl", recipe.problem_seed, sources),
        held_out=held_out(recipe.evaluation.sources, recipe.evaluation.problems, sources),
        kinds=one_of_each(sources, recipe.problems, recipe.problem_seed),
        verifiers=verifiers,
        reward=shortened(recipe, reward),
        best=best,
        step_scores=step_scores,
        regrade=lambda graded, random: regraded(graded, recipe.reward, random),
    )


def step_scores(text: str) -> list[tuple[int, float]]:
    """(end, score) of each step of a chain of sums: what advantage `process` learns from."""
    return [(one.end, one.score) for one in unit_chain.steps(text)]


def shortened(recipe: RLRecipe, reward: Reward) -> Reward:
    """The reward less DAPO's penalty for long responses, where the recipe has one."""
    cache, longest = recipe.reward.overlong, recipe.rollout.max_tokens
    if not cache:
        return reward

    def value(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        length = torch.tensor(len(rollout.response_ids))
        penalty = soft_overlong_penalty(length, limit=longest, cache=cache)
        return reward(rollout, verdicts) + penalty.item()

    return value


def regraded(graded: list[Graded], weights: RewardConfig, random: Random) -> list[Graded]:
    """As graded, unless the recipe is a control experiment."""
    return CONTROLS[weights.control](graded, random)


def score(verdicts: Mapping[str, Verdict], component: str) -> float:
    """A component's score. What a verifier failed on has no reward, and is never asked for one."""
    found = verdicts[component].score
    assert found is not None, "a failed verifier has no reward"
    return found


def run(
    recipe: Recipe,
    work: Callable[[Recipe, Sources], Task],
    output: Path,
    *,
    resume: bool,
    name: str = "",
    taught: Taught | None = None,
) -> Path:
    """Train on `work` under `output`/`name` (the stage's own), by its rewards or as `taught` says;
    returns the final checkpoint. Resumed as `enter` has it; raises Stopped after Ctrl-C, with
    everything saved.
    """
    entry = enter(recipe, output, resume=resume, name=name)
    if isinstance(entry, Path):
        return entry
    place = entry.directory, entry.start, entry.found
    sources = questions(recipe, entry.start, entry.directory)
    with ExitStack() as stack:
        loop = opened(stack, recipe, work(recipe, sources), *place, taught)
        sampler = loop.tools.sampler.name
        with entry.failures_noted(sampler):
            loop.run(entry.seconds)
    rows = [json.loads(line) for line in loop.evaluations.read_text().splitlines()]
    made = entry.made()
    entry.end(sampler, rows[0], rows[-1], made)
    return Path(made["checkpoint"])


def questions(recipe: Asking, start: Path, directory: Path) -> Sources:
    """The recipe's sources. What became of the rows of published sets is said, and noted.

    Raises RecipeError where a run that is resumed would ask other questions than before.
    """
    spelling, asked = load_tokenizer(start), recipe.rollout

    def fits(problem: Problem) -> bool:
        ids = prompt_ids(problem, spelling, asked.template, asked.system)
        return len(ids) <= asked.max_prompt

    sources, facts = sources_of([*recipe.problems, *recipe.evaluation.sources], recipe.sets, fits)
    if facts:
        print("\n".join(told(facts)), flush=True)
        _note(facts, directory / "sets.json")
    return sources


def _note(facts: Facts, path: Path) -> None:
    if path.exists():
        before = json.loads(path.read_text())
        for name in facts:
            if name in before and before[name]["sha256"] != facts[name]["sha256"]:
                raise RecipeError(
                    f"cannot resume: the questions of {name} are not those that the run began with"
                )
    path.write_text(json.dumps(facts, indent=1))


def opened(
    stack: ExitStack,
    recipe: Asking,
    work: Task,
    directory: Path,
    start: Path,
    found: tuple[Path, dict[str, Any]] | None,
    taught: Taught | None = None,
) -> Loop:
    """The loop with all it works with, closed when `stack` is; resumed when `found`."""
    cores = _shared_out(stack) if recipe.rollout.ahead else ()
    rollout = recipe.rollout
    console = stack.enter_context(
        StageConsole(recipe.stage, recipe.steps, done=0 if found is None else found[1]["step"])
    )
    pool = stack.enter_context(judges(recipe, work, directory))  # get ready while an engine does
    sampler = open_sampler(
        recipe.sampler,
        str(start),
        max_length=rollout.max_prompt + rollout.max_tokens,
        say=console.note,
        cores=cores,
    )
    stack.callback(sampler.close)
    policy = prepare(load_policy(start), recipe.trainer)
    spelling = load_tokenizer(start)
    scribe = Scribe(spelling, policy.generation_config, rollout.template, rollout.system)
    if taught is not None:
        learning = taught(policy, scribe, start)
    else:
        assert isinstance(recipe, RLRecipe), "only these have rewards to learn from"
        learning = Learning(recipe, policy, scribe, work.step_scores)
    if found is not None:
        policy.load_state_dict(saved_weights(policy, found[0]))
    record = stack.enter_context(open_record(recipe, directory))
    after = recipe.show_unpaid if isinstance(recipe, RLRecipe) else 0
    tools = Tools(
        scribe=scribe,
        sampler=sampler,
        pool=pool,
        record=record,
        console=console,
        unpaid=Unpaid(after, record.metrics_path, console.note, worthless(recipe)),
        directory=directory,
        bound_gib=recipe.trainer.memory_gib,
    )
    loop = Loop(recipe, work, policy, tools, learning)
    stack.callback(loop.ahead.close)
    if found is not None:
        loop.resume(found[1])
    return loop


def worthless(recipe: Asking) -> set[str]:
    """The components of the reward that the recipe gives no weight."""
    if not isinstance(recipe, RLRecipe):
        return set()
    return {name for name, weight in recipe.reward if name in WEIGHED and not weight}


def _shared_out(stack: ExitStack) -> tuple[int, ...]:
    """Leave half of the cores to the sampler until `stack` is closed; says which."""
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    ours, theirs = halves()
    os.sched_setaffinity(0, ours)
    stack.callback(os.sched_setaffinity, 0, cores)
    torch.set_num_threads(min(threads, len(ours)))
    stack.callback(torch.set_num_threads, threads)
    return theirs


def judges(recipe: Asking, work: Task, directory: Path) -> Judges:
    """The verifiers of the run, where the recipe has them; their versions go on record."""
    names = names_of({**MEASURED, **work.verifiers}, [*work.kinds, *work.held_out])
    pool = open_judges(
        names,
        recipe.verifier_service,
        workers=recipe.verifier_workers,
        limit_s=recipe.verifier_limit_s,
    )
    write_versions(directory / "versions.json", pool.fingerprint(names))
    return pool
