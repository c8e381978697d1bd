"""Evaluation: held-out pass@1 and greedy accuracy, pass@k, maj@k, each with its interval.

The paper samples several responses to each question at a non-zero temperature and reports their
mean as pass@1, because greedy decoding of long reasoners repeats itself and varies (section 3).
"""

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import ValidationError

from pipeline.config import EvaluationConfig, SamplerConfig, known_sources
from pipeline.evaluate import Evaluation
from pipeline.failures import RecipeError
from pipeline.recipes import explained
from stages.examination import examine

OTHER_FORMS = {"--set": "stages.set_evaluation", "--lm-eval": "stages.lm_eval"}  # other flags


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate a Hugging Face checkpoint on held-out problems.

    With --set it is whole published sets, with --lm-eval tasks of lm-evaluation-harness:
    `veriloop evaluate --set --help` and `veriloop evaluate --lm-eval --help` tell their flags.
    """

    checkpoint: tyro.conf.Positional[str]  # folder with config.json, weights and tokenizer
    sources: tuple[str, ...] = ("arithmetic",)  # of the problems, by name
    problems: int = 512  # of each source
    samples: int = 4  # per problem, at `temperature`
    temperature: float = 1.0
    max_tokens: int = 112
    max_prompt: int = 256
    template: Literal["r1_zero", "chat"] = "r1_zero"  # chat: the model's own
    seed: int = 1
    verifier_service: Annotated[
        str, tyro.conf.arg(help="URL of a reward service that judges instead of workers here")
    ] = ""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


def run(options: Options) -> Evaluation:
    """The evaluation that the options ask for. Raises RecipeError for what cannot be asked."""
    try:
        asked = EvaluationConfig(
            sources=options.sources,
            problems=options.problems,
            samples=options.samples,
            temperature=options.temperature,
        )
        known_sources(options.sources)
    except ValidationError as mistake:
        raise RecipeError(f"flags:\n{explained(mistake, EvaluationConfig)}") from mistake
    except ValueError as unknown:
        raise RecipeError(f"sources: {unknown}") from unknown
    return examine(
        Path(options.checkpoint),
        asked,
        options.sampler,
        max_tokens=options.max_tokens,
        say=print,
        max_prompt=options.max_prompt,
        seed=options.seed,
        verifier_service=options.verifier_service,
        template=options.template,
    )


def command(words: Sequence[str]) -> int:
    """`veriloop evaluate CHECKPOINT`: print the table, and write it where `--json` says."""
    for flag, module in OTHER_FORMS.items():
        if any(word == flag or word.startswith(f"{flag}=") for word in words):
            return importlib.import_module(module).command(words)
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop evaluate")
    if not (Path(options.checkpoint) / "config.json").is_file():
        raise FileNotFoundError(f"{options.checkpoint} holds no Hugging Face checkpoint")
    result = run(options)
    width = max(map(len, result.estimates)) + 2
    for name, e in result.estimates.items():
        print(f"{name:<{width}}{e.value:.3f}  [{e.low:.3f}, {e.high:.3f}]  n={e.n}")
    print(f"{'length':<{width}}{result.mean_length:.1f} tokens, {result.truncated:.1%} cut off")
    if options.json:
        Path(options.json).write_text(json.dumps(result.flat(), indent=1))
    return 0


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["evaluate", *sys.argv[1:]]))
