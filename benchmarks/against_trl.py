"""A GRPO step of ours against TRL's, one core each in turn: equal questions, lengths and reward.

    python benchmarks/against_trl.py [--quick] [--json FILE] [--sizes 1M 10M] [--rounds N]

16 prompts x 8 answers of at most 80 tokens, from random models in float32 that rarely end early.
TRL has a separate environment (created once under outputs/cache) and is measured with its defaults
and with the best settings found: no gradient checkpointing, MKL set to treat the processor as
Intel's, bfloat16 where that helps. Each contender is a separate process on one core, and they take
turns: A B C A B C. The metric is answer tokens per second. At 10 M parameters only the fastest of
each side and TRL with its defaults are run: six at once do not fit into 24 GiB.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contenders import BFLOAT16, SIZES, Contender, Process, in_turn, model_of
from grpo_turns import QUESTIONS
from paired import sides
from publish import arguments, publish, table

from veriloop.data import arithmetic
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator

SCRIPT = "grpo_turns.py"
WARM_UP = 2  # steps of each that are not counted
BARS = {"1M": (2.0, 1.5), "10M": (4.0, 2.5)}  # times TRL as installed, times its best

CONTENDERS = (
    Contender(name="TRL", side="trl", settings={"bf16": False}),
    Contender(
        name="TRL, tuned",
        side="trl",
        settings={"bf16": False, "gradient_checkpointing": False},
        as_intel=True,
    ),
    Contender(
        name="TRL, tuned, bf16",
        side="trl",
        settings={"bf16": True, "gradient_checkpointing": False},
        as_intel=True,
    ),
    Contender(name="ours, vLLM", side="ours", settings={"sampler.engine": "vllm"}),
    Contender(
        name="ours, vLLM, bf16",
        side="ours",
        settings={"sampler.engine": "vllm", "trainer.compute": "bfloat16"},
    ),
    Contender(
        name="ours, vLLM, bf16, sampler too",
        side="ours",
        settings=BFLOAT16,
    ),
    Contender(name="ours, torch", side="ours", settings={"sampler.engine": "torch"}),
)
ABSENT = {"10M": ("TRL, tuned", "ours, torch")}  # slower than others of their side at 1M


def with_trl_template(path: Path) -> Path:
    """The same model, with the questions in TRL's format."""
    from transformers import GenerationConfig

    tokenizer = load_tokenizer(path)
    scribe = RolloutGenerator(tokenizer, GenerationConfig.from_pretrained(path))
    problems = (arithmetic.problem("rl", 0, index) for index in range(QUESTIONS))
    prompts = [tokenizer.decode(scribe.prompt(problem)[1:]) for problem in problems]
    (path / "prompts.json").write_text(json.dumps(prompts))
    return path


def measured(size: str, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """The steps of all contenders in turn, without the first ones of each."""
    model = with_trl_template(model_of(folder / size, SIZES[size]))
    running = [
        Process(contender, SCRIPT, model, folder)
        for contender in CONTENDERS
        if contender.name not in ABSENT.get(size, ())
    ]
    return [{"size": size, **row} for row in in_turn(running, WARM_UP, rounds)]


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that are missed."""
    missed: list[str] = []
    for size in dict.fromkeys(row["size"] for row in rows):
        own = [row for row in rows if row["size"] == size]
        rates = {row["name"]: row["tokens_per_s"] for row in own}
        best, tuned = sides(own, "tokens_per_s", max)
        for other, rate, bar in zip(
            ("as installed", "at its best"), (rates["TRL"], tuned), BARS[size], strict=True
        ):
            if best < bar * rate:
                missed.append(f"{size}: {best / rate:.2f} x TRL {other}, wanted {bar}")
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        sizes={"nargs": "+", "choices": list(BARS), "default": list(BARS)},
        rounds={"type": int, "default": 7, "help": "steps of each contender that are counted"},
    )
    sizes, rounds = (["1M"], 1) if options.quick else (options.sizes, options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="against-trl-"))
    rows = [row for size in sizes for row in measured(size, rounds, folder)]
    columns = ("s", "cpu_s", "tokens", "tokens_per_s", "peak_gib")
    text = table(
        ["size", "contender", "s", "CPU s", "tokens", "per s", "GiB"],
        [[row["size"], row["name"], *(row[column] for column in columns)] for row in rows],
    )
    return publish(options, text, rows, failed=[] if options.quick else shortfalls(rows))


if __name__ == "__main__":
    sys.exit(main())
