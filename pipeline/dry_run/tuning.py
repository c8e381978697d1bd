"""Plans of SFT, distillation, preference optimisation and reward models."""

from pathlib import Path

from veriloop.data.counts import counted
from veriloop.data.generated_rows import GENERATED
from veriloop.data.hub.files import FILES
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import (
    CollectPreferencesRecipe,
    LabelConfig,
    PreferenceDataConfig,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.config.sft import (
    ColdStartRecipe,
    RejectionRecipe,
    SFTDataConfig,
    SFTRecipe,
    SupervisedRecipe,
    WorkedDataConfig,
)
from veriloop.pipeline.dry_run.asked import shares
from veriloop.pipeline.dry_run.evaluations import Questions, both_ends, with_those_between
from veriloop.pipeline.dry_run.memory import Rows


def supervised_rows(recipe: SupervisedRecipe) -> Rows:
    """(quantity, derivation) rows."""
    rows = [("data", _data(recipe.data))] if isinstance(recipe, SFTRecipe) else _collected(recipe)
    rows += _optimizer(recipe)
    rows.append(("held out", counted(recipe.data.held_out, "row")))
    if recipe.examine:
        return [*rows, *_examined(recipe)]
    return rows if isinstance(recipe, SFTRecipe) else [*rows, *_kept_out(recipe)]


def _examined(recipe: SupervisedRecipe | DistillRecipe | PreferenceRecipe) -> Rows:
    questions = Questions.of(recipe.evaluation, recipe.sets)
    return [("evaluation", both_ends(recipe.evaluation, questions))]


def _kept_out(recipe: ColdStartRecipe | RejectionRecipe) -> Rows:
    """What a stage that evaluates nothing reads of the held-out problems."""
    if not recipe.filters.overlap:
        return []
    questions = Questions.of(recipe.evaluation, recipe.sets)
    return [("evaluation", f"none; rows that overlap with {questions} are left out")]


def _collected(recipe: ColdStartRecipe | RejectionRecipe) -> Rows:
    collect = recipe.collect
    samples = collect.questions * collect.per_prompt
    per_question = min(collect.keep, collect.per_prompt)
    kept = min(collect.questions * per_question, collect.rows or samples)
    rows: Rows = [
        ("teacher", recipe.teacher),
        ("sampled", f"{collect.questions:,} questions x {collect.per_prompt} answers = "
                    f"{samples:,}"),
        ("asked", shares(collect.problems)),
        ("kept", f"at most {kept:,}: up to {collect.keep} correct answers of each question"),
    ]  # fmt: skip
    if isinstance(recipe, RejectionRecipe) and recipe.general.reasoning:
        ratio = recipe.general.reasoning
        rows.append(("general", f"{round(kept / ratio):,} rows at most, one to {ratio:g} of "
                                f"reasoning, of {recipe.general.source}"))  # fmt: skip
    return rows


def distill_rows(recipe: DistillRecipe) -> Rows:
    """(quantity, derivation) rows."""
    rows = [
        ("method", recipe.method),
        ("teacher", recipe.teacher or "none: the answers of a file"),
    ]
    return rows + (_on_policy(recipe) if recipe.method == "on_policy" else _offline(recipe))


def _on_policy(recipe: DistillRecipe) -> Rows:
    rollout, minibatches = recipe.rollout, recipe.minibatches
    rollouts = rollout.prompts * rollout.per_prompt
    divergence = {
        "sampled": "reverse KL, estimated from the sampled token",
        "jsd": f"generalised JSD, beta {recipe.beta:g}, over the vocabulary",
    }.get(recipe.divergence, f"{recipe.divergence}, over the vocabulary")
    return [
        ("loss", divergence),
        ("rollouts a step", f"{rollout.prompts} prompts x {rollout.per_prompt} responses = "
                            f"{rollouts:,}"),
        ("asked", shares(recipe.problems)),
        ("optimizer steps", f"{minibatches} a step, of "
                            f"{counted(rollouts // minibatches, 'response')} each"),
        ("whole run", f"{counted(recipe.steps, 'step')} = {recipe.steps * rollouts:,} rollouts"),
        ("evaluation", with_those_between(recipe.evaluation, recipe.sets, recipe.steps)),
    ]  # fmt: skip


def _offline(recipe: DistillRecipe) -> Rows:
    rows = [("data", _data(recipe.data))]
    if recipe.method == "logits":
        size = 8 * recipe.top_k + 4  # an int32 id and a float32 log-prob each, and the rest's mass
        rows.append(
            (
                "teacher's scores",
                f"{recipe.top_k} ids per token and the mass of the rest: {size} bytes on disk",
            )
        )
    return rows + _optimizer(recipe) + (_examined(recipe) if recipe.examine else [])


def preference_rows(recipe: PreferenceRecipe | RewardModelRecipe) -> Rows:
    """(quantity, derivation) rows."""
    return _preference(recipe) if isinstance(recipe, PreferenceRecipe) else _reward(recipe)


def _preference(recipe: PreferenceRecipe) -> Rows:
    schedule, rollout, label = recipe.schedule, recipe.rollout, recipe.label
    sampled = (
        f"{rollout.prompts} prompts x {rollout.per_prompt} answers a round, at most "
        f"{rollout.prompts * label.pairs} pairs, judged by {_labeller(label)}"
    )
    unit = "answers" if recipe.loss.name == "kto" else "pairs"
    return [
        ("loss", f"{recipe.loss.name}, {_reference(recipe)}"),
        (
            "schedule",
            f"{schedule.name}: {counted(schedule.rounds, 'round')} x "
            f"{counted(schedule.epochs, 'epoch')}",
        ),
        ("data", sampled if schedule.samples else _preference_data(recipe.data)),
        *([("asked", shares(recipe.problems))] if schedule.samples else []),
        ("optimizer steps", f"of {recipe.batch} {unit} each"),
        ("measured on", counted(recipe.data.held_out, "held-out row")),
        *(_examined(recipe) if recipe.problems else []),
    ]


def _labeller(label: LabelConfig) -> str:
    named = {"verifiers": "the verifiers", "judge": f"a judge in {label.queries} queries a pair"}
    return named.get(label.by, label.reward_model)


def collected_pairs(recipe: CollectPreferencesRecipe) -> Rows:
    """(quantity, derivation) rows."""
    label, answers = recipe.label, recipe.rollout.per_prompt
    rows = [
        ("sampled", f"{recipe.questions:,} questions x {answers} answers = "
                    f"{recipe.questions * answers:,}"),
        ("asked", shares(recipe.problems)),
        ("ranked by", _labeller(label)),
        ("pairs", f"at most {recipe.questions * min(label.pairs, answers // 2):,}, whose scores "
                  f"differ by more than {label.gap:g}"),
    ]  # fmt: skip
    if label.by == "judge":
        calls = recipe.questions * (answers * (answers - 1) // 2) * label.queries
        rows.append(("queries", f"{calls:,} to the judge"))
    return rows


def _reference(recipe: PreferenceRecipe) -> str:
    if not recipe.loss.has_reference:
        return "without a reference"
    return {
        "offline": "the start is the reference, scored once and stored",
        "online": "the start is the reference, held in memory",
        "curriculum": "each round begins with a new reference",
        "iterative": "each round begins with a new reference",
    }[recipe.schedule.name]


def _reward(recipe: RewardModelRecipe) -> Rows:
    anchors = recipe.anchors or "the best held-out answers"
    zero = f"mean reward of {anchors}"
    if recipe.loss == "pointwise":
        zero = "none: a reward is the log-odds of a good answer"
    return [
        ("loss", recipe.loss),
        ("data", _preference_data(recipe.data)),
        (
            "optimizer steps",
            f"of {counted(recipe.batch, 'row')} each, {counted(recipe.epochs, 'epoch')}",
        ),
        ("measured on", counted(recipe.data.held_out, "held-out row")),
        ("zero point", zero),
    ]


def _data(data: SFTDataConfig) -> str:
    if isinstance(data, WorkedDataConfig) and data.problems:
        link = " of" if len(data.problems) == 1 else ":"
        return f"{counted(data.rows, 'worked solution')}{link} {shares(data.problems)}"
    rows = counted(data.rows, "row") if data.rows else "every row"
    is_file_name = Path(data.source).suffix in FILES  # else a file that a stage will name
    missing = is_file_name and data.source not in GENERATED and not Path(data.source).is_file()
    return f"{rows} of {data.source}{' (not found)' if missing else ''}"


def _preference_data(data: PreferenceDataConfig) -> str:
    rows = counted(data.rows, "row") if data.rows else "every row but the held-out ones"
    return f"{rows} of {data.source}"


def _optimizer(recipe: SupervisedRecipe | DistillRecipe) -> Rows:
    return [
        (
            "optimizer steps",
            f"of {counted(recipe.batch, 'row')} each, {counted(recipe.epochs, 'epoch')}",
        ),
        ("learning rate", _learning_rate(recipe.optimizer)),
    ]


def _learning_rate(optimizer: OptimizerConfig) -> str:
    peak = optimizer.learning_rate
    if optimizer.schedule == "cosine":
        return f"{peak:g}, on a cosine to {peak * optimizer.floor:g}"
    return f"{peak:g}"
