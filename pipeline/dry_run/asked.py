"""Which sources the questions of a recipe come from, and what is known of its published sets."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.datasets import SetConfig, gym_task
from veriloop.pipeline.config.r1_stages import Step
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.dry_run.inputs import evaluated_sources, learned_sources
from veriloop.pipeline.dry_run.memory import Rows
from veriloop.pipeline.rollouts.sources import sources_of, summary_lines


def shares(weights: Mapping[str, float]) -> str:
    """Each source with its share of the questions, in percent; a single source is only named."""
    if len(weights) == 1:
        return next(iter(weights))
    total = sum(weights.values())
    return ", ".join(f"{name} {_percent(weight / total)}" for name, weight in weights.items())


def set_rows(recipe: Recipe) -> Rows:
    """A row for each published set that a stage reads. Raises as `described` does."""
    return [("set", f"{name}: {facts}") for name, facts in _sets_of(recipe).items()]


def set_rows_of_all(steps: Iterable[Step]) -> Rows:
    """(name, what is known) of each published set that these stages read. A set that is not the
    same in all of them has several rows, which name their stages. Raises as `described` does."""
    stages: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        for row in _sets_of(step.recipe).items():
            stages.setdefault(row, []).append(step.name)
    times = Counter(name for name, _ in stages)
    return [
        (name, facts if times[name] == 1 else f"{facts} ({', '.join(read_by)})")
        for (name, facts), read_by in stages.items()
    ]


def described(names: Collection[str], sets: Mapping[str, SetConfig]) -> dict[str, str]:
    """What is known of each published set among the names; nothing is downloaded.

    A file or folder that is missing is said to be; the checks of inputs refuse it. Raises
    RecipeError for one that cannot be read.
    """
    published = [name for name in dict.fromkeys(names) if name in sets or name not in SOURCES]
    return {name: _described(name, sets) for name in published}


def _sets_of(recipe: Recipe) -> dict[str, str]:
    names = [*learned_sources(recipe), *evaluated_sources(recipe)]
    return described(names, getattr(recipe, "sets", {}))


def _described(name: str, sets: Mapping[str, SetConfig]) -> str:
    if (task := gym_task(name, sets)) is not None:
        return f"reasoning-gym's {task}, generated"
    config = sets.get(name, SetConfig())
    layout = config.layout(name)
    configs = [config, *(sets.get(other, SetConfig()) for other in config.against)]
    paths = [config.path for config in configs]
    if absent := next((path for path in paths if path and not Path(path).exists()), ""):
        return f"{absent} (not found)"
    if all(paths):
        (line,) = summary_lines(sources_of([name], sets)[1])
        return f"{line.removeprefix(f'{name}: ')} (prompts of any length)"
    source = config.path or (layout.repo if layout else "")
    return f"{source}, from the hub or its cache when the run starts"


def _percent(share: float) -> str:
    """In whole percent from 10 on, with two digits below."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
