"""The recipe of a whole run: stages in order, what each takes from earlier ones, its goals."""

from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.part import Part

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
ASIDE = "aside"  # folder of a run with what was done again


class Goal(Part):
    """Bounds of a figure after a stage; both count where both are given."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("needs at_least, at_most or both")
        return self

    def shortfall(self, value: float) -> float:
        """By how much the value misses its bound; 0 when the goal is met."""
        below = 0.0 if self.at_least is None else self.at_least - value
        above = 0.0 if self.at_most is None else value - self.at_most
        return max(below, above, 0.0)

    def __str__(self) -> str:
        bounds = {"at least": self.at_least, "at most": self.at_most}
        return " and ".join(f"{told} {n:g}" for told, n in bounds.items() if n is not None)


class R1Stage(Part):
    """One stage of a run."""

    name: Name  # of its folder and its entry in run.json
    recipe: str  # a file, or a shipped recipe by its name
    set: dict[str, Any] = Field({})  # settings on top of the file; dotted keys, as flags have them
    take: dict[str, str] = Field({})  # dotted key of the recipe -> STAGE.OUTPUT of an earlier stage
    goals: dict[str, float | Goal] = Field({})  # figure after it -> its least value, or bounds

    @property
    def bounds(self) -> dict[str, Goal]:
        """The goals, each with its bounds."""
        return {
            figure: goal if isinstance(goal, Goal) else Goal(at_least=goal)
            for figure, goal in self.goals.items()
        }

    @property
    def taken(self) -> dict[str, tuple[str, str]]:
        """Dotted key -> (stage, output)."""
        split = {key: source.partition(".") for key, source in self.take.items()}
        return {key: (stage, output) for key, (stage, _, output) in split.items()}


class R1Recipe(Part):
    """A whole run: stages one after the other, each from what earlier ones made."""

    stage: Literal["r1"] = "r1"
    name: str
    stages: tuple[R1Stage, ...]

    @model_validator(mode="after")
    def _order_holds(self) -> Self:
        names = [one.name for one in self.stages]
        if not names:
            raise ValueError("stages: at least one")
        for at, one in enumerate(self.stages):
            if one.name in names[:at]:
                raise ValueError(f"two stages are called {one.name!r}; give one another name")
            if one.name == ASIDE:
                raise ValueError(f"no stage can be called {ASIDE!r}: that folder is for old ones")
            for key, (source, output) in one.taken.items():
                _check_source(
                    f"{one.name}: take {key}: {one.take[key]!r}", source, output, names, at
                )
        return self


def _check_source(where: str, source: str, output: str, names: list[str], at: int) -> None:
    """Raise ValueError unless the source is a stage before the one at `at`."""
    if not output:
        raise ValueError(f"{where} must be STAGE.OUTPUT, as in {names[0]}.checkpoint")
    if source not in names:
        close = get_close_matches(source, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{where}: no stage {source!r}.{hint} Stages: {', '.join(names)}")
    if source not in names[:at]:
        before = ", ".join(names[:at]) or "none"
        raise ValueError(f"{where}: {source!r} has not run by then; before it: {before}")
