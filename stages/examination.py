"""How good a checkpoint is on problems that nobody has trained on."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from data import arithmetic
from pipeline.config import EvaluationConfig, SamplerConfig
from pipeline.evaluate import Evaluation, evaluate
from pipeline.grade import names_of, open_judges
from pipeline.policy import load_generation_config, load_tokenizer
from pipeline.sampling.choose import open_sampler
from pipeline.sampling.sampler import Sampling
from pipeline.scribe import Scribe

VERIFIERS = {"accuracy": None, "format": "think_format"}
MAX_PROMPT = 256  # tokens


def examine(
    checkpoint: Path,
    asked: EvaluationConfig,
    sampler: SamplerConfig,
    *,
    max_tokens: int,
    say: Callable[[str], None],
) -> Evaluation:
    """Open an engine on the checkpoint, sample and judge, close."""
    problems = arithmetic.distinct("test", 0, asked.problems)
    with ExitStack() as stack:
        pool = stack.enter_context(open_judges(names_of(VERIFIERS, problems[0])))
        engine = open_sampler(sampler, str(checkpoint), max_length=MAX_PROMPT + max_tokens, say=say)
        stack.callback(engine.close)
        return evaluate(
            engine,
            Scribe(load_tokenizer(checkpoint), load_generation_config(checkpoint)),
            problems,
            VERIFIERS,
            pool,
            Sampling(
                per_prompt=asked.samples,
                temperature=asked.temperature,
                max_tokens=max_tokens,
                seed=1,
            ),
        )
