"""How far one driver carries a fleet of sampling servers: the product's own client and bookkeeping
under a virtual clock.

    python benchmarks/cluster_sim.py [--quick] [--json FILE]

Two vLLM servers on one core each are measured while both work: a decoding pass by the number of
sequences, and the reading of a prompt (10 M random parameters). In turn with that they take 256
asks for real; the same asks are simulated with the medians of the measured times. A pass takes
longer the more tokens it attends to, so passes are measured at the mean position of that run.
Last, 1 to 1,000 simulated servers take 96 asks each, of at most 2,048 tokens and about 900 on
average, after the weights were sent to all: by files, which is simulated, and by process groups,
which is only reckoned. That is repeated with other lengths; means are shown.

Only the servers are simulated (benchmarks/simulated_servers.py): `ServedSampler`, its fleet and its
HTTP client run as they are, and their time counts (benchmarks/virtual_clock.py). Not in it: the
network, the kernel's part of it, and grading. `--quick` measures little and simulates 8 servers.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import httpx2
import numpy as np
import torch
from contenders import SIZES, model_of
from publish import arguments, publish, table
from simulated_servers import SimulatedNetwork, Speed
from virtual_clock import virtual_time

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.served import ServedSampler
from veriloop.pipeline.sampling.transfer.groups import LARGEST
from veriloop.pipeline.sampling.vllm_server import server_arguments

ROOM, MAX_LENGTH = 32, 1024
BATCHES, PROMPTS, ROUNDS = (1, 8, 16, 32), 8, 3
PROMPT = tuple(range(10, 74))
ASKS, LONGEST = 256, 512  # of the measured run
FLEETS, QUICK_FLEETS = (1, 4, 16, 64, 256, 1000), (1, 8)
WAVES, MEAN, CAP = 3, 1024, 2048  # asks per place, tokens of a response
TURNS = 3  # of each fleet, with other lengths: the end of a turn waits for its longest responses
STORAGE_GIB_S = 10.0  # assumed: shared storage
NETWORK_GIB_S = 10.0  # assumed: what a process group sends to all of its members
MODEL_GIB = 14.2  # of 7.6 B parameters in bfloat16
AGREE, LINEAR = 0.10, 0.90
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
}  # fmt: skip


@contextmanager
def servers(folder: Path, count: int) -> Iterator[list[str]]:
    """Addresses of vLLM servers, each on a core of its own where there are as many."""
    cores = sorted(os.sched_getaffinity(0))
    config = SamplerConfig.model_validate({"engine": "vllm", "max_batch": ROOM, "cache_gib": 0.5})
    words = server_arguments(config, str(folder), max_length=MAX_LENGTH, gpus=0)
    running: list[subprocess.Popen[bytes]] = []
    urls: list[str] = []
    try:
        for number in range(count):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            with (folder.parent / f"server-{number}.log").open("wb") as log:
                core = str(cores[number % len(cores)])
                running.append(
                    subprocess.Popen(
                        ["taskset", "-c", core, sys.executable, "-m",
                         "vllm.entrypoints.openai.api_server", *words, "--host", "127.0.0.1",
                         "--port", str(port)],
                        env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log,
                        start_new_session=True,
                    )
                )  # fmt: skip
            urls.append(f"http://127.0.0.1:{port}")
        yield urls
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)  # with its engine and worker
            process.wait()


def sampler_of(
    urls: Sequence[str], folder: Path, run: Path, room: int, max_length: int, **further: Any
) -> ServedSampler:
    cluster = {"samplers": {"urls": list(urls)}, "deadlines": {"answer_s": 86400, "sync_s": 86400}}
    return ServedSampler(
        ClusterConfig.model_validate(cluster), SamplerConfig(max_batch=room), str(folder), run,
        max_length=max_length, say=lambda _: None, **further,
    )  # fmt: skip


def sampling(tokens: int, per_prompt: int, seed: int = 1) -> Sampling:
    return Sampling(per_prompt=per_prompt, temperature=1.0, max_tokens=tokens, seed=seed)


def passes_like(lengths: Sequence[int]) -> int:
    """The length of responses whose tokens lie at the mean position of tokens of these: a response
    of n tokens has n of them, at n / 2 on average."""
    return round(sum(n * n for n in lengths) / sum(lengths))


def measured_speed(urls: Sequence[str], passes: int) -> Speed:
    """The times of servers that work at once, as they do in a run: by requests of fixed lengths,
    of which `batch` are open at each. Decoding is timed over so many passes."""
    limits = httpx2.Limits(max_connections=None)
    with (
        httpx2.Client(timeout=600, limits=limits, trust_env=False) as client,
        ThreadPoolExecutor(BATCHES[-1] * len(urls)) as pool,
    ):

        def ask(url: str, tokens: int, requests: int) -> None:
            body = {"token_ids": list(PROMPT), "sampling_params": {
                "max_tokens": tokens, "ignore_eos": True, "logprobs": 0, "detokenize": False,
                "temperature": 1.0, "seed": 3, "n": 1}}  # fmt: skip
            for _ in range(requests):
                client.post(f"{url}/inference/v1/generate", json=body).raise_for_status()

        def seconds(batch: int, tokens: int, requests: int = 1) -> float:
            began = time.perf_counter()
            list(pool.map(lambda url: ask(url, tokens, requests), [*urls] * batch))
            return time.perf_counter() - began

        taken: dict[int, float] = {}
        for batch in BATCHES:
            seconds(batch, 2)
            # of two lengths: reading prompts and the way to the server are in both
            taken[batch] = (seconds(batch, 2 + passes) - seconds(batch, 2)) / passes
        sequence_s, pass_s = np.polyfit(list(taken), list(taken.values()), 1)
        # a response of one token takes a prompt and its share of a pass
        each_s = seconds(ROOM, 1, PROMPTS) / (ROOM * PROMPTS)
        prompt_s = each_s - taken[ROOM] / ROOM
    return Speed(pass_s=float(pass_s), sequence_s=float(sequence_s), prompt_s=prompt_s, room=ROOM)


def simulated(
    urls: Sequence[str], folder: Path, speed: Speed, prompts: Sequence[Sequence[int]],
    how: Sampling, length: Callable[[int], int], *, weights_gib: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """Virtual seconds of sending weights and of sampling, and those that the driver computes."""
    network = SimulatedNetwork(
        speed, length, storage_s=weights_gib / STORAGE_GIB_S, max_length=CAP + len(PROMPT)
    )
    with virtual_time() as clock, tempfile.TemporaryDirectory() as run:
        room, positions = speed.room, len(prompts[0]) + how.max_tokens
        sampler = sampler_of(urls, folder, Path(run), room, positions, transport=network)
        sampler.load_weights([("weight", torch.zeros(1))], 1)
        sampler.sample(prompts, how)
    sync, turn = clock.loops
    tokens = sum(map(length, seeds(how, len(prompts))))
    return {"sync_s": sync.time(), "sampling_s": turn.time(), "driver_s": turn.computed_s,
            "tokens": tokens}  # fmt: skip


def seeds(how: Sampling, prompts: int) -> range:
    """Those of the requests of a `ServedSampler`."""
    first = how.seed * 1_000_003
    return range(first, first + prompts * how.per_prompt)


def two_servers(folder: Path, *, quick: bool) -> dict[str, Any]:
    """A measured run of two servers, and its simulation."""
    rounds, asks = (1, 16) if quick else (ROUNDS, ASKS)
    with servers(folder, 2) as urls, tempfile.TemporaryDirectory() as run:
        sampler = sampler_of(urls, folder, Path(run), ROOM, MAX_LENGTH)
        policy = load_policy(str(folder))
        sampler.load_weights(((n, w) for n, w in policy.state_dict().items()), 1)
        prompts, how = [PROMPT] * asks, sampling(32 if quick else LONGEST, 1)
        completions = sampler.sample(prompts, how)  # both warm up
        tokens = [len(completion.ids) for (completion,) in completions]
        taken, speeds = list[float](), list[Speed]()
        for _ in range(rounds):  # in turn, as a machine has faster and slower minutes
            speeds.append(measured_speed(urls, passes_like(tokens)))
            began = time.perf_counter()
            sampler.sample(prompts, how)
            taken.append(time.perf_counter() - began)
        speed = Speed(
            **{name: median(getattr(speed, name) for speed in speeds)
               for name in ("pass_s", "sequence_s", "prompt_s")}, room=ROOM,
        )  # fmt: skip
        lengths = dict(zip(seeds(how, asks), tokens, strict=True))
    again = simulated(
        ["http://server-0", "http://server-1"], folder, speed, prompts, how, lengths.__getitem__
    )
    return {
        "speed": asdict(speed), "asks": asks, "tokens": again["tokens"],
        "measured_s": median(taken), "simulated_s": again["sampling_s"], "all_s": taken,
    }  # fmt: skip


def fleet(folder: Path, speed: Speed, count: int) -> dict[str, float]:
    """A turn of `count` servers, the mean of TURNS."""
    turns = [turn(folder, speed, count, seed) for seed in range(1, TURNS + 1)]
    return {"servers": count} | {name: fmean(t[name] for t in turns) for name in turns[0]}


def turn(folder: Path, speed: Speed, count: int, seed: int) -> dict[str, float]:
    urls = [f"http://server-{number}" for number in range(count)]
    how = sampling(CAP, ROOM, seed)
    # lengths as of an end that is equally likely after each token
    lengths = {number: 1 + min(int(Random(number).expovariate(1 / MEAN)), CAP - 1)
               for number in seeds(how, WAVES * count)}  # fmt: skip
    prompts = [PROMPT] * (WAVES * count)
    taken = simulated(urls, folder, speed, prompts, how, lengths.__getitem__,
                      weights_gib=MODEL_GIB)  # fmt: skip
    groups_s = -(-count // LARGEST) * MODEL_GIB / NETWORK_GIB_S
    return {**taken, "groups_s": groups_s}


def shares(turns: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The turns with the tokens per second of a server relative to the smallest fleet's."""
    rates = [t["tokens"] / t["sampling_s"] / t["servers"] for t in turns]
    return [t | {"share": rate / rates[0]} for t, rate in zip(turns, rates, strict=True)]


PARTS = {
    "sync_s": "sending weights by shared storage",
    "groups_s": "sending weights by process groups",
    "driver_s": "the driver's one thread",
}


def broken(turns: Sequence[dict[str, float]]) -> list[str]:
    """What takes more than a tenth of a turn, from which fleet on, in this order."""
    crossed: dict[str, str] = {}
    for turn in turns:
        for key, name in PARTS.items():
            if turn[key] > 0.1 * turn["sampling_s"]:
                crossed.setdefault(key, f"{name}, at {turn['servers']:,} servers")
    return list(crossed.values())


def main() -> int:
    options = arguments("Simulate the driver of a fleet of sampling servers.")
    gc.freeze()  # what was imported, as the commands of veriloop do (training/gc_freeze.py)
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        folder = model_of(Path(name) / "model", SIZES["10M"])
        two = two_servers(folder, quick=options.quick)
        speed = Speed(**two["speed"])
        turns = shares([fleet(folder, speed, count)
                        for count in (QUICK_FLEETS if options.quick else FLEETS)])  # fmt: skip
    gap = two["simulated_s"] / two["measured_s"] - 1
    text = "\n".join([
        f"two servers, {two['asks']} asks: measured {two['measured_s']:.2f} s, "
        f"simulated {two['simulated_s']:.2f} s ({gap:+.1%})", "",
        table(["servers", "files s", "groups s", "sampling s", "driver s", "sampling, of linear"],
              [[str(t["servers"]), t["sync_s"], t["groups_s"], t["sampling_s"], t["driver_s"],
                t["share"]] for t in turns]), "",
        "these take a tenth of a turn first, in this order: "
        f"{'; '.join(broken(turns)) or 'nothing'}",
    ])  # fmt: skip
    failed = [f"two servers: simulated {gap:+.1%} of measured, wanted within {AGREE:.0%}"
              ] if abs(gap) > AGREE else []  # fmt: skip
    failed += [f"{t['servers']} servers: {t['share']:.2f} of linear, wanted {LINEAR:.2f}"
               for t in turns if t["share"] < LINEAR]  # fmt: skip
    results = {"two_servers": two, "turns": turns, "breaks": broken(turns)}
    return publish(options, text, results, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
