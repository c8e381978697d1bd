"""Cold start: SFT of the base on readable chains of thought, before any further RL.

Paper (DeepSeek-R1, arXiv 2501.12948v2, B.3; training in B.4.2): thousands of chains are sampled
from R1-Zero at temperature 1; correct and readable ones stay, repetition and mixed languages are
dropped; DeepSeek-V3 rewrites the thinking in the question's language and adds a summary;
DeepSeek-V3-Base is fine-tuned on them.

Input: the base and an R1-Zero checkpoint (`teacher`). Output: data.jsonl with its card, and the
checkpoint that the reasoning RL starts from.

Differences: of a question's accepted responses the one with the longest thinking stays, since
it works in steps and checks itself. A rule writes the summary unless `rewrite.rewriter` names a
model; rewritten responses are verified again. `recipes/tiny/cold_start.yaml` samples 8 responses to
each of 640 questions, accepts at most 400 rows, and trains 3 epochs in batches of 32 at 1e-3;
`recipes/paper/cold_start.yaml` has the paper's numbers.
"""

import sys
from pathlib import Path

from veriloop.data import sft_rows
from veriloop.pipeline.config.sft import ColdStartRecipe
from veriloop.stages.sft import fine_tune
from veriloop.stages.stage_run import StageRun, run_stage
from veriloop.stages.teacher_data import collect_data, require_teacher


def run(recipe: ColdStartRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Collect data and train in `output`/`name` (default: cold_start); returns the checkpoint.

    A resumed run reads finished rounds of samples from disk and continues training from its last
    complete checkpoint. Raises Stopped after Ctrl-C.
    """
    require_teacher(recipe.teacher)

    def train(stage: StageRun) -> Path:
        outputs = collect_data(recipe, stage, rewrite=recipe.rewrite)
        return fine_tune(stage, recipe, sft_rows.read(Path(outputs["data"])), outputs)

    return run_stage(recipe, output, train, resume=resume, name=name)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("cold-start"))
