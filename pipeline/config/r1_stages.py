"""The recipe of each stage of a whole run: its file, overrides and inputs from earlier stages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veriloop.pipeline.config.cluster import cluster_of
from veriloop.pipeline.config.datasets import replaced
from veriloop.pipeline.config.load import (
    field_path,
    flat,
    read_values,
    validate,
    with_flags,
    with_plugins,
)
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.r1 import R1Recipe, R1Stage
from veriloop.pipeline.config.registry import MAKES, STAGES, StageRecipe
from veriloop.pipeline.config.sections import Ranked
from veriloop.pipeline.errors import RecipeError, did_you_mean

EVERY = "*"  # as a stage's name: all stages
Settings = Mapping[str, Mapping[str, Any]]  # stage -> dotted key -> value


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stage of a run. In `recipe`, inputs from earlier stages are written as STAGE.OUTPUT."""

    stage: R1Stage
    recipe: StageRecipe
    values: Mapping[str, Any]  # of the recipe, before validation

    @property
    def name(self) -> str:
        return self.stage.name

    def with_taken(self, outputs: Settings) -> StageRecipe:
        """The recipe with its inputs replaced by `outputs[stage][output]`."""
        paths = {key: outputs[stage][name] for key, (stage, name) in self.stage.taken.items()}
        return _for_stage(with_flags(self.values, paths), f"stage {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSelection:
    """The stages of a run to consider, by default all."""

    only: str = ""  # this one alone
    since: str = ""  # this one and those after it
    over: Settings = field(default_factory=dict)  # settings that override the recipe's

    def of(self, everything: Sequence[Step]) -> list[Step]:
        """The selected steps. Raises RecipeError for an unknown stage, and for two selections."""
        if self.only and self.since:
            raise RecipeError(
                f"--only {self.only} with --from {self.since}: give one of them; --from runs its "
                "stage and all later ones"
            )
        if not self.forces:
            return list(everything)
        flag, name = ("--only", self.only) if self.only else ("--from", self.since)
        names = [step.name for step in everything]
        if name not in names:
            raise RecipeError(f"{flag}: no stage {name!r}.{_known(name, names)}")
        first = names.index(name)
        return list(everything[first : first + 1 if self.only else None])

    @property
    def forces(self) -> bool:
        """Whether current stages run again too, because they were selected by name."""
        return bool(self.only or self.since)


def steps(recipe: R1Recipe, over: Settings | None = None) -> list[Step]:
    """Every stage's validated recipe. `over` overrides the settings of single stages, and under
    EVERY those of all stages.

    Raises RecipeError naming the stage: for a missing file, an unknown key or value, an output
    that the source stage does not produce, a start that no stage of the run produces, and another
    number of ranks than 1 and the run's.
    """
    over = over or {}
    names = [stage.name for stage in recipe.stages]
    for name in over:
        if name not in (*names, EVERY):
            raise RecipeError(f"no stage {name!r} in {recipe.name}.{_known(name, names)}")
    sequence: list[Step] = []
    for stage in recipe.stages:
        overrides = {**over.get(EVERY, {}), **over.get(stage.name, {})}
        sequence.append(_step(stage, overrides, recipe))
        _check_taken(sequence[-1], {step.name: step.recipe.stage for step in sequence})
    device_of_ranks(sequence, recipe)
    return sequence


def device_of_ranks(sequence: Sequence[Step], recipe: R1Recipe) -> str:
    """The trainer's device of the stages that several ranks train; auto without one.

    Raises RecipeError for stages whose ranks are not the run's, and for several devices.
    """
    devices: dict[str, str] = {}  # and the first stage that has it
    for step in sequence:
        ranks, wanted = cluster_of(step.recipe).ranks, recipe.cluster.ranks
        if ranks not in (1, wanted):
            raise RecipeError(
                f"stage {step.name}: cluster.trainer asks for {ranks} ranks, and the run has "
                f"{wanted}: set cluster.trainer of {recipe.name}, or cluster.trainer.ranks and "
                "nodes of the stage to 1"
            )
        if ranks > 1 and isinstance(step.recipe, Ranked):
            devices.setdefault(step.recipe.trainer.device, step.name)
    if len(devices) > 1:
        listed = ", ".join(f"{device} of {name}" for device, name in devices.items())
        raise RecipeError(f"trainer.device: the ranks of a run need one device, not {listed}")
    return next(iter(devices), "auto")


def _step(stage: R1Stage, over: Mapping[str, Any], run: R1Recipe) -> Step:
    try:
        values = read_values(stage.recipe)
    except RecipeError as mistake:
        raise RecipeError(f"stage {stage.name}: {mistake}") from mistake
    kind = STAGES.get(str(values.get("stage")))
    over = {field_path(kind, key): value for key, value in over.items()}
    overrides = {**stage.set, **replaced(over), **over}
    overrides = {**replaced(overrides), **overrides}
    for key in stage.take:
        if key in overrides:
            raise RecipeError(f"stage {stage.name}: {key} is both set and taken; choose one")
    where = f"stage {stage.name} ({stage.recipe})"
    try:
        values = with_flags(values, _ranks(values, run) | overrides | stage.take)
    except RecipeError as mistake:
        raise RecipeError(f"stage {stage.name}: {mistake}") from mistake
    values = with_plugins(values, run.plugins)
    return Step(stage=stage, recipe=_for_stage(values, where), values=values)


def _ranks(values: Mapping[str, Any], run: R1Recipe) -> dict[str, Any]:
    """What differs from the defaults in the run's section `cluster`, for a stage that several ranks
    can train, by dotted key; of a run of several ranks their number too."""
    kind = STAGES.get(str(values.get("stage")))
    if kind is None or not issubclass(kind, Ranked):
        return {}
    changed = dict(flat(run.cluster.model_dump(exclude_defaults=True), "cluster"))
    if run.cluster.ranks > 1:
        trainer = run.cluster.trainer
        changed |= {"cluster.trainer.nodes": trainer.nodes, "cluster.trainer.ranks": trainer.ranks}
    return changed


def _for_stage(values: Mapping[str, Any], where: str) -> StageRecipe:
    recipe = validate(values, where)
    if isinstance(recipe, R1Recipe):
        raise RecipeError(f"{where} is itself a list of stages; name its stages one by one")
    return recipe


def _check_taken(step: Step, kinds: Mapping[str, str]) -> None:
    for key, (source, output) in step.stage.taken.items():
        outputs = MAKES[kinds[source]]
        if output not in outputs:
            raise RecipeError(
                f"stage {step.name}: take {key}: {source} has no output {output!r}."
                f"{_known(output, outputs)}"
            )
    recipe = step.recipe
    if isinstance(recipe, BaseRecipe) or "start" in step.stage.take:
        return
    if recipe.start.endswith((".yaml", ".yml")):
        raise RecipeError(
            f"stage {step.name}: start: {recipe.start} would train a base model outside the run; "
            "take the start from an earlier stage, as in `take: {start: base.checkpoint}`, or set "
            "it to a checkpoint folder"
        )


def _known(name: str, known: Sequence[str]) -> str:
    return f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}"


def longest(sequence: Sequence[Step]) -> int:
    """Most prompt and response tokens of a rollout of any stage; 0 without rollouts."""
    rollouts = [getattr(step.recipe, "rollout", None) for step in sequence]
    return max((r.max_prompt + r.max_tokens for r in rollouts if r is not None), default=0)
