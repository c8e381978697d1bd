"""Evaluation of a checkpoint on held-out problems, for the SFT stages and `veriloop evaluate`."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from veriloop.pipeline.config.sections import ERROR_SHARE, EvaluationConfig, SamplerConfig
from veriloop.pipeline.config.services import Services
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


def evaluate_checkpoint(
    checkpoint: Path,
    evaluation: EvaluationConfig,
    sampler: SamplerConfig,
    *,
    max_tokens: int,
    say: Callable[[str], None],
    max_prompt: int = 256,
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

    `max_tokens` limits a response, in tokens; the sampler has room for prompts of `max_prompt`
    tokens, or of the longest one if that is more. `judging` are further
    arguments of `open_judges`. `sources` are needed if the recipe defines its own sets. With
    `directory`, that of a stage, the verifiers' versions are written there as `note_verifiers`
    does. Raises StageError if verification fails on more than `error_share` of the answers.
    """
    problems = held_out_problems(evaluation, sources or sources_of(evaluation.sources)[0])
    generator = RolloutGenerator(
        load_tokenizer(checkpoint), load_generation_config(checkpoint), template, system
    )
    with ExitStack() as stack:
        names = verifier_names(MEASURED, problems)
        pool = stack.enter_context(open_judges(names, verifier_service, **judging))
        if directory is not None:
            note_verifiers(directory, pool.fingerprint(names))
        room = max(max_prompt, *(len(generator.prompt(problem)) for problem in problems))
        engine = open_sampler(sampler, str(checkpoint), max_length=room + max_tokens, say=say)
        stack.callback(engine.close)
        sampling = Sampling(
            per_prompt=evaluation.samples,
            temperature=evaluation.temperature,
            max_tokens=max_tokens,
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
