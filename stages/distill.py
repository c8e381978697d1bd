"""Distillation: a smaller student learns from a teacher that has been through the whole recipe.

The paper (DeepSeek-R1, sections 2.4 and B.4): supervised fine-tuning of smaller models on the 800
thousand verified samples, 2 to 3 epochs, no reinforcement learning; the student ends far ahead of
the same model trained by RL alone. That is `method: sft`. Two others stand beside it, for a teacher
whose distributions can be read: `logits` learns the same rows, but from what the teacher finds
likely at each token, and `on_policy` has the student write and the teacher score what it wrote
(GKD, arXiv 2306.13649), so that the student is corrected where it itself goes astray.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data.mixture import Mixture, held_out
from data.sources import SOURCES
from pipeline.device import device_of
from pipeline.distill import logits
from pipeline.distill.on_policy import Imitation
from pipeline.distill.teacher import load_teacher
from pipeline.distill.teacher_pass import Keeping, pass_key, teacher_pass
from pipeline.distill_config import DistillRecipe
from pipeline.failures import RecipeError
from pipeline.questions import Sources, one_of_each
from pipeline.records import Rollout
from pipeline.scribe import Scribe
from pipeline.sft.lessons import Lessons
from pipeline.task import Task
from pipeline.ways import output_head
from stages import rl, sft
from stages.entry import Entry, enter
from verifiers.verdict import Verdict

CACHE = Path("outputs/cache/teacher")
VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier


def run(recipe: DistillRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train the student as `recipe` says, under `output`/`name`; returns the final checkpoint.

    With `resume` a run that stopped goes on from its last complete checkpoint, and one that ended
    is left as it is. Raises Stopped after Ctrl-C, with everything saved.
    """
    if recipe.method == "on_policy":
        taught = by_teacher(recipe)
        return rl.run(recipe, task, output, resume=resume, name=name, taught=taught)
    entry = enter(recipe, output, resume=resume, name=name)
    if isinstance(entry, Path):
        return entry
    made = {"data": recipe.data.source, "teacher": recipe.teacher, "method": recipe.method}
    aim = towards_teacher(entry, recipe) if recipe.teacher else None
    return sft.fine_tune(entry, recipe, sft.load(recipe.data), made, aim)


def towards_teacher(entry: Entry, recipe: DistillRecipe) -> sft.Aim:
    """What is learned and measured beside a teacher, which has read the rows before."""

    def aim(model: Any, tokenizer: Any, data: Lessons, say: Callable[[str], None]) -> sft.Objective:
        teacher = load_teacher(recipe.teacher, entry.start, tokenizer).to(device_of(model))
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


def task(recipe: DistillRecipe, sources: Sources = SOURCES) -> Task:
    """Questions of the recipe's sources; answers are judged for the record alone."""

    def reward(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        del rollout
        return rl.score(verdicts, "accuracy") + rl.score(verdicts, "format")

    return Task(
        problem=Mixture(recipe.problems, "rl", recipe.problem_seed, sources),
        held_out=held_out(recipe.evaluation.sources, recipe.evaluation.problems, sources),
        kinds=one_of_each(sources, recipe.problems, recipe.problem_seed),
        verifiers=VERIFIERS,
        reward=reward,
        best=2.0,
    )


def by_teacher(recipe: DistillRecipe) -> rl.Taught:
    """The teacher in the place of rewards."""

    def taught(policy: Any, scribe: Scribe, start: Path) -> Imitation:
        teacher = load_teacher(recipe.teacher, start, scribe.tokenizer)
        return Imitation(recipe, policy, teacher.to(device_of(policy)))

    return taught


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["distill", *sys.argv[1:]]))
