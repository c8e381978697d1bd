"""From the list of a whole run to the recipe of each stage: files, overrides, earlier outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pipeline.config import BaseRecipe
from pipeline.failures import RecipeError
from pipeline.r1_config import R1Recipe, R1Stage
from pipeline.recipe_kinds import MAKES, StageRecipe
from pipeline.recipes import checked, with_flags, written

EVERY = "*"  # in the place of a stage's name: all of them
Settings = Mapping[str, Mapping[str, Any]]  # by stage, dotted key -> value


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stage of a run. In `recipe`, what it takes stands as STAGE.OUTPUT."""

    asked: R1Stage
    recipe: StageRecipe
    values: Mapping[str, Any]  # that the recipe was read from

    @property
    def name(self) -> str:
        return self.asked.name

    def with_taken(self, outputs: Settings) -> StageRecipe:
        """The recipe with the paths that earlier stages left, by stage and output."""
        paths = {key: outputs[stage][name] for key, (stage, name) in self.asked.taken.items()}
        return _for_stage(with_flags(self.values, paths), f"stage {self.name}")


def steps(recipe: R1Recipe, over: Settings | None = None) -> list[Step]:
    """Every stage's recipe, read and checked; `over` is laid on top of the list's own settings;
    what stands under EVERY, on those of every stage.

    Raises RecipeError naming the stage: for a file that is not there, an unknown key or value, an
    output that its stage does not make, and a start that no stage of the list makes.
    """
    over = over or {}
    names = [one.name for one in recipe.stages]
    for name in over:
        if name not in (*names, EVERY):
            raise RecipeError(f"no stage {name!r} in {recipe.name}.{_nearest(name, names)}")
    made: list[Step] = []
    for one in recipe.stages:
        made.append(_step(one, {**over.get(EVERY, {}), **over.get(one.name, {})}))
        _check_taken(made[-1], {step.name: step.recipe.stage for step in made})
    return made


def _step(one: R1Stage, over: Mapping[str, Any]) -> Step:
    told = {**one.set, **over}
    for key in one.take:
        if key in told:
            raise RecipeError(f"stage {one.name}: {key} is both set and taken; choose one")
    where = f"stage {one.name} ({one.recipe})"
    try:
        values = with_flags(written(one.recipe), told | one.take)
    except RecipeError as mistake:
        raise RecipeError(f"stage {one.name}: {mistake}") from mistake
    return Step(asked=one, recipe=_for_stage(values, where), values=values)


def _for_stage(values: Mapping[str, Any], where: str) -> StageRecipe:
    recipe = checked(values, where)
    if isinstance(recipe, R1Recipe):
        raise RecipeError(f"{where} is a list of stages itself; name its stages one by one")
    return recipe


def _check_taken(step: Step, kinds: Mapping[str, str]) -> None:
    for key, (stage, output) in step.asked.taken.items():
        makes = MAKES[kinds[stage]]
        if output not in makes:
            raise RecipeError(
                f"stage {step.name}: take {key}: {stage} makes no {output!r}."
                f"{_nearest(output, makes)}"
            )
    recipe = step.recipe
    if isinstance(recipe, BaseRecipe) or "start" in step.asked.take:
        return
    if recipe.start.endswith((".yaml", ".yml")):
        raise RecipeError(
            f"stage {step.name}: start: {recipe.start} would make a model that the list does not "
            "show; take the start of a stage before it, as in `take: {start: base.checkpoint}`, or "
            "set it to a folder with a checkpoint"
        )


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} There: {', '.join(known) or 'nothing'}"


def longest(todo: Sequence[Step]) -> int:
    """Prompt and response tokens of the longest rollout that a stage asks for; 0 without one."""
    rollouts = [getattr(step.recipe, "rollout", None) for step in todo]
    return max((r.max_prompt + r.max_tokens for r in rollouts if r is not None), default=0)
