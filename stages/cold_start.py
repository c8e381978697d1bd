"""Cold start: the base learns long, readable chains of thought before any reinforcement.

The paper (DeepSeek-R1, sections 2.3.1 and B.3) collects thousands of chains from R1-Zero at
temperature 1, keeps those that are right and readable (repetition and mixed languages are dropped),
has DeepSeek-V3 rewrite the thinking in the question's language with a summary after it, and
fine-tunes DeepSeek-V3-Base on them.

Here the questions are of the RL split, and of one question's good answers the longest thinking is
kept: chains that work in steps and check themselves. The summary is laid out by rule unless
`rewrite.rewriter` names another model; what was rewritten is verified again.
"""

import sys
from pathlib import Path

from data import sft_rows
from pipeline.sft_config import ColdStartRecipe
from stages.collecting import data_of, made, require_teacher
from stages.entry import enter, starting_point
from stages.sft import fine_tune


def run(recipe: ColdStartRecipe, output: Path, *, resume: bool) -> Path:
    """Collect and train as `recipe` says, under `output`/cold_start; returns the checkpoint.

    With `resume` a run that stopped goes on: rounds of answers that are there are not sampled
    again, and training goes on from its last complete checkpoint. Raises Stopped after Ctrl-C.
    """
    require_teacher(recipe.teacher)
    entry = enter(recipe, output, resume=resume)
    if isinstance(entry, Path):
        return entry
    teacher = starting_point(recipe.teacher, entry.manifest)
    data = data_of(recipe, entry, teacher, print, rewrite=recipe.rewrite)
    return fine_tune(entry, recipe, sft_rows.read(data), made(data))


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["cold-start", *sys.argv[1:]]))
