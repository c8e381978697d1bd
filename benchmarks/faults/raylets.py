"""Runs whose servers Ray places on two nodes of this machine; one node is killed.

The servers are stand-ins without vLLM. The head, to which the run is joined, is never killed.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from publish import ROOT
from ray_nodes import RayNodes, ray_nodes
from tiny_stages import Command

from veriloop.pipeline.sampling import ray_servers

PART = "raylet"
VICTIM = 1  # the number of the node that is killed
STAND_IN = (sys.executable, str(ROOT / "tests/vllm_stand_in.py"), "--torch")
DEADLINES = {"sync_s": 180.0, "answer_s": 20.0}  # a server begins to listen late on a busy machine
EVALUATIONS = 2  # of a run: one before and one after its steps
PLACED_S = 60.0  # for a server on each node


def on_nodes(values: Mapping[str, Any], nodes: RayNodes) -> dict[str, Any]:
    """The recipe with two servers that Ray starts."""
    samplers = {"count": 2, "gpus": 0}
    cluster = {"ray": nodes.address, "samplers": samplers, "deadlines": DEADLINES}
    return {**values, "sampler": {"max_batch": 8}, "cluster": cluster}


@contextmanager
def stand_ins(folder: Path) -> Iterator[RayNodes]:
    """Two nodes; runs that are forked inside the block let Ray start stand-ins on them."""
    server, environment = ray_servers.SERVER, dict(os.environ)
    with ray_nodes(folder) as nodes:
        ray_servers.SERVER = STAND_IN
        os.environ.update(nodes.environment)
        try:
            yield nodes
        finally:
            ray_servers.SERVER = server
            os.environ.clear()
            os.environ.update(environment)


def renewed(nodes: RayNodes) -> None:
    """Start the victim if it was killed."""
    if not nodes.runs(VICTIM):
        nodes.begin(VICTIM)


def misplaced(nodes: RayNodes, command: Command) -> str:
    """What is wrong with the places of the servers, "" if Ray has started one on each node."""
    until = time.monotonic() + PLACED_S
    while command.runs and time.monotonic() < until:
        if sorted(nodes.servers().values()) == [0, VICTIM]:
            return ""
        time.sleep(0.2)
    return f"Ray has placed the servers on the nodes {nodes.servers()}, not one on each"


def names(url: str, said: str) -> bool:
    """Whether the output says that this server is lost or left out."""
    return f"the server {url} is lost" in said or f"the server {url} is left out" in said


def killed(
    nodes: RayNodes, command: Command, again_s: float | None
) -> tuple[int | None, list[str]]:
    """Kill the victim, and maybe start it again; the exit code of the run and what is wrong with
    its output, which must name a server that has sampled if any was asked afterwards."""
    record = command.folder / "run/zero/evaluations.jsonl"
    asks = not record.exists() or record.read_bytes().count(b"\n") < EVALUATIONS
    lost = [url for url, number in nodes.servers().items() if number == VICTIM]
    known = [url for url in lost if asks and f"the server {url} samples" in command.said]
    nodes.kill(VICTIM)
    if again_s is not None:
        time.sleep(again_s)
        nodes.begin(VICTIM)
    code, said = command.ended(), command.said
    silent = [url for url in known if not names(url, said)]
    return code, [f"the output does not name {url}: {said[-300:]!r}" for url in silent]
