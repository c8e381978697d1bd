"""Distillation: a smaller student learns from a teacher that has been through the whole recipe.

The paper (DeepSeek-R1, sections 2.4 and B.4): supervised fine-tuning of smaller models on the 800
thousand verified samples, 2 to 3 epochs, no reinforcement learning; the student ends far ahead of
the same model trained by RL alone. That is `method: sft`. Two others stand beside it, for a teacher
whose distributions can be read: `logits` learns the same rows, but from what the teacher finds
likely at each token, and `on_policy` has the student write and the teacher score what it wrote
(GKD, arXiv 2306.13649), so that the student is corrected where it itself goes astray.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from data import arithmetic
from pipeline import checkpoint
from pipeline.console import StageConsole
from pipeline.distill import logits
from pipeline.distill.on_policy import Imitation
from pipeline.distill.teacher import load_teacher
from pipeline.distill.teacher_pass import Keeping, pass_key, teacher_pass
from pipeline.distill_config import DistillRecipe
from pipeline.failures import RecipeError, StageError
from pipeline.grade import names_of, open_judges
from pipeline.loop import Loop, Tools
from pipeline.policy import load_policy, load_tokenizer, output_head
from pipeline.record import StageRecord
from pipeline.records import Rollout
from pipeline.run_json import write_versions
from pipeline.sampling.choose import open_sampler
from pipeline.scribe import Scribe
from pipeline.sft.lessons import Lessons
from pipeline.task import Task
from stages import sft
from stages.entry import Entry, enter
from verifiers.verdict import Verdict

CACHE = Path("outputs/cache/teacher")
VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier
KEY_METRICS = (
    *("kl_to_teacher", "loss", "reward", "completions/mean_length", "entropy", "grad_norm"),
)


def run(recipe: DistillRecipe, output: Path, *, resume: bool) -> Path:
    """Train the student as `recipe` says, under `output`/distill; returns the final checkpoint.

    With `resume` a run that stopped goes on from its last complete checkpoint, and one that ended
    is left as it is. Raises Stopped after Ctrl-C, with everything saved.
    """
    entry = enter(recipe, output, resume=resume)
    if isinstance(entry, Path):
        return entry
    if recipe.method == "on_policy":
        return on_policy(entry, recipe)
    made = {"data": recipe.data.source, "teacher": recipe.teacher, "method": recipe.method}
    aim = towards_teacher(entry, recipe) if recipe.teacher else None
    return sft.fine_tune(entry, recipe, sft.load(recipe.data), made, aim)


def towards_teacher(entry: Entry, recipe: DistillRecipe) -> sft.Aim:
    """What is learned and measured beside a teacher, which has read the rows before."""

    def aim(model: Any, tokenizer: Any, data: Lessons, say: Callable[[str], None]) -> sft.Objective:
        teacher = load_teacher(recipe.teacher, entry.start, tokenizer)
        ids, by_logits = len(output_head(model)[0]), recipe.method == "logits"
        if recipe.top_k >= ids:
            raise RecipeError(f"top_k={recipe.top_k}: the student has {ids} ids; at most {ids - 1}")
        trainer, temperature = recipe.trainer, recipe.temperature
        keeping = Keeping(k=recipe.top_k, ids=ids, temperature=temperature, trainer=trainer)
        read = [*(data.train if by_logits else ()), *data.held_out]
        folder = CACHE / pass_key(teacher, read, keeping)
        kept = dict(zip(read, teacher_pass(teacher, read, keeping, folder, say), strict=True))
        answers = sft.answers(recipe, model, data)
        return sft.Objective(
            gradient=(
                (lambda batch: logits.gradient(model, batch, kept, trainer, temperature))
                if by_logits
                else answers.gradient
            ),
            measured=lambda: {
                **answers.measured(),
                **logits.measure(model, data.held_out, kept, trainer, temperature),
            },
        )

    return aim


def on_policy(entry: Entry, recipe: DistillRecipe) -> Path:
    """The loop of reinforcement learning, with the teacher in the place of rewards."""
    with ExitStack() as stack:
        loop = opened(stack, recipe, entry)
        sampler = loop.tools.sampler.name
        try:
            loop.run(entry.seconds)
        except StageError as failure:
            told = {"failure": str(failure)}
            entry.manifest.end_stage(
                "distill", entry.seconds(), sampler, {}, {}, told, status="failed"
            )
            raise
    rows = [json.loads(line) for line in loop.evaluations.read_text().splitlines()]
    final = checkpoint.latest(entry.directory)
    assert final is not None, "the loop saves a checkpoint after its last step"
    made = {
        "checkpoint": str(final),
        "metrics": str(entry.directory / "metrics.jsonl"),
        "teacher": recipe.teacher,
        "method": recipe.method,
    }
    entry.manifest.end_stage("distill", entry.seconds(), sampler, rows[0], rows[-1], made)
    return final


def task(recipe: DistillRecipe) -> Task:
    """Questions of the RL split. The answers are judged for the record; no reward is learned."""

    def reward(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        del rollout
        return sum(verdict.score or 0.0 for verdict in verdicts.values())

    return Task(
        problem=lambda n: arithmetic.problem("rl", recipe.problem_seed, n),
        held_out=arithmetic.distinct("test", 0, recipe.evaluation.problems),
        verifiers=VERIFIERS,
        reward=reward,
        best=2.0,
    )


def opened(stack: ExitStack, recipe: DistillRecipe, entry: Entry) -> Loop:
    """The loop with all it works with, closed when `stack` is; resumed when the entry found a
    checkpoint."""
    directory, start, work = entry.directory, entry.start, task(recipe)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    policy, tokenizer = load_policy(start), load_tokenizer(start)
    teacher = load_teacher(recipe.teacher, start, tokenizer)
    if entry.found is not None:
        policy.load_state_dict(load_policy(entry.found[0]).state_dict())
    done = 0 if entry.found is None else entry.found[1]["step"]
    console = StageConsole("distill", recipe.steps, done=done, key_metrics=KEY_METRICS)
    stack.enter_context(console)
    names = names_of(VERIFIERS, work.held_out[0])
    pool = open_judges(
        names,
        recipe.verifier_service,
        workers=recipe.verifier_workers,
        limit_s=recipe.verifier_limit_s,
    )
    write_versions(directory / "versions.json", pool.fingerprint(names))
    rollout = recipe.rollout
    sampler = open_sampler(
        recipe.sampler,
        str(start),
        max_length=rollout.max_prompt + rollout.max_tokens,
        say=console.note,
    )
    stack.callback(sampler.close)
    tools = Tools(
        scribe=Scribe(tokenizer, policy.generation_config),
        sampler=sampler,
        pool=stack.enter_context(pool),
        record=stack.enter_context(StageRecord(directory, tensorboard=recipe.tensorboard)),
        console=console,
        directory=directory,
    )
    loop = Loop(recipe, work, policy, tools, Imitation(recipe, policy, teacher))
    if entry.found is not None:
        loop.resume(entry.found[1])
    return loop


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["distill", *sys.argv[1:]]))
