"""The recipe of a whole run: its stages, what each takes from earlier ones, and their goals."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from veriloop.pipeline.config.cluster import RanksConfig
from veriloop.pipeline.config.fields import Part
from veriloop.pipeline.config.sections import Pushed
from veriloop.pipeline.errors import did_you_mean

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
ASIDE = "aside"  # folder of a run for the outputs of stages that are run again
RESERVED = (ASIDE, "evaluations", "rescored", "replays", "sent")  # what else a run's folder holds


class Goal(Part):
    """Bounds of a metric after a stage."""

    at_least: float | None = None
    """Least value of the metric."""
    at_most: float | None = None
    """Largest value of the metric."""
    gain: float | None = None
    """Least rise over the stage: the lower end of its 95 % interval, paired by problem."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.at_least is None and self.at_most is None and self.gain is None:
            raise ValueError("needs at_least, at_most or gain")
        least, most = self.at_least, self.at_most
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"at_least={least:g} with at_most={most:g}: no value meets both; the first must "
                "not be larger"
            )
        return self

    def shortfall(self, value: float, rise: float = 0.0) -> float:
        """How far the value, or its rise, misses a bound; 0 if the goal is met."""
        below = 0.0 if self.at_least is None else self.at_least - value
        above = 0.0 if self.at_most is None else value - self.at_most
        lacking = 0.0 if self.gain is None else self.gain - rise
        return max(below, above, lacking, 0.0)

    def __str__(self) -> str:
        bounds = {"at least": self.at_least, "at most": self.at_most, "a gain of": self.gain}
        return " and ".join(f"{label} {n:g}" for label, n in bounds.items() if n is not None)


class R1Stage(Part):
    """One stage of a run."""

    name: Name
    """Folder of the stage, and its key in run.json."""
    recipe: str
    """A file, or the name of a shipped recipe."""
    set: dict[str, Any] = Field({})
    """Overrides of the file, by dotted key."""
    take: dict[str, str] = Field({})
    """Dotted key of the recipe -> STAGE.OUTPUT of an earlier stage."""
    goals: dict[str, float | Goal] = Field({})
    """Metric -> its least value, or its bounds."""

    @property
    def bounds(self) -> dict[str, Goal]:
        """The goals as bounds."""
        return {
            metric: goal if isinstance(goal, Goal) else Goal(at_least=goal)
            for metric, goal in self.goals.items()
        }

    @property
    def taken(self) -> dict[str, tuple[str, str]]:
        """`take` as dotted key -> (stage, output)."""
        split = {key: source.partition(".") for key, source in self.take.items()}
        return {key: (stage, output) for key, (stage, _, output) in split.items()}


class R1Recipe(Pushed):
    """A whole run: stages in order, each with the outputs of earlier ones as inputs."""

    stage: Literal["r1"] = "r1"
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    plugins: tuple[str, ...] = ()
    """Files and modules with more verifiers. They apply to every stage, before the stage's own."""
    cluster: RanksConfig = RanksConfig()
    """Ranks of every stage that several can train. Other stages, and one that sets
    cluster.trainer.ranks to 1, run on rank 0 while the others wait."""
    stages: tuple[R1Stage, ...]
    """Stages in order."""

    @model_validator(mode="after")
    def _order_is_valid(self) -> Self:
        names = [stage.name for stage in self.stages]
        if not names:
            raise ValueError("stages: at least one is required")
        for index, stage in enumerate(self.stages):
            if stage.name in names[:index]:
                raise ValueError(f"two stages are called {stage.name!r}; rename one")
            if stage.name in RESERVED:
                raise ValueError(f"no stage can be called {stage.name!r}: the folder is reserved")
            for key, (source, output) in stage.taken.items():
                where = f"{stage.name}: take {key}: {stage.take[key]!r}"
                _check_source(where, source, output, names, index)
        return self


def _check_source(where: str, source: str, output: str, names: list[str], index: int) -> None:
    """Raise ValueError unless the source is a stage before the one at `index`."""
    if not output:
        raise ValueError(f"{where} must be STAGE.OUTPUT, as in {names[0]}.checkpoint")
    if source not in names:
        hint = did_you_mean(source, names)
        raise ValueError(f"{where}: no stage {source!r}.{hint} Stages: {', '.join(names)}")
    if source not in names[:index]:
        earlier = ", ".join(names[:index]) or "none"
        raise ValueError(f"{where}: {source!r} is not an earlier stage; earlier ones: {earlier}")
