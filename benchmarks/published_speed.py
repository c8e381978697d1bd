"""A published model on a CPU: how fast it samples, and how soon a run shows its first answers.

    python benchmarks/published_speed.py [--svamp FILE] [--quick] [--json FILE] [--model FOLDER]

64 prompts, one answer of up to 128 tokens to each at temperature 1 on all cores: our vLLM sampler
in bfloat16, and `generate` of transformers on one padded batch, in bfloat16 and float32. Each way
has a process of its own and warms up once. Tokens are counted up to the end-of-sequence token.

Then one step of `veriloop reasoning-rl real/smollm2/reasoning_rl`: seconds from the command until
its first answers are graded, which are those of the evaluation that it begins with, until those of
the first step are, and the longest time without a line of output until the first optimizer step is
done. FILE holds SVAMP's questions; without it they are read from the hub. Needs the model of
requirements/published-model.sh. `--quick` samples 4 answers of 8 tokens, to generated questions.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from publish import ROOT, arguments, publish, table

MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
SEQUENCES, TOKENS, ROUNDS = 64, 128, 3
QUICK_SEQUENCES, QUICK_TOKENS = 4, 8
OURS = "our vLLM sampler, bfloat16"
RATIO = 3.0  # of our tokens per second over those of generate, at least
FIRST_S, SILENCE_S = 60.0, 10.0
FIRST, SILENCE = "the first answers are graded", "the longest silence until then"
EVALUATED, FIRST_STEP = re.compile(r"evaluating: ([\d,]+)/"), re.compile(r"\S+ 1/1 ")
RUN = ["reasoning-rl", "real/smollm2/reasoning_rl", "--steps", "1"]
LESS = [
    "--rollout.prompts", "2", "--rollout.per-prompt", "2", "--rollout.max-tokens", "8",
    "--problems.svamp", "0", "--evaluation.sources", "chain_sum", "--evaluation.problems", "4",
]  # fmt: skip


def questions(tokenizer: Any, count: int) -> list[list[int]]:
    """Requests for texts longer than what is sampled, as ids in the model's own template."""
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"Tell a long story that begins in the year {year}."}],
            add_generation_prompt=True,
            return_dict=False,
        )
        for year in range(1800, 1800 + count)
    ]


def tokens_per_second(call: Callable[[int], int], rounds: int) -> float:
    """The median of `rounds` timed calls after a first one; a call takes a seed and returns the
    tokens it sampled."""
    call(0)
    rates = []
    for seed in range(1, rounds + 1):
        began = time.perf_counter()
        count = call(seed)
        rates.append(count / (time.perf_counter() - began))
    return median(rates)


def ours(folder: str, count: int, tokens: int, rounds: int) -> float:
    """Tokens per second of our sampler."""
    from transformers import AutoTokenizer

    from veriloop.pipeline.config.sections import SamplerConfig
    from veriloop.pipeline.sampling.open import open_sampler
    from veriloop.pipeline.sampling.sampler import Sampling

    prompts = questions(AutoTokenizer.from_pretrained(folder), count)
    config = SamplerConfig.model_validate({"engine": "vllm", "dtype": "bfloat16"})
    sampler = open_sampler(config, folder, max_length=len(max(prompts, key=len)) + tokens,
                           say=print)  # fmt: skip

    def call(seed: int) -> int:
        how = Sampling(per_prompt=1, temperature=1.0, max_tokens=tokens, seed=seed)
        return sum(len(c.ids) for group in sampler.sample(prompts, how) for c in group)

    try:
        return tokens_per_second(call, rounds)
    finally:
        sampler.close()


def generated(folder: str, count: int, tokens: int, rounds: int, dtype: str) -> float:
    """Tokens per second of transformers' `generate` on a left-padded batch."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    batch = tokenizer.pad({"input_ids": questions(tokenizer, count)}, return_tensors="pt")
    end = tokenizer.eos_token_id

    def call(seed: int) -> int:
        torch.manual_seed(seed)
        ids = model.generate(
            **batch, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=tokens,
            eos_token_id=end, pad_token_id=tokenizer.pad_token_id,
        )[:, batch["input_ids"].shape[1] :]  # fmt: skip
        return sum(until_end(row, end) for row in ids.tolist())

    return tokens_per_second(call, rounds)


def until_end(ids: Sequence[int], end: int) -> int:
    """The length of an answer with its end-of-sequence id; what follows is padding."""
    return ids.index(end) + 1 if end in ids else len(ids)


def alone(function: Callable[..., float], *words: Any) -> float:
    """The result of a call in a process of its own, so that no way inherits another's memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *words).result()


def rates(folder: str, *, quick: bool) -> dict[str, float]:
    count, tokens = (QUICK_SEQUENCES, QUICK_TOKENS) if quick else (SEQUENCES, TOKENS)
    shape = (folder, count, tokens, 1 if quick else ROUNDS)
    return {OURS: alone(ours, *shape)} | {
        f"generate of transformers, {dtype}": alone(generated, *shape, dtype)
        for dtype in ("bfloat16", "float32")
    }


def beginning(folder: str, flags: Sequence[str]) -> dict[str, float]:
    """Seconds of a run until its first answers, and its longest silence until a step is done.

    Raises SystemExit when the command fails."""
    with tempfile.TemporaryDirectory(prefix="beginning-") as name:
        words = [*RUN, *flags, "--start", folder, "--output", f"{name}/run"]
        began = time.perf_counter()
        run = subprocess.Popen(
            [sys.executable, "-u", "-m", "veriloop.stages.cli", *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert run.stdout is not None
        lines = [(time.perf_counter() - began, line) for line in run.stdout]
        if run.wait():
            raise SystemExit(f"{words} failed:\n{''.join(line for _, line in lines)[-2000:]}")
        (metrics,) = Path(name).rglob("metrics.jsonl")
        return moments(lines, json.loads(metrics.read_text().partition("\n")[0]))


def moments(lines: Sequence[tuple[float, str]], step: Mapping[str, float]) -> dict[str, float]:
    """What `beginning` returns, from lines with the seconds when they came and the metrics of the
    first step."""
    counted = (at for at, line in lines if (found := EVALUATED.match(line)) and found[1] != "0")
    done = next(at for at, line in lines if FIRST_STEP.match(line))
    after = sum(step[f"time/{part}"] for part in ("update", "sync", "record"))
    times = [0.0, *(at for at, _ in lines if at <= done)]
    return {
        FIRST: next(counted, done - after),
        "those of the first step are graded": done - after,
        "the first optimizer step is done": done,
        SILENCE: max(later - earlier for earlier, later in pairwise(times)),
    }


def missed(rates: Mapping[str, float], seconds: Mapping[str, float]) -> list[str]:
    """The bounds that do not hold."""
    ratio = rates[OURS] / max(rate for way, rate in rates.items() if way != OURS)
    return [
        *([f"sampler: {ratio:.2f} x generate, wanted {RATIO:g}"] if ratio < RATIO else []),
        *(f"{name}: {seconds[name]:.1f} s, wanted {limit:g}"
          for name, limit in ((FIRST, FIRST_S), (SILENCE, SILENCE_S)) if seconds[name] > limit),
    ]  # fmt: skip


def main() -> int:
    options = arguments(
        "Measure how fast a published model samples, and how soon a run has its first answers.",
        model={"type": Path, "default": MODEL, "help": "the folder of the model"},
        svamp={"type": Path, "help": "file with SVAMP's questions; default: from the hub"},
    )
    if not (options.model / "config.json").is_file():
        raise SystemExit(f"{options.model} holds no model: sh requirements/published-model.sh")
    folder = str(options.model)
    sampled = rates(folder, quick=options.quick)
    svamp = ["--sets.svamp.path", str(options.svamp.resolve())] if options.svamp else []
    began = beginning(folder, LESS if options.quick else svamp)
    rows = [[way, rate, sampled[OURS] / rate] for way, rate in sampled.items()]
    text = "\n\n".join([
        table(["sampler", "tokens/s", "ours is faster by"], rows),
        table(["moment", "s after the command"], list(map(list, began.items()))),
    ])  # fmt: skip
    results = {"tokens_per_second": sampled, "seconds": began}
    failed = [] if options.quick else missed(sampled, began)
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
