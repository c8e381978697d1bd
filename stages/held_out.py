"""Evaluation of a checkpoint on held-out problems, for the SFT stages and `veriloop evaluate`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from veriloop.data.problem import Problem
from veriloop.pipeline.config.sections import ERROR_SHARE, EvaluationConfig, SamplerConfig
from veriloop.pipeline.config.services import Services
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.evaluation.evaluate import (
    MEASURED,
    Evaluation,
    EvaluationStore,
    Keep,
    evaluate,
    passes,
)
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import open_judges, verifier_names
from veriloop.pipeline.rollouts.sources import Sources, held_out_problems, sources_of
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.stages.resumption import note_verifiers

ROOM = 256  # tokens of a prompt for which every sampler has room, so that stages can share one


def evaluate_checkpoint(
    checkpoint: Path,
    evaluation: EvaluationConfig,
    sampler: SamplerConfig,
    *,
    max_tokens: int,
    say: Callable[[str], None],
    max_prompt: int | None = None,
    stop: tuple[str, ...] = (),
    seed: int = 1,
    verifier_service: Services = "",
    judging: Mapping[str, Any] = MappingProxyType({}),
    error_share: float = ERROR_SHARE,
    keep: Keep | None = None,
    store: EvaluationStore | None = None,
    sources: Sources | None = None,
    template: str = "r1_zero",
    system: str = "",
    directory: Path | None = None,
) -> Evaluation:
    """Open a sampler and verifiers, evaluate unless `store` has the result, close them.

    `max_tokens` limits a response, in tokens, which also ends at a string of `stop`. `max_prompt`
    limits a prompt; None: prompts of any length. `judging` are further
    arguments of `open_judges`. `sources` are needed if the recipe defines its own sets. With
    `directory`, that of a stage, the verifiers' versions are written there as `note_verifiers`
    does. Raises RecipeError for a longer prompt, and StageError if verification fails on more than
    `error_share` of the answers.
    """
    problems = held_out_problems(evaluation, sources or sources_of(evaluation.sources)[0])
    generator = RolloutGenerator(
        load_tokenizer(checkpoint), load_generation_config(checkpoint), template, system
    )
    room = _prompt_room(problems, generator, max_prompt)
    with ExitStack() as stack:
        names = verifier_names(MEASURED, problems)
        pool = stack.enter_context(open_judges(names, verifier_service, **judging))
        if directory is not None:
            note_verifiers(directory, pool.fingerprint(names))
        engine = open_sampler(sampler, str(checkpoint), max_length=room + max_tokens, say=say)
        stack.callback(engine.close)
        sampling = Sampling(
            per_prompt=evaluation.samples,
            temperature=evaluation.temperature,
            max_tokens=max_tokens,
            stop=stop,
            seed=seed,
        )
        with activity("evaluating", passes(problems)) as part:
            return evaluate(
                engine,
                generator,
                problems,
                MEASURED,
                pool,
                sampling,
                error_share=error_share,
                keep=keep,
                on_problem=part.advance,
                store=store,
            )


def _prompt_room(
    problems: Sequence[Problem], generator: RolloutGenerator, limit: int | None
) -> int:
    """Tokens of the longest prompt. Raises RecipeError if that exceeds the limit: an evaluation
    that left questions out would be another one."""
    lengths = [len(generator.prompt(problem)) for problem in problems]
    longest = max(lengths)
    if limit is None:
        return max(ROOM, longest)
    if longest > limit:
        longer = sum(length > limit for length in lengths)
        name = problems[lengths.index(longest)].id
        raise RecipeError(
            f"--max-prompt {limit}: {longer:,} of {len(lengths):,} questions have longer prompts, "
            f"and the longest, {name}, has {longest:,} tokens; set --max-prompt {longest}"
        )
    return limit
