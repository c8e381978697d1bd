"""Preference optimisation: DPO and its kin, on pairs from a file or from the model's own answers.

DeepSeek-R1's second RL stage learns preferences through a reward model (`stages/reward_model.py`)
inside GRPO; the losses here learn them from pairs directly. What the schedules mean is told by
`ScheduleConfig`, what the losses compute by `pipeline/losses/preference.py`.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from data import arithmetic
from data.mixture import held_out
from pipeline import compute
from pipeline.console import StageConsole
from pipeline.grade import names_of, open_judges
from pipeline.policy import eos_ids, load_policy, load_tokenizer, saved_weights
from pipeline.preference.labels import VERIFIERS, Labeller, by_rewards, by_verifiers
from pipeline.preference.loop import KEY_METRICS, PreferenceLoop, Tools
from pipeline.preference.questions import Asking, Questions
from pipeline.preference.rounds import Prepared, prepare
from pipeline.preference.scalar_head import ScalarHead
from pipeline.preference_config import PreferenceRecipe
from pipeline.questions import sources_of
from pipeline.run_json import write_versions
from pipeline.sampling.choose import open_sampler
from pipeline.scribe import Scribe
from pipeline.trackers.choose import open_record
from stages.entry import enter


def run(recipe: PreferenceRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train as `recipe` says, under `output`/`name` (preference); returns the final checkpoint.
    Resumed as `enter` has it; raises Stopped after Ctrl-C, with everything saved.
    """
    entry = enter(recipe, output, resume=resume, name=name)
    if isinstance(entry, Path):
        return entry
    with ExitStack() as stack:
        loop = opened(stack, recipe, entry.directory, entry.start, entry.found)
        asked = loop.tools.questions
        sampler = None if asked is None else asked.asking.sampler.name
        with entry.failures_noted(sampler):
            told = loop.run(entry.seconds)
    made = entry.made()
    entry.end(sampler, told["before"], told["after"], made | loop.prepared.facts)
    return Path(made["checkpoint"])


def opened(
    stack: ExitStack,
    recipe: PreferenceRecipe,
    directory: Path,
    start: Path,
    found: tuple[Path, dict[str, Any]] | None,
) -> PreferenceLoop:
    """The loop with all it works with, closed when `stack` is; resumed when `found`."""
    policy = compute.prepare(load_policy(start), recipe.trainer)
    tokenizer = load_tokenizer(start)
    done = 0 if found is None else found[1]["done"]
    ends = eos_ids(policy.generation_config, tokenizer)
    prepared = prepare(recipe.data, recipe.loss, recipe.schedule, tokenizer, ends, print)
    console = StageConsole(
        "preference", steps(recipe, prepared), done=done, key_metrics=KEY_METRICS
    )
    stack.enter_context(console)
    questions = None
    if recipe.problems is not None:
        questions = Questions(recipe, policy, asking(stack, recipe, directory, start, console))
    tools = Tools(
        tokenizer=tokenizer,
        record=stack.enter_context(open_record(recipe, directory)),
        console=console,
        directory=directory,
        questions=questions,
    )
    loop = PreferenceLoop(recipe, prepared, policy, tools)
    if found is not None:
        loop.resume(found[1], saved_weights(policy, found[0]))
    return loop


def steps(recipe: PreferenceRecipe, prepared: Prepared) -> int:
    """Optimizer steps; of a run that samples, as many as its rounds can have."""
    schedule, sizes = recipe.schedule, [len(examples) for examples in prepared.rounds]
    if schedule.samples:
        pairs = recipe.rollout.prompts * recipe.label.pairs
        sizes = [pairs * (2 if recipe.loss.name == "kto" else 1)] * schedule.rounds
    return schedule.epochs * sum(-(-size // recipe.batch) for size in sizes)


def asking(
    stack: ExitStack,
    recipe: PreferenceRecipe,
    directory: Path,
    start: Path,
    console: StageConsole,
) -> Asking:
    """The sampler, the verifiers and the labeller of a run that has problems."""
    sources, _ = sources_of(recipe.evaluation.sources, recipe.sets)
    measured = held_out(recipe.evaluation.sources, recipe.evaluation.problems, sources)
    names = names_of(VERIFIERS, [*measured, arithmetic.problem("rl", recipe.problem_seed, 0)])
    pool = open_judges(
        names,
        recipe.verifier_service,
        workers=recipe.verifier_workers,
        limit_s=recipe.verifier_limit_s,
    )
    stack.enter_context(pool)
    write_versions(directory / "versions.json", pool.fingerprint(names))
    rollout = recipe.rollout
    sampler = open_sampler(
        recipe.sampler,
        str(start),
        max_length=rollout.max_prompt + rollout.max_tokens,
        say=console.note,
    )
    stack.callback(sampler.close)
    tokenizer = load_tokenizer(start)
    return Asking(
        problem=lambda n: arithmetic.problem("rl", recipe.problem_seed, n),
        held_out=measured,
        scribe=Scribe(
            tokenizer, load_policy(start).generation_config, rollout.template, rollout.system
        ),
        sampler=sampler,
        pool=pool,
        label=labeller(recipe, pool, tokenizer),
    )


def labeller(recipe: PreferenceRecipe, pool: Any, tokenizer: Any) -> Labeller:
    """Who says which sampled answer is better."""
    if recipe.label.by == "verifiers":
        return by_verifiers(recipe.label, pool)
    head = ScalarHead(Path(recipe.label.reward_model))
    head.require_tokenizer(tokenizer)
    return by_rewards(lambda answers: head.rewards(answers, recipe.trainer))


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["preference", *sys.argv[1:]]))
