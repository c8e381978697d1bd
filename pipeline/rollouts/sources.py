"""The problem sources a recipe names: generated ones, and published sets, read and split."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from veriloop.data.arithmetic import Split
from veriloop.data.counts import counted
from veriloop.data.decontaminate import Overlap
from veriloop.data.gym import GymSource
from veriloop.data.hub.source import (
    SetSource,
    SourceSpec,
    open_source,
    require_rows,
)
from veriloop.data.problem import Problem
from veriloop.data.sources import SOURCES, Source, held_out
from veriloop.pipeline.config.datasets import SetConfig, gym_task, is_generated
from veriloop.pipeline.config.sections import EvaluationConfig, require_known_sources
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit, ShortQuestions

Sources = Mapping[str, Source]
Facts = dict[str, dict[str, Any]]  # by set name: row counts of its splits and drops, its hash


def sources_of(
    names: Collection[str],
    sets: Mapping[str, SetConfig] = {},
    limit: PromptLimit | None = None,
) -> tuple[Sources, Facts]:
    """The sources with these names, and facts about the published sets among them.

    Problems whose prompts exceed `limit` are dropped; a generated source draws others in their
    place. Raises RecipeError for an unknown source and for a set that cannot be read.
    """
    try:
        require_known_sources(names, sets)
    except ValueError as unknown:
        raise RecipeError(str(unknown)) from unknown
    sources: dict[str, Source] = {}
    facts: Facts = {}
    for name in dict.fromkeys(names):
        if is_generated(name, sets):
            task = gym_task(name, sets)
            source = SOURCES[name] if task is None else _gym(name, task, sets)
            sources[name] = source if limit is None else ShortQuestions(name, source, limit)
            continue
        try:
            sources[name], facts[name] = _open_set(name, sets, limit or (lambda _: True))
        except (ValueError, KeyError, FileNotFoundError) as mistake:
            raise RecipeError(f"sets.{name}: {mistake}") from mistake
    return sources, facts


def held_out_problems(evaluation: EvaluationConfig, sources: Sources) -> list[Problem]:
    """The questions of an evaluation. Raises RecipeError for a source that holds none out."""
    try:
        return held_out(evaluation.sources, evaluation.problems, sources)
    except ValueError as mistake:
        raise RecipeError(f"evaluation.sources: {mistake}") from mistake


Asked = Mapping[str, Collection[Split]]  # source -> splits whose questions are read


def require_sources(asked: Asked, sets: Mapping[str, SetConfig]) -> None:
    """Find every published set among the sources, with a question of each split that is asked, and
    the sets that it must not overlap with.

    A set of the hub is downloaded into the cache. Raises RecipeError for one that is missing.
    """
    published = [name for name in asked if not is_generated(name, sets)]
    against = [other for n in published if n in sets for other in sets[n].against]
    require_questions({name: asked.get(name, ()) for name in [*published, *against]}, sets)


def require_questions(asked: Asked, sets: Mapping[str, SetConfig]) -> None:
    """Raise RecipeError for a published set without a question of a split that is asked."""
    for name, splits in asked.items():
        try:
            require_rows(_source_spec(name, sets.get(name, SetConfig()), lambda _: True), splits)
        except (ValueError, KeyError, FileNotFoundError) as mistake:
            raise RecipeError(f"sets.{name}: {mistake}") from mistake


def _gym(name: str, task: str, sets: Mapping[str, SetConfig]) -> GymSource:
    settings = sets[name].settings if name in sets else {}
    try:
        return GymSource(task, settings, name)
    except ValueError as mistake:
        raise RecipeError(f"{name}: {mistake}") from mistake


def one_of_each(sources: Sources, names: Iterable[str], seed: int) -> list[Problem]:
    """One problem for each verifier that judges responses to problems of these sources."""
    problems: list[Problem] = []
    for name in names:
        source = sources[name]
        if isinstance(source, SetSource):
            problems += source.kinds()
        else:
            problems.append(source.problem("rl", seed, 0))
    return problems


def summary_lines(facts: Facts) -> list[str]:
    """One line for each set."""
    return [
        f"{name}: {counted(counts['learned'], 'question')} to learn from, "
        f"{counts['held_out']:,} held out"
        + "".join(f"; {count:,} {reason}" for reason, count in sorted(counts["dropped"].items()))
        for name, counts in facts.items()
    ]


def _open_set(
    name: str, sets: Mapping[str, SetConfig], fits: Callable[[Problem], bool]
) -> tuple[SetSource, dict[str, Any]]:
    config = sets.get(name, SetConfig())
    prompts = [text for other in config.against for text in _held_out_prompts(other, sets)]
    against = Overlap(prompts, config.overlap) if config.against else None
    return open_source(_source_spec(name, config, fits), against)


def _held_out_prompts(name: str, sets: Mapping[str, SetConfig]) -> list[str]:
    source, _ = open_source(_source_spec(name, sets.get(name, SetConfig()), lambda _: True))
    return [problem.prompt for problem in source.distinct("test", 0, 1 << 40)]


def _source_spec(name: str, config: SetConfig, fits: Callable[[Problem], bool]) -> SourceSpec:
    return SourceSpec(
        name=name,
        layout=config.layout(name),
        path=config.path,
        config=config.config,
        train=config.train,
        test=config.test,
        held_out=config.held_out,
        rows=config.rows,
        fits=fits,
    )
