"""`veriloop evaluate`: held-out pass@1, greedy accuracy, pass@k and maj@k with intervals.

The paper samples several responses to each question at a non-zero temperature and reports their
mean as pass@1, because greedy decoding of long reasoners repeats itself and varies (section 3).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import ValidationError

from veriloop.data.counts import counted
from veriloop.pipeline.config.checkpoints import find_checkpoint, positions_at
from veriloop.pipeline.config.fields import Count, Temperature
from veriloop.pipeline.config.load import explain
from veriloop.pipeline.config.sections import EvaluationConfig, SamplerConfig, require_known_sources
from veriloop.pipeline.config.user_code import check_template
from veriloop.pipeline.dry_run.positions import require_room
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.evaluation.evaluate import Evaluation
from veriloop.stages.commands.parse import (
    BoundedJudgeOptions,
    parse_options,
    require_outside,
    system_message,
)
from veriloop.stages.held_out import evaluate_checkpoint


@dataclass(frozen=True, kw_only=True)
class Options(BoundedJudgeOptions):
    """Evaluate a Hugging Face checkpoint on held-out problems.

    With --set NAME... it evaluates on whole published sets instead; that form has other flags,
    listed by `veriloop evaluate --set --help`.
    """

    checkpoint: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            metavar="CHECKPOINT",
            help="folder with config.json, weights, tokenizer; or a hub id",
        ),
    ]
    sources: tuple[str, ...] = ("arithmetic",)  # sources of the problems, by name
    problems: Count = 512  # problems per source
    samples: Count = 4  # answers per problem, at `temperature`
    temperature: Temperature = 1.0
    max_tokens: Count = 112  # tokens per answer
    max_prompt: Count = 256  # tokens per prompt; longer ones are refused
    stop: tuple[str, ...] = ()  # strings that end an answer, besides EOS
    template: str = "r1_zero"  # chat: the model's own; or a Jinja file
    system: str = ""  # system message of the chat: a text, or the name r1 or boxed
    seed: int = 1
    verifier_service: Annotated[
        str | tuple[str, ...],
        tyro.conf.arg(
            metavar="URL [URL ...]", help="reward services to use instead of workers, by URL"
        ),
    ] = ""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    json: Annotated[str, tyro.conf.arg(help="also write the result to this file")] = ""


def run(options: Options) -> Evaluation:
    """Evaluate with these options. Raises RecipeError for invalid ones."""
    system = system_message(options.system, options.template)
    judging = options.judging(options.verifier_service)
    error_share = options.require_error_share()
    if "" in options.stop:
        raise RecipeError("--stop '': an empty string would end every answer; leave the flag out")
    try:
        config = EvaluationConfig(
            sources=options.sources,
            problems=options.problems,
            samples=options.samples,
            temperature=options.temperature,
        )
        _require_sources(options.sources)
        check_template(options.template)
    except ValidationError as mistake:
        raise RecipeError(f"flags:\n{explain(mistake, EvaluationConfig)}") from mistake
    except ValueError as unknown:
        raise RecipeError(f"flags: {unknown}") from unknown
    checkpoint = find_checkpoint(options.checkpoint, "CHECKPOINT")
    require_outside(checkpoint, "--json", options.json)
    lengths = {"--max-prompt": options.max_prompt, "--max-tokens": options.max_tokens}
    require_room(options.checkpoint, positions_at(str(checkpoint)), lengths)
    return evaluate_checkpoint(
        checkpoint,
        config,
        options.sampler,
        max_tokens=options.max_tokens,
        say=print,
        max_prompt=options.max_prompt,
        stop=options.stop,
        seed=options.seed,
        verifier_service=options.verifier_service,
        judging=judging,
        error_share=error_share,
        template=options.template,
        system=system,
    )


def _require_sources(names: Sequence[str]) -> None:
    """Raise ValueError for the first name that is no source, with the way to ask a file's rows."""
    try:
        require_known_sources(names)
    except ValueError as unknown:
        raise ValueError(
            f"{unknown}. A file of your own: --set NAME=PATH, without --sources"
        ) from None


def command(words: Sequence[str]) -> int:
    """Print the metrics and write `--json`; with --set, evaluate on published sets instead."""
    if any(word.partition("=")[0] == "--set" for word in words):
        from veriloop.stages.commands import benchmark

        return benchmark.command(words)
    options = parse_options(Options, words)
    result = run(options)
    shown = [*result.estimates, *(["not judged"] if result.failed else [])]
    width = max(map(len, shown)) + 2
    for name, e in result.estimates.items():
        print(f"{name:<{width}}{e.value:.3f}  [{e.low:.3f}, {e.high:.3f}]  n={e.n}")
    print(f"{'length':<{width}}{result.mean_length:.1f} tokens, {result.truncated:.1%} cut off")
    if result.failed:
        print(f"{'not judged':<{width}}{counted(result.failed, 'answer')}, in no estimate")
    if options.json:
        Path(options.json).write_text(json.dumps(result.flat(), indent=1))
    return 0
