"""Contenders that a benchmark measures in turn: each is a separate process on one core.

TRL runs in a separate environment, created once under outputs/cache. A contender's script takes a
step for each line on its standard input and answers with one line of JSON.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from publish import ROOT

from veriloop.data import corpus
from veriloop.data.tokenizer import train
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
    """A random Qwen2 with the tiny tokenizer, saved at `path`. `shape` is an entry of `SIZES`,
    optionally with further settings of the configuration."""
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, set_seed

    random = Random(0)
    documents = (corpus.document(random, corpus.DEFAULT_MIX) for _ in range(4_000))
    tokenizer = train(documents, VOCABULARY)
    ends = {
        f"{end}_token_id": getattr(tokenizer, f"{end}_token_id") for end in ("bos", "eos", "pad")
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
    save_policy(model, tokenizer, path)
    return path


def trl_python() -> str:
    """The interpreter of an environment with TRL and its requirements."""
    home = ROOT / "outputs/cache" / f"env-{TRL.replace('==', '-')}"
    python = home / "bin/python"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "torch==2.13.0", TRL], check=True)
        (home / "complete").touch()
    return str(python)


def as_intel(folder: Path) -> str:
    """A library to preload that makes MKL treat the processor as Intel's."""
    library = folder / "as_intel.so"
    source = folder / "as_intel.c"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


class Process:
    """A contender that has started and waits. `cores`: those that it may use; by default one."""

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
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", bound, *words],
                cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def step(self) -> dict[str, Any]:
        """Take one step; other output than the answer is ignored. Between steps all processes of
        the contender are stopped, including work ahead on the next step."""
        assert self.process.stdin and self.process.stdout
        self._signal(signal.SIGCONT)
        print(file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith('{"s"'):
                self._signal(signal.SIGSTOP)
                return json.loads(line)
        raise SystemExit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")

    def close(self) -> None:
        """Let the process end by itself."""
        assert self.process.stdin
        self._signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait(60)

    def kill(self) -> None:
        """Kill the process and all its descendants, stopped ones too."""
        with suppress(BrokenPipeError), self.process:  # of what was asked of one that is gone
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def in_turn(
    running: Sequence[Process], warm_up: int, rounds: int, *, seconds: float = math.inf
) -> list[dict[str, Any]]:
    """Step all contenders in turn, A B C A B C. Medians are over the steps after the first
    `warm_up` of each; `first` is the answer to the very first step. No round but the first begins
    after so many seconds."""
    first: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    with ExitStack() as ending:
        for process in running:
            ending.callback(process.kill)
        for turn in range(warm_up + rounds):
            if turn > warm_up and time.monotonic() - began > seconds:
                break
            for process in running:
                step = process.step()
                first.setdefault(process.name, step)
                if turn >= warm_up:
                    process.steps.append(step)
        for process in running:
            process.close()
    return [
        {
            "name": process.name,
            "s": median(step["s"] for step in process.steps),
            "cpu_s": median(step["cpu_s"] for step in process.steps),
            "tokens": median(step["tokens"] for step in process.steps),
            "tokens_per_s": median(step["tokens"] / step["s"] for step in process.steps),
            "peak_gib": max(step["peak_gib"] for step in process.steps),
            "first": first[process.name],
            "steps": process.steps,
        }
        for process in running
    ]
