"""Contenders that a benchmark measures in turn: each a process of its own on one core, which waits.

TRL runs in an environment of its own, made once under outputs/cache. A contender's script takes a
step for each line on its standard input and answers with one line of JSON.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from publish import ROOT

from veriloop.data import corpus, tokenizer
from veriloop.pipeline.model.policy import save_policy

TRL = "trl==1.16.0"
VOCABULARY = 512
SIZES: Mapping[str, Mapping[str, int]] = {
    "1M": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "heads": 4},
    "4M": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 5, "heads": 4},
    "10M": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "heads": 6},
    "30M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 9, "heads": 8},
    "60M": {"hidden_size": 640, "intermediate_size": 1792, "num_hidden_layers": 12, "heads": 10},
}
BFLOAT16: Mapping[str, Any] = {  # of ours: both engines in bfloat16
    "sampler.engine": "vllm", "sampler.dtype": "bfloat16",
    "trainer.compute": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    side: str  # the first word of its script; what begins with "trl" runs in TRL's environment
    settings: Mapping[str, Any]
    as_intel: bool = False  # MKL told that the processor is Intel's


def model_of(path: Path, shape: Mapping[str, Any], *, seed: int = 0) -> Path:
    """A random Qwen2 with the tiny tokenizer, saved at `path`. `shape` is an entry of `SIZES`, or
    that with further settings of the configuration."""
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, set_seed

    random = Random(0)
    documents = (corpus.document(random, corpus.DEFAULT_MIX) for _ in range(4_000))
    spelling = tokenizer.train(documents, VOCABULARY)
    ends = {
        f"{end}_token_id": getattr(spelling, f"{end}_token_id") for end in ("bos", "eos", "pad")
    }
    set_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "tie_word_embeddings": False,
        **shape,
    }  # fmt: skip
    heads = settings.pop("heads")
    config = Qwen2Config(num_attention_heads=heads, num_key_value_heads=heads, **ends, **settings)
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(**ends)
    save_policy(model, spelling, path)
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
    """A contender that has started and waits. `cores`: which it may use, one without them."""

    def __init__(
        self,
        contender: Contender,
        script: str,
        model: Path,
        folder: Path,
        cores: Sequence[int] = (),
    ) -> None:
        self.name, self.steps = contender.name, list[dict[str, Any]]()
        threads = {"OMP_NUM_THREADS": str(max(1, len(cores)))}
        environment = os.environ | threads | {"PYTHONWARNINGS": "ignore"}
        if contender.as_intel:
            environment["LD_PRELOAD"] = as_intel(folder)
        python = trl_python() if contender.side.startswith("trl") else sys.executable
        self.log = folder / f"{contender.name}.log"
        path = str(Path(__file__).with_name(script))
        words = [python, path, contender.side, str(model), json.dumps(contender.settings)]
        bound = ",".join(map(str, cores or [min(os.sched_getaffinity(0))]))
        with self.log.open("w") as said:
            self.process = subprocess.Popen(
                ["taskset", "-c", bound, *words],
                cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=said, text=True, start_new_session=True,
            )  # fmt: skip

    def step(self) -> dict[str, Any]:
        """One step; what was printed beside the answer is passed over. What it has begun of the
        next one stands still until then, with all its processes."""
        assert self.process.stdin and self.process.stdout
        self._signal(signal.SIGCONT)
        print(file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith('{"s"'):
                self._signal(signal.SIGSTOP)
                return json.loads(line)
        raise SystemExit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")

    def close(self) -> None:
        """Let it end by itself."""
        assert self.process.stdin
        self._signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait(60)

    def kill(self) -> None:
        """End it and all it has started, standing still or not."""
        with suppress(BrokenPipeError), self.process:  # of what was asked of one that is gone
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def in_turn(running: Sequence[Process], warm_up: int, rounds: int) -> list[dict[str, Any]]:
    """A step of each, A B C A B C; medians over those after the first `warm_up` of each. `first`
    is what the very first one told."""
    first: dict[str, dict[str, Any]] = {}
    with ExitStack() as ending:
        for one in running:
            ending.callback(one.kill)
        for turn in range(warm_up + rounds):
            for one in running:
                step = one.step()
                first.setdefault(one.name, step)
                if turn >= warm_up:
                    one.steps.append(step)
        for one in running:
            one.close()
    return [
        {
            "name": one.name,
            "s": median(step["s"] for step in one.steps),
            "cpu_s": median(step["cpu_s"] for step in one.steps),
            "tokens": median(step["tokens"] for step in one.steps),
            "tokens_per_s": median(step["tokens"] / step["s"] for step in one.steps),
            "peak_gib": max(step["peak_gib"] for step in one.steps),
            "first": first[one.name],
            "steps": one.steps,
        }
        for one in running
    ]
