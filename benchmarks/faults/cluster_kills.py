"""Kill -9 parts of a run on two ranks at random moments and resume it until it is done.

    python benchmarks/faults/cluster_kills.py [--kills N] [--seed N] [--parts A,B] [--quick]
        [--folder DIR] [--json FILE]

Parts: a rank other than 0, rank 0, the launcher, one of two servers that sample, one of two reward
services that judge, and the raylet of one of two Ray nodes, on each of which Ray has placed a
server. The ranks are forked by torchrun's own agent from a process that has imported veriloop; the
servers are stand-ins without vLLM. Every run must end with the checkpoint, metrics and rollouts of
an undisturbed one, bit for bit, and say which part died. In half of the runs a killed server,
service or node is started again. With --folder the command can be stopped, and the same command
goes on with the kills that are missing.
"""

import argparse
import ctypes
import importlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
import raylets
import service_kills
from kills import descendants
from publish import ROOT, arguments, publish, table
from ray_nodes import RayNodes
from tiny_stages import Command, differences, models, preload, recipe, result, stage_command

from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.provenance import git

RANKS = 2
RANKED = ("rank 1", "rank 0", "launcher")
PARTS = (*RANKED, "server", service_kills.PART, raylets.PART)
OPTIONS: dict[str, dict[str, Any]] = {
    "kills": {"type": int, "default": 20, "help": "kills of each part"},
    "seed": {"type": int, "default": 0, "help": "of the moments"},
    "parts": {"default": ",".join(PARTS), "help": "what is killed, with commas"},
    "folder": {"type": Path, "help": "where kills are kept; default: a new folder"},
}
ENDS_S = 60.0  # for the processes of a run after its end
# What ranks import besides what `preload` does.
IMPORTED = ("pandas", "torch.distributed.launcher.api", "veriloop.stages.rank_worker")
_PR_SET_PDEATHSIG = 1
STARTS_S = 120.0  # for a rank to begin
LATEST = 0.8  # share of the undisturbed run's time; a later kill often finds the run ended
MET = "the trainer is on"  # what a run says when its ranks have met
RETRY = 0.25  # share of the runs whose resumption is killed too


@dataclass(kw_only=True)
class Kill:
    """One kill and the outcome of the run."""

    part: str
    at_s: float  # after the part began
    code: int | None = None  # of the run; None: it had ended before, which is no kill
    again_s: float | None = None  # after which a killed server began again
    differences: list[str] = field(default_factory=list)


def launch(words: Sequence[str], folder: Path) -> int:
    """The command under torchrun's agent, which forks its ranks."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=RANKS,
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="fork",
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, _rank)(list(words), str(folder))
    except ChildFailedError as failure:
        print(failure, flush=True)
        return 1
    return 0


def _rank(words: list[str], folder: str) -> None:
    from veriloop.stages.cli import entry

    # torchrun's own ranks, which are not forked, hear nothing of its end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    # Renamed, so that whoever sees the file sees all of it.
    fresh = Path(folder) / f"{os.getpid()}.pid"
    fresh.write_text(str(os.getpid()))
    fresh.rename(Path(folder) / f"rank_{os.environ['RANK']}.pid")
    os.chdir(folder)
    sys.argv[:] = ["veriloop", *words]
    agent = os.getppid()
    if code := entry():
        raise SystemExit(code)
    if os.getppid() != agent:  # which a forked rank would wait for
        os._exit(0)


def ranked(folder: Path, values: dict[str, Any]) -> Command:
    """The command that runs or resumes the stage in `folder` on several ranks."""
    command = stage_command("zero", folder, values, "--cluster.trainer.ranks", str(RANKS))
    command.answer = lambda: launch(command.words, folder)
    return command


def kept(path: Path, key: dict[str, Any]) -> list[Kill]:
    """The kills of earlier commands. Raises SystemExit if they have another `key`, or may."""
    if not path.exists():
        return []
    known = json.loads(path.read_bytes())
    if known["key"] != key or key["git"]["dirty"] is not False:
        raise SystemExit(f"{path} has kills of other code or another seed: name another folder")
    return [Kill(**kill) for kill in known["kills"]]


def keep(path: Path, key: dict[str, Any], kills: Sequence[Kill]) -> None:
    """Write all kills for the next command."""
    content = json.dumps({"key": key, "kills": [asdict(kill) for kill in kills]})
    write_atomically(path, lambda fresh: fresh.write_text(content))


def started(command: Command, part: str) -> int:
    """Start the run; the process of the part, once it exists."""
    for path in command.folder.glob("rank_*.pid"):
        path.unlink()
    command.start()
    rank = 1 if part == "rank 1" else 0
    path = command.folder / f"rank_{rank}.pid"
    until = time.monotonic() + STARTS_S
    while not path.exists():
        if time.monotonic() > until or not command.runs:
            raise SystemExit(f"{part} did not begin: {command.said[-2000:]}")
        time.sleep(0.005)
    return command.pid if part == "launcher" else int(path.read_text())


def undisturbed(
    command: Command, wrong: Callable[[Command], str] = lambda _: ""
) -> tuple[float, dict[str, Any]]:
    """Seconds of a whole run, and its result. `wrong`: what is wrong with it while it runs."""
    started(command, "rank 0")
    began = time.monotonic()
    failure = wrong(command)
    if command.ended() != 0 or failure:
        raise SystemExit(f"the undisturbed run failed: {failure} {command.said[-2000:]}")
    return time.monotonic() - began, result(command.folder)


def named(part: str, pid: int, said: str) -> bool:
    """Whether the output of a run says that this part died."""
    if part == "launcher":
        return f"torchrun (process {pid}), which started rank " in said
    return f"(pid: {pid})" in said and "SIGKILL" in said


def disturbed(command: Command, kill: Kill) -> list[str]:
    """Run until the kill ends it; returns what is wrong with its end."""
    log = command.folder / command.name
    before = len(log.read_text(errors="replace")) if log.exists() else 0
    pid = started(command, kill.part)
    # Until they have met, forked ranks keep the socket of the launcher's store open, unlike others.
    while kill.part == "launcher" and command.runs and MET not in command.said[before:]:
        time.sleep(0.02)
    time.sleep(kill.at_s)
    left = descendants(command.pid)
    if not command.runs:
        return [] if command.ended() == 0 else [f"it failed by itself: {command.said[-300:]!r}"]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    kill.code = command.ended()
    until = time.monotonic() + ENDS_S
    while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < until:
        time.sleep(0.02)
    survivors = [line for pid, line in left.items() if Path(f"/proc/{pid}").exists()]
    wrong = [f"still running: {line[:60]!r}" for line in survivors]
    # Within a second of the launcher's end a run may be done, and has nothing to say.
    done = kill.part == "launcher" and _is_done(command.folder)
    if kill.code and not done and not named(kill.part, pid, command.said[before:]):
        wrong.append(f"the output does not say what died: {command.said[before:][-300:]!r}")
    return wrong


def _is_done(folder: Path) -> bool:
    path = folder / "run/run.json"
    stages = json.loads(path.read_bytes())["stages"] if path.exists() else []
    return [stage["status"] for stage in stages] == ["done"]


def killed(
    part: str, folder: Path, values: dict[str, Any], draw: random.Random, duration_s: float
) -> list[Kill]:
    """Kill a run, maybe twice, and resume it until it is done; the last kill has what is wrong
    with the end."""
    kills = []
    while not kills or (kills[-1].code and draw.random() < RETRY):
        kill = Kill(part=part, at_s=draw.uniform(0, LATEST * duration_s))
        kill.differences = disturbed(ranked(folder, values), kill)
        kills.append(kill)
    command = ranked(folder, values).start()
    if (code := command.ended()) != 0:
        kills[-1].differences.append(f"the resumed run ends with {code}: {command.said[-300:]!r}")
    return kills


def of_ranks(
    part: str, folder: Path, values: dict[str, Any], draw: random.Random, count: int
) -> Iterator[list[Kill]]:
    """Runs of two ranks: an undisturbed one, then others until `count` kills of the part."""
    name = part.replace(" ", "_")
    command = ranked(folder / "whole" / name, values)
    duration_s, whole = undisturbed(command)
    counted, number = 0, 0
    while counted < count:
        own = folder / f"{name}-{number:04d}"
        kills = killed(part, own, values, draw, duration_s)
        kills[-1].differences += [*differences(result(own), whole), *asks(own, values)]
        counted, number = counted + _counted(kills, part), number + 1
        yield kills


class Servers:
    """Two stand-ins that sample with the start's model, each in a process, on fixed ports."""

    def __init__(self, start: Path, folder: Path) -> None:
        self._start, self._folder = start, folder
        self.ports = [_free_port() for _ in range(2)]
        self._commands: dict[int, Command] = {}

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def begin(self, port: int) -> None:
        command = Command(words=[], folder=self._folder, name=f"{port}.log")
        command.answer = lambda: _serve(self._start, port)
        self._commands[port] = command.start()

    def kill(self, port: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._commands[port].pid, signal.SIGKILL)
        self._commands.pop(port).ended()

    @contextmanager
    def running(self) -> Iterator[None]:
        for port in self.ports:
            self.begin(port)
        try:
            yield
        finally:
            for port in [*self._commands]:
                self.kill(port)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _serve(start: Path, port: int) -> int:
    from tests.vllm_stand_in import StandIn, serving
    from veriloop.pipeline.sampling.torch_engine import TorchSampler

    with serving(StandIn(TorchSampler(str(start))), port):
        signal.pause()
    return 0


def unserved(
    servers: Servers, folder: Path, values: dict[str, Any], draw: random.Random, duration_s: float
) -> Kill:
    """Kill a server of a run; in half of the runs it begins again."""
    kill = Kill(part="server", at_s=draw.uniform(0, LATEST * duration_s))
    if draw.random() < 0.5:
        kill.again_s = draw.uniform(0, 1.0)
    port = draw.choice(servers.ports)
    with servers.running():
        command = ranked(folder, values)
        started(command, "rank 0")
        time.sleep(kill.at_s)
        record = folder / "run/zero/evaluations.jsonl"
        asks = not record.exists() or record.read_bytes().count(b"\n") < 2
        servers.kill(port)
        if kill.again_s is not None:
            time.sleep(kill.again_s)
            servers.begin(port)
        code = command.ended()
    said = command.said
    if code != 0:
        kill.differences.append(f"the run ends with {code}: {said[-300:]!r}")
    if asks:
        kill.code = code
        # One that is back before anybody asked it gets the weights at the next sync as before.
        missed = kill.again_s is None
        if missed and f"the server http://127.0.0.1:{port} is left out" not in said:
            kill.differences.append(f"the output does not name the server: {said[-300:]!r}")
    return kill


def on_servers(
    folder: Path, values: dict[str, Any], draw: random.Random, count: int
) -> Iterator[list[Kill]]:
    """Runs on two servers: an undisturbed one, then others until one of the servers was killed in
    `count` of them."""
    servers = Servers(Path(values["start"]), folder / "servers")
    samplers = {"urls": servers.urls}
    asked = values | {
        "sampler": {"max_batch": 8},
        "cluster": {"samplers": samplers, "deadlines": {"sync_s": 10.0, "answer_s": 10.0}},
    }
    with servers.running():
        duration_s, whole = undisturbed(ranked(folder / "whole" / "server", asked))
    kills: list[Kill] = []
    while _counted(kills, "server") < count:
        own = folder / f"server-{len(kills):04d}"
        kill = unserved(servers, own, asked, draw, duration_s)
        kill.differences += [*differences(result(own), whole), *asks(own, asked)]
        kills.append(kill)
        yield [kill]


def unjudged(
    folder: Path, values: dict[str, Any], draw: random.Random, count: int
) -> Iterator[list[Kill]]:
    """Runs that two reward services judge: an undisturbed one, then others until one of the
    services was killed in `count` of them."""
    ports = [_free_port() for _ in range(2)]
    with service_kills.running(folder / "services", ports) as services:
        asked = values | {"verifier_service": services.urls}
        command = ranked(folder / "whole" / service_kills.PART, asked)
        duration_s, whole = undisturbed(command)
        kills: list[Kill] = []
        while _counted(kills, service_kills.PART) < count:
            services.renew()
            kill = Kill(part=service_kills.PART, at_s=draw.uniform(0, LATEST * duration_s))
            kill.again_s = draw.uniform(0, 1.0) if draw.random() < 0.5 else None
            command = ranked(folder / f"{service_kills.PART}-{len(kills):04d}", asked)
            started(command, "rank 0")
            time.sleep(kill.at_s)
            kill.code, wrong = service_kills.killed(services, command, kill.again_s, draw)
            ended = differences(result(command.folder), whole)
            kill.differences = [*wrong, *ended, *asks(command.folder, asked)]
            kills.append(kill)
            yield [kill]


def unplaced(
    nodes: RayNodes, folder: Path, values: dict[str, Any], draw: random.Random, duration_s: float
) -> Kill:
    """Kill the raylet of one node of a run; in half of the runs the node begins again."""
    kill = Kill(part=raylets.PART, at_s=draw.uniform(0, LATEST * duration_s))
    if draw.random() < 0.5:
        kill.again_s = draw.uniform(0, 1.0)
    raylets.renewed(nodes)
    command = ranked(folder, values)
    started(command, "rank 0")
    time.sleep(kill.at_s)
    if not command.runs:
        code = command.ended()
    else:
        kill.code, kill.differences = raylets.killed(nodes, command, kill.again_s)
        code = kill.code
    if code != 0 and (code := ranked(folder, values).start().ended()) != 0:
        kill.differences.append(f"the resumed run ends with {code}: {command.said[-300:]!r}")
    return kill


def on_raylets(
    folder: Path, values: dict[str, Any], draw: random.Random, count: int
) -> Iterator[list[Kill]]:
    """Runs on two Ray nodes: an undisturbed one, then others until `count` were killed."""
    with raylets.stand_ins(folder / "nodes") as nodes:
        asked = raylets.on_nodes(values, nodes)
        command = ranked(folder / "whole" / raylets.PART, asked)
        duration_s, whole = undisturbed(command, partial(raylets.misplaced, nodes))
        kills: list[Kill] = []
        while _counted(kills, raylets.PART) < count:
            own = folder / f"{raylets.PART}-{len(kills):04d}"
            kill = unplaced(nodes, own, asked, draw, duration_s)
            kill.differences += [*differences(result(own), whole), *asks(own, asked)]
            kills.append(kill)
            yield [kill]


def asks(folder: Path, values: dict[str, Any]) -> list[str]:
    """What is wrong with the answers on record: each ask of each step has one."""
    from veriloop.pipeline.runs.rollout_file import read_rollouts

    rollout, wrong = values["rollout"], []
    for step in range(1, values["steps"] + 1):
        path = folder / f"run/zero/rollouts/step_{step:06d}.parquet"
        groups = Counter(row["group"] for row in read_rollouts(path)) if path.exists() else {}
        wanted = {f"{step}/{i}": rollout["per_prompt"] for i in range(rollout["prompts"])}
        if groups != wanted:
            wrong.append(f"step {step} has the answers {dict(groups)}, not {wanted}")
    return wrong


METHODS = {part: partial(of_ranks, part) for part in RANKED} | {
    "server": on_servers,
    service_kills.PART: unjudged,
    raylets.PART: on_raylets,
}


def _counted(kills: Sequence[Kill], part: str) -> int:
    """Kills of a part that ran."""
    return sum(kill.part == part and kill.code is not None for kill in kills)


def _published(options: argparse.Namespace, parts: Sequence[str], kills: Sequence[Kill]) -> int:
    """Print and write the outcome; returns the exit code."""
    failed = [f"{k.part} after {k.at_s:.2f} s: {d}" for k in kills for d in k.differences]
    rows = [
        [part, str(_counted(own, part)), str(sum(bool(k.differences) for k in own))]
        for part in parts
        if (own := [k for k in kills if k.part == part])
    ]
    text = table(["killed", "kills", "with a difference"], rows)
    return publish(options, text, [asdict(k) for k in kills], failed=failed)


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="cluster-kills-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    for name in IMPORTED:
        importlib.import_module(name)
    few = options.quick and options.parts == OPTIONS["parts"]["default"]
    parts = ["rank 1", "server"] if few else options.parts.split(",")
    if unknown := set(parts) - {*PARTS}:
        raise SystemExit(f"--parts: no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    count = 1 if options.quick else options.kills
    path, key = folder / "kills.json", {"git": git(ROOT), "seed": options.seed}
    kills = kept(path, key)
    work = Path(tempfile.mkdtemp(prefix="runs-", dir=folder))
    values = recipe("zero", models(work / "models", ["zero"]))
    values["rollout"] = {**values["rollout"], "ahead": 0}
    for part in parts:
        lacking = count - _counted(kills, part)
        draw = random.Random(f"{options.seed}/{part}/{len(kills)}")
        for group in METHODS[part](work, values, draw, lacking) if lacking > 0 else ():
            print(*group, sep="\n", file=sys.stderr, flush=True)
            kills += group
            keep(path, key, kills)
    return _published(options, parts, kills)


if __name__ == "__main__":
    sys.exit(main())
