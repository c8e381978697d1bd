"""A group of answers to one long prompt: each sampler must process the prompt once.

    python benchmarks/prefix.py [--quick] [--json FILE]

16 answers of 16 tokens to one prompt of 1,000, compared with 16 prompts with one answer each and
with a single answer, taking turns on one core; 10 M random parameters. Samplers may cache prompts,
so every prompt is new.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from grpo_steps import qwen2
from publish import arguments, publish, table

from veriloop.data import corpus
from veriloop.data.tokenizer import train
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.policy import save_policy
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampler, Sampling

GROUP, PROMPT, ANSWER = 16, 1000, 16
VOCABULARY = 512
SHAPE = {
    "hidden_size": 320, "intermediate_size": 1024, "num_hidden_layers": 6,
    "vocab_size": VOCABULARY, "num_attention_heads": 5, "num_key_value_heads": 5,
}  # fmt: skip
ROUNDS, QUICK = 5, 1
AIM = 1 / 3  # of the time of 16 prompts, at most


def checkpoint(folder: Path) -> Path:
    """A model with random weights and the tiny tokenizer."""
    random = Random(0)
    documents = (corpus.document(random, corpus.DEFAULT_MIX) for _ in range(4_000))
    tokenizer, model = train(documents, VOCABULARY), qwen2(**SHAPE)
    for end in ("bos", "eos", "pad"):
        setattr(model.generation_config, f"{end}_token_id", getattr(tokenizer, f"{end}_token_id"))
    save_policy(model, tokenizer, folder)
    return folder


def prompts(count: int, random: Random) -> list[list[int]]:
    return [[random.randrange(10, VOCABULARY) for _ in range(PROMPT)] for _ in range(count)]


def ways(sampler: Sampler, random: Random) -> dict[str, Callable[[], Any]]:
    """The timed calls, by number of prompts and of answers to each."""

    def sample(count: int, answers: int) -> Callable[[], Any]:
        how = {"temperature": 1.0, "max_tokens": ANSWER, "seed": 0}
        return lambda: sampler.sample(
            prompts(count, random), Sampling(per_prompt=answers, **how)  # pyright: ignore[reportArgumentType]
        )  # fmt: skip

    return {"one answer": sample(1, 1), "a group": sample(1, GROUP), "16 prompts": sample(GROUP, 1)}


def measured(engine: str, folder: Path, rounds: int) -> dict[str, Any]:
    config = SamplerConfig.model_validate({"engine": engine})
    sampler = open_sampler(config, str(folder), max_length=PROMPT + ANSWER, say=print)
    taken: dict[str, list[float]] = {}
    timed = ways(sampler, Random(1))
    for turn in range(rounds + 1):
        for name, way in timed.items():
            began = time.monotonic()
            way()
            if turn:  # the first one warms up
                taken.setdefault(name, []).append(time.monotonic() - began)
    sampler.close()
    seconds = {name: median(all_s) for name, all_s in taken.items()}
    share = seconds["a group"] / seconds["16 prompts"]
    return {"sampler": engine, "seconds": seconds, "share": share, "all": taken}


def main() -> int:
    options = arguments(__doc__ or "")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="prefix-") as name:
        folder = checkpoint(Path(name))
        rounds = QUICK if options.quick else ROUNDS
        rows = [measured(engine, folder, rounds) for engine in ("torch", "vllm")]
    shown = [[r["sampler"], *r["seconds"].values(), r["share"]] for r in rows]
    header = ["sampler", *(f"{name}, s" for name in rows[0]["seconds"]), "group / 16 prompts"]
    failed = [
        f"{r['sampler']}: a group takes {r['share']:.2f} of 16 prompts, at most {AIM:.2f} if its "
        "prompt is read once"
        for r in rows
        if r["share"] > AIM and not options.quick
    ]
    return publish(options, table(header, shown), rows, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
