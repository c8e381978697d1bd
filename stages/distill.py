"""Distillation: a smaller student learns from the final model of the recipe.

Paper (DeepSeek-R1, arXiv 2501.12948v2, B.4.3 and F): supervised fine-tuning of smaller models on
the 800 thousand rows of the second SFT, 2 to 3 epochs, batch 64, 32,768 tokens, a cosine to a
tenth of 1e-4 (1.5 B) to 2e-5 (70 B); no RL. The student far exceeds the same model trained by RL
alone.

Input: a student, and rows or a teacher. Output: the student's checkpoint. `method` chooses:
- `sft`: the paper's, on the rows that rejection sampling wrote.
- `logits`: the same rows, with the teacher's top-k distribution as the target at each token.
- `on_policy`: the student samples, the teacher scores its tokens (GKD, arXiv 2306.13649).

`recipes/tiny/distill.yaml` trains a student of 154 k parameters for 3 epochs in batches of 32 at
2e-3. `logits` and `on_policy` need a teacher with the student's tokenizer.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from veriloop.data.sft_ids import EncodedExample
from veriloop.data.sources import SOURCES, Mixture
from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.lora import LoraConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.distill import logit_step as logits
from veriloop.pipeline.distill.on_policy import OnPolicyDistiller
from veriloop.pipeline.distill.teacher_pass import TopKOptions, pass_key, teacher_pass
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.policy import load_policy, load_tokenizer
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.probe import output_head
from veriloop.pipeline.model.sharded import current_ranks
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import Task, score_of
from veriloop.pipeline.rollouts.sources import Sources, held_out_problems, one_of_each
from veriloop.pipeline.sft.dataset import SFTDataset
from veriloop.pipeline.training.epoch_loop import Numbers
from veriloop.stages import rl, sft
from veriloop.stages.stage_run import StageRun, run_stage

CACHE = Path("outputs/cache/teacher")
VERIFIERS = {"accuracy": None, "format": "think_format"}  # None: the problem's own verifier


def run(recipe: DistillRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Train the student in `output`/`name` (default: distill); returns the final checkpoint.

    Resumes as `run_stage` does. Raises Stopped after Ctrl-C, with everything saved.
    """
    if recipe.method == "on_policy":
        return rl.run(
            recipe,
            task,
            output,
            resume=resume,
            name=name,
            build_learner=partial(build_distiller, recipe),
        )

    rows = sft.load_rows(recipe.data)

    def train(stage: StageRun) -> Path:
        outputs = {"data": recipe.data.source, "teacher": recipe.teacher, "method": recipe.method}
        build_objective = partial(_teacher_objective, stage, recipe) if recipe.teacher else None
        return sft.fine_tune(stage, recipe, rows, outputs, build_objective)

    return run_stage(recipe, output, train, resume=resume, name=name)


def _teacher_objective(
    stage: StageRun,
    recipe: DistillRecipe,
    model: Any,
    tokenizer: Any,
    dataset: SFTDataset,
    say: Callable[[str], None],
) -> sft.SFTObjective:
    """The loss of `method`, and the KL to the teacher on held-out rows, from one teacher pass."""
    teacher = load_teacher(recipe.teacher, stage.start, tokenizer, recipe.trainer)
    teacher.to(device_of(model))
    ids, by_logits = len(output_head(model)[0]), recipe.method == "logits"
    if recipe.top_k >= ids:
        raise RecipeError(f"top_k={recipe.top_k}: the student has {ids} ids; at most {ids - 1}")
    trainer, temperature = recipe.trainer, recipe.temperature
    options = TopKOptions(k=recipe.top_k, ids=ids, temperature=temperature, trainer=trainer)
    examples = [*(dataset.train if by_logits else ()), *dataset.held_out]
    folder = CACHE / pass_key(teacher, examples, options)
    top_k = teacher_pass(teacher, examples, options, folder, say)
    targets = dict(zip(examples, top_k, strict=True))
    ranks = current_ranks()

    def together(function: Callable[..., Numbers], examples: Sequence[EncodedExample]) -> Numbers:
        own = {example: targets[example] for example in examples}
        return ranks.together(function, model, examples, own, trainer, temperature)

    cross_entropy = sft.cross_entropy_objective(recipe, model, dataset)
    return sft.SFTObjective(
        gradient=(partial(together, logits.gradient) if by_logits else cross_entropy.gradient),
        measure=lambda: {
            **cross_entropy.measure(),
            **together(logits.measure, dataset.held_out),
        },
    )


def load_teacher(
    folder: str, student: Path, tokenizer: Any, trainer: TrainerConfig, *, empty: bool = False
) -> Any:
    """The checkpoint in `folder`, frozen, which computes as `trainer` says. `tokenizer` is that of
    the folder `student`; `empty` is that of `load_policy`.

    Raises RecipeError if `folder` holds no checkpoint, or one with another vocabulary.
    """
    path = find_checkpoint(folder, "teacher")
    vocabulary, expected = load_tokenizer(path).get_vocab(), tokenizer.get_vocab()
    if vocabulary != expected:
        differences = vocabulary.items() ^ expected.items()
        token = min(differences, key=lambda item: (item[1], item[0]))[0]
        raise RecipeError(
            f"teacher {folder} and student {student} have different tokenizers ({len(vocabulary)} "
            f"and {len(expected)} tokens; {token!r} is id {vocabulary.get(token)} and "
            f"{expected.get(token)}): the teacher cannot score the student's ids. Use method: sft, "
            "which needs only text, or a teacher with the student's tokenizer"
        )
    teacher = load_policy(path, empty=empty).eval().requires_grad_(False)
    frozen = {"lora": LoraConfig(), "gradient_checkpointing": False}
    return prepare(teacher, trainer.model_copy(update=frozen))


def task(recipe: DistillRecipe, sources: Sources = SOURCES) -> Task:
    """The recipe's problems; rewards are recorded and never trained on."""
    return Task(
        problem=Mixture(recipe.problems, "rl", recipe.problem_seed, sources),
        held_out=held_out_problems(recipe.evaluation, sources),
        kinds=one_of_each(sources, recipe.problems, recipe.problem_seed),
        verifiers=VERIFIERS,
        reward=lambda _, verdicts: score_of(verdicts, "accuracy") + score_of(verdicts, "format"),
    )


def build_distiller(
    recipe: DistillRecipe, policy: Any, generator: RolloutGenerator, start: Path
) -> OnPolicyDistiller:
    """The learner of `method: on_policy`, on this command's ranks."""
    ranks = current_ranks()
    teacher = load_teacher(
        recipe.teacher, start, generator.tokenizer, recipe.trainer, empty=ranks.count > 1
    )
    if ranks.count == 1:
        teacher.to(device_of(policy))
    return OnPolicyDistiller(recipe, policy, teacher, ranks)


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("distill"))
