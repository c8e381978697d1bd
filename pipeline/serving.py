"""A checkpoint behind OpenAI's /v1/completions, for as long as somebody asks: vLLM's own server in
a process beside this one, or the torch sampler in a thread of this one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pipeline.completions import CompletionRequest, Completions
from pipeline.config import SamplerConfig
from pipeline.failures import StageError
from pipeline.json_server import JsonServer
from pipeline.sampling.early import engine_of

LOCAL = "127.0.0.1"
# what `vllm serve` runs; that looks for a package by the name vllm, which the CPU wheel has not
SERVER = "vllm.entrypoints.openai.api_server"
START_S, END_S = 600.0, 20.0  # for vLLM to load a model, and to end
TOLD = 2_000  # characters of its log in an error


class CompletionServer(JsonServer):
    """What `Completions` answers, at /v1/completions."""

    largest = 1 << 26

    def __init__(self, address: tuple[str, int], checkpoint: Path, max_batch: int) -> None:
        self._completions = Completions(checkpoint, max_batch)
        super().__init__(address)

    def answer(self, path: str, asked: Any) -> dict[str, Any]:
        if path != "/v1/completions":
            raise ValueError(f"no {path}; POST to /v1/completions")
        return self._completions.answer(CompletionRequest.model_validate(asked))


@contextmanager
def served(checkpoint: Path, config: SamplerConfig, room: int, log: Path) -> Iterator[str]:
    """The server's URL. `room`: tokens of a prompt with its answer; `log`: where vLLM writes its
    own. Raises StageError where vLLM ends before it answers."""
    if engine_of(config) == "vllm":
        with _vllm(checkpoint, config, room, log) as url:
            yield url
        return
    with CompletionServer((LOCAL, 0), checkpoint, config.max_batch) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.url
        finally:
            server.shutdown()


@contextmanager
def _vllm(checkpoint: Path, config: SamplerConfig, room: int, log: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        port = free.getsockname()[1]
    words = vllm_words(checkpoint, config, room, port)
    with log.open("wb") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)
    try:
        _wait(process, f"http://{LOCAL}:{port}/health", log)
        yield f"http://{LOCAL}:{port}"
    finally:
        _end(process)


def vllm_words(checkpoint: Path, config: SamplerConfig, room: int, port: int) -> list[str]:
    """The command of vLLM's server. Nothing that the checkpoint says about sampling counts: only
    what is asked."""
    flags = {
        "host": LOCAL,
        "port": port,
        "dtype": config.dtype,
        "max-model-len": room,
        "max-num-seqs": config.max_batch,
        "kv-cache-memory-bytes": int(config.cache_gib * 2**30),
        "generation-config": "vllm",
    }
    named = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", SERVER, "--model", str(checkpoint), *named, "--enforce-eager"]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End vLLM with all processes of its own, whatever they do."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    ends = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < ends:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    told = log.read_text(errors="backslashreplace").strip()[-TOLD:]
    raise StageError(f"vllm serve does not answer; {log} ends with: {told or 'nothing'}")
