"""A GRPO step of ours against TRL's, one core each in turn: equal questions, lengths and reward.

    python benchmarks/against_trl.py [--quick] [--json FILE] [--sizes 1M 10M] [--rounds N]

16 prompts x 8 answers of at most 80 tokens, from random models in float32 that seldom end early.
TRL gets an environment of its own (made once under outputs/cache) and is measured as it installs,
and at the best settings found: no gradient checkpointing, MKL told that the processor is Intel's,
bfloat16 where that helps. Every contender is a process of its own on one core, and waits while
another steps: A B C A B C. The figure is answer tokens a second.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from grpo_turns import QUESTIONS
from publish import ROOT, arguments, publish, table

from data import arithmetic, corpus, tokenizer
from pipeline.policy import save_policy
from pipeline.scribe import Scribe

TRL = "trl==1.16.0"
VOCABULARY = 512
STEPS = Path(__file__).with_name("grpo_turns.py")
WARM_UP = 2  # steps of each that are not counted
SIZES: Mapping[str, Mapping[str, int]] = {
    "1M": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "heads": 4},
    "10M": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "heads": 6},
}
BARS = {"1M": (2.0, 1.5), "10M": (4.0, 2.5)}  # times TRL as installed, times its best


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    side: str  # of grpo_turns.py
    settings: Mapping[str, Any]
    as_intel: bool = False  # MKL told so


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
    Contender(name="ours, torch", side="ours", settings={"sampler.engine": "torch"}),
)


def model_of(folder: Path, size: str) -> Path:
    """A random Qwen2 of this size with the tiny tokenizer, and the questions as TRL reads them."""
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, set_seed

    path, random = folder / size, Random(0)
    documents = (corpus.document(random, corpus.SOUND) for _ in range(4_000))
    spelling = tokenizer.train(documents, VOCABULARY)
    ends = {
        f"{end}_token_id": getattr(spelling, f"{end}_token_id") for end in ("bos", "eos", "pad")
    }
    shape = dict(SIZES[size])
    heads = shape.pop("heads")
    set_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            **ends,
            **shape,
        )
    )
    model.generation_config = GenerationConfig(**ends)
    save_policy(model, spelling, path)
    scribe = Scribe(spelling, model.generation_config)
    asked = (arithmetic.problem("rl", 0, index) for index in range(QUESTIONS))
    prompts = [spelling.decode(scribe.prompt(problem)[1:]) for problem in asked]
    (path / "prompts.json").write_text(json.dumps(prompts))
    return path


def trl_python() -> str:
    """The interpreter of an environment that holds TRL and what it asks for."""
    home = ROOT / "outputs/cache" / f"env-{TRL.replace('==', '-')}"
    python = home / "bin/python"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "torch==2.13.0", TRL], check=True)
        (home / "complete").touch()
    return str(python)


def as_intel(folder: Path) -> str:
    """A library to preload that tells MKL what it asks."""
    made = folder / "as_intel.so"
    source = folder / "as_intel.c"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return str(made)


class Process:
    """A contender that has started and waits."""

    def __init__(self, contender: Contender, model: Path, folder: Path) -> None:
        self.name, self.steps = contender.name, list[dict[str, float]]()
        core = min(os.sched_getaffinity(0))
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        if contender.as_intel:
            environment["LD_PRELOAD"] = as_intel(folder)
        python = trl_python() if contender.side == "trl" else sys.executable
        self.log = folder / f"{contender.name}.log"
        words = [python, str(STEPS), contender.side, str(model), json.dumps(contender.settings)]
        with self.log.open("w") as said:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *words],
                cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=said, text=True,
            )  # fmt: skip

    def step(self) -> dict[str, float]:
        """One step; what was printed beside the answer is passed over."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith('{"s"'):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def measured(size: str, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Every contender's steps in turn, the first ones of each left out."""
    model = model_of(folder, size)
    running = [Process(contender, model, folder) for contender in CONTENDERS]
    for turn in range(WARM_UP + rounds):
        for one in running:
            step = one.step()
            if turn >= WARM_UP:
                one.steps.append(step)
    for one in running:
        one.close()
    return [
        {
            "size": size,
            "name": one.name,
            "s": median(step["s"] for step in one.steps),
            "cpu_s": median(step["cpu_s"] for step in one.steps),
            "tokens": median(step["tokens"] for step in one.steps),
            "tokens_per_s": median(step["tokens"] / step["s"] for step in one.steps),
            "peak_gib": max(step["peak_gib"] for step in one.steps),
            "steps": one.steps,
        }
        for one in running
    ]


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that are missed."""
    missed: list[str] = []
    for size in dict.fromkeys(row["size"] for row in rows):
        rates = {row["name"]: row["tokens_per_s"] for row in rows if row["size"] == size}
        best = max(rate for name, rate in rates.items() if name.startswith("ours"))
        tuned = max(rate for name, rate in rates.items() if name.startswith("TRL"))
        for other, rate, bar in zip(
            ("as installed", "at its best"), (rates["TRL"], tuned), BARS[size], strict=True
        ):
            if best < bar * rate:
                missed.append(f"{size}: {best / rate:.2f} x TRL {other}, wanted {bar}")
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        sizes={"nargs": "+", "choices": list(SIZES), "default": list(SIZES)},
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
