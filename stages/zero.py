"""R1-Zero: reinforcement learning straight on a base model, with no supervised step.

The paper (DeepSeek-R1, section 2): "a straightforward template", GRPO, and a rule-based reward
of two parts with equal weight, accuracy and format; no neural reward model. 32 questions a step,
16 responses to each at temperature 1, 8,192 responses split into 16 mini-batches, learning rate
3e-6, KL coefficient 0.001, the reference replaced by the latest policy every 400 steps.

Where `recipes/tiny/zero.yaml` differs: a base model of half a million parameters learns chains of
small sums, so 512 responses are split into 4 mini-batches and the learning rate is 100 times as
high. `recipes/paper/zero.yaml` has the paper's own numbers.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml

from data import arithmetic
from pipeline import checkpoint
from pipeline.config import RewardConfig, ZeroRecipe
from pipeline.console import StageConsole
from pipeline.control import CONTROLS
from pipeline.failures import StageError
from pipeline.grade import Judges, names_of, open_judges
from pipeline.learning import Learning
from pipeline.loop import Loop, Tools
from pipeline.losses.overlong import soft_overlong_penalty
from pipeline.policy import load_policy, load_tokenizer
from pipeline.record import StageRecord
from pipeline.records import Graded, Rollout
from pipeline.run_json import write_versions
from pipeline.sampling.choose import open_sampler
from pipeline.scribe import Scribe
from pipeline.task import Task
from stages.entry import enter
from verifiers import unit_chain
from verifiers.verdict import Verdict

VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier


def reward(verdicts: Mapping[str, Verdict], weights: RewardConfig) -> float:
    """Reward_rule = Reward_accuracy + Reward_format, and nothing else."""
    accuracy, layout = verdicts["accuracy"].score, verdicts["format"].score
    assert accuracy is not None and layout is not None, "a failed verifier has no reward"
    return weights.accuracy * accuracy + weights.format * layout


def task(recipe: ZeroRecipe) -> Task:
    """Questions of the RL split, judged by rules; held-out ones to see what was learned."""
    weights, longest = recipe.reward, recipe.rollout.max_tokens

    def value(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        earned = reward(verdicts, weights)
        if not weights.overlong:
            return earned
        length = torch.tensor(len(rollout.response_ids))
        penalty = soft_overlong_penalty(length, limit=longest, cache=weights.overlong)
        return earned + penalty.item()

    return Task(
        problem=lambda n: arithmetic.problem("rl", recipe.problem_seed, n),
        held_out=arithmetic.distinct("test", 0, recipe.evaluation.problems),
        verifiers=VERIFIERS,
        reward=value,
        best=weights.accuracy + weights.format,
        step_scores=lambda text: [(one.end, one.score) for one in unit_chain.steps(text)],
        regrade=lambda graded, random: regraded(graded, weights, random),
    )


def regraded(graded: list[Graded], weights: RewardConfig, random: Random) -> list[Graded]:
    """As graded, unless the recipe is a control experiment."""
    return CONTROLS[weights.control](graded, random)


def run(recipe: ZeroRecipe, output: Path, *, resume: bool) -> Path:
    """Train as `recipe` says, under `output`/zero; returns the final checkpoint.

    With `resume` a run that stopped goes on from its last complete checkpoint, and one that ended
    is left as it is. Raises Stopped after Ctrl-C, with everything saved.
    """
    entry = enter(recipe, output, resume=resume)
    if isinstance(entry, Path):
        return entry
    directory = entry.directory
    with ExitStack() as stack:
        loop = opened(stack, recipe, directory, entry.start, entry.found)
        sampler = loop.tools.sampler.name
        try:
            loop.run(entry.seconds)
        except StageError as failure:
            told = {"failure": str(failure)}
            entry.manifest.end_stage(
                "zero", entry.seconds(), sampler, {}, {}, told, status="failed"
            )
            raise
    rows = [json.loads(line) for line in loop.evaluations.read_text().splitlines()]
    final = checkpoint.latest(directory)
    assert final is not None, "the loop saves a checkpoint after its last step"
    made = {"checkpoint": str(final), "metrics": str(directory / "metrics.jsonl")}
    entry.manifest.end_stage("zero", entry.seconds(), sampler, rows[0], rows[-1], made)
    return final


def opened(
    stack: ExitStack,
    recipe: ZeroRecipe,
    directory: Path,
    start: Path,
    found: tuple[Path, dict[str, Any]] | None,
) -> Loop:
    """The loop with all it works with, closed when `stack` is; resumed when `found`."""
    latest = found[0] if found is not None else start
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    work = task(recipe)
    policy = load_policy(start)
    if found is not None:
        policy.load_state_dict(load_policy(latest).state_dict())
    done = 0 if found is None else found[1]["step"]
    console = stack.enter_context(StageConsole("zero", recipe.steps, done=done))
    pool = stack.enter_context(judges(recipe, work, directory))
    rollout = recipe.rollout
    sampler = open_sampler(
        recipe.sampler,
        str(start),
        max_length=rollout.max_prompt + rollout.max_tokens,
        say=console.note,
    )
    stack.callback(sampler.close)
    tools = Tools(
        scribe=Scribe(load_tokenizer(start), policy.generation_config),
        sampler=sampler,
        pool=pool,
        record=stack.enter_context(StageRecord(directory, tensorboard=recipe.tensorboard)),
        console=console,
        directory=directory,
    )
    learning = Learning(recipe, policy, tools.scribe, work.step_scores)
    loop = Loop(recipe, work, policy, tools, learning)
    if found is not None:
        loop.resume(found[1])
    return loop


def judges(recipe: ZeroRecipe, work: Task, directory: Path) -> Judges:
    """The verifiers of the run, where the recipe has them; their versions go on record."""
    names = names_of(VERIFIERS, work.held_out[0])
    pool = open_judges(
        names,
        recipe.verifier_service,
        workers=recipe.verifier_workers,
        limit_s=recipe.verifier_limit_s,
    )
    write_versions(directory / "versions.json", pool.fingerprint(names))
    return pool


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["zero", *sys.argv[1:]]))
