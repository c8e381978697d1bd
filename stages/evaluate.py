"""Evaluation: held-out pass@1 and greedy accuracy, pass@k, maj@k, each with its interval.

The paper samples several responses to each question at a non-zero temperature and reports their
mean as pass@1, because greedy decoding of long reasoners repeats itself and varies (section 3).
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from data import arithmetic
from pipeline.config import SamplerConfig
from pipeline.evaluate import Evaluation, evaluate
from pipeline.grade import names_of, open_judges
from pipeline.policy import load_generation_config, load_tokenizer
from pipeline.sampling.choose import open_sampler
from pipeline.sampling.sampler import Sampling
from pipeline.scribe import Scribe

VERIFIERS = {"accuracy": None, "format": "think_format"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate a Hugging Face checkpoint on held-out problems."""

    checkpoint: tyro.conf.Positional[str]  # folder with config.json, weights and tokenizer
    problems: int = 512
    samples: int = 4  # per problem, at `temperature`
    temperature: float = 1.0
    max_tokens: int = 112
    max_prompt: int = 256
    seed: int = 1
    verifier_service: Annotated[
        str, tyro.conf.arg(help="URL of a reward service that judges instead of workers here")
    ] = ""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


def run(options: Options) -> Evaluation:
    """Open the sampler on the checkpoint, evaluate, close."""
    problems = arithmetic.distinct("test", 0, options.problems)
    with ExitStack() as stack:
        pool = open_judges(names_of(VERIFIERS, problems[0]), options.verifier_service)
        stack.enter_context(pool)
        sampler = open_sampler(
            options.sampler,
            options.checkpoint,
            max_length=options.max_prompt + options.max_tokens,
            say=print,
        )
        stack.callback(sampler.close)
        scribe = Scribe(
            load_tokenizer(options.checkpoint), load_generation_config(options.checkpoint)
        )
        return evaluate(
            sampler,
            scribe,
            problems,
            VERIFIERS,
            pool,
            Sampling(
                per_prompt=options.samples,
                temperature=options.temperature,
                max_tokens=options.max_tokens,
                seed=options.seed,
            ),
        )


def command(words: Sequence[str]) -> int:
    """`veriloop evaluate CHECKPOINT`: print the table, and write it where `--json` says."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop evaluate")
    if not (Path(options.checkpoint) / "config.json").is_file():
        raise FileNotFoundError(f"{options.checkpoint} holds no Hugging Face checkpoint")
    result = run(options)
    for name, e in result.estimates.items():
        print(f"{name:<10}{e.value:.3f}  [{e.low:.3f}, {e.high:.3f}]  n={e.n}")
    print(f"{'length':<10}{result.mean_length:.1f} tokens, {result.truncated:.1%} cut off")
    if options.json:
        Path(options.json).write_text(json.dumps(result.flat(), indent=1))
    return 0


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["evaluate", *sys.argv[1:]]))
