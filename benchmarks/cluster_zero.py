"""R1-Zero in one process and on a cluster of this machine: rewards, tokens of each server, syncs.

    python benchmarks/cluster_zero.py [--quick] [--json FILE] [--seeds N ...] [--steps N]
                                      [--prompts N] [--folder DIR]

`recipes/tiny/zero.yaml` with 40 steps of 16 questions and 128 held-out problems, twice for each
seed, with the same base model and questions. One run is a single process with vLLM. The other has
two Ray nodes of one CPU each, on which Ray places one vLLM server each, two training ranks under
torchrun, and reward services. Half an hour on two cores, without the base models.

Compared is the mean reward of the last LAST steps. It must lie within the 95 % interval of that of
the single process, seed by seed, and the 95 % interval of the differences over the seeds must lie
within +-MARGIN. The unit of the first interval is the group of answers to one question, because
answers to one question are alike; it holds the noise of questions and answers, of which the runs
share the questions. Two runs of one seed drift apart as they learn from other answers: that noise
is in the second interval alone. Each server must sample at least SHARE of the tokens.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from urllib.request import urlopen

from paired import differs, interval
from publish import ROOT, arguments, publish, table
from ray_nodes import RayNodes, free_port, ray_nodes
from tiny_runs import base_of, work_folder

from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.runs.rollout_file import read_rollouts

SEEDS, STEPS, PROMPTS = (0, 1, 2), 40, 16
ONE, CLUSTER = "one process", "cluster"
LAST = 20  # steps whose rewards are compared
MARGIN = 0.05  # of a reward of at most 2, within which two runs count as equal
NORMAL_95 = 1.96
SHARE = 0.4  # of the tokens, for each of two servers
LEARNED = 0.3  # that the reward rises by at least, or there is nothing to compare
SYNC_MAX = 1e-4  # nats, as `sampler.tolerance` of the recipe
STARTS_S = 120.0  # for a reward service
ENDS_S = 40.0  # for a run after SIGTERM
OPTIONS: dict[str, dict[str, Any]] = {
    "seeds": {"nargs": "+", "type": int, "default": list(SEEDS)},
    "steps": {"type": int, "default": STEPS, "help": "of each run"},
    "prompts": {"type": int, "default": PROMPTS, "help": "questions of a step"},
    "folder": {"type": Path, "help": "where runs are kept; default: in a new folder"},
}
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16")
CLI = ("-m", "veriloop.stages.cli")
# After `--` torchrun does not take `--start` for an abbreviation of its own flags.
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RANKED = (*TORCHRUN, "-m", "--", "veriloop")
NAMES = ("number", "think_format", "language")  # verifiers of the recipe and its evaluation
Run = Mapping[str, Any]


def flags(seed: int, base: Path, output: Path, size: Sequence[str]) -> list[str]:
    """The words of both runs of a seed."""
    words = ["zero", "tiny/zero", "--start", str(base), "--output", str(output)]
    words += ["--seed", str(seed), "--problem-seed", str(seed), "--trainer.device", "cpu"]
    return [*words, "--evaluation.problems", "128", "--no-tensorboard", *size]


def clustered(address: str, services: Sequence[str]) -> list[str]:
    """What the run on the cluster has besides."""
    words = ["--cluster.trainer.ranks", "2", "--cluster.ray", address]
    words += ["--cluster.samplers.count", "2", "--cluster.samplers.gpus", "0"]
    return [*words, "--cluster.deadlines.sync-s", "300", "--verifier-service", *services]


@contextmanager
def process(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that is asked to end with the block."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def service(folder: Path, nodes: RayNodes) -> Iterator[str]:
    """The address of a reward service that is ready."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", folder / f"service-{port}.log"
    words = [*CLI, "serve", "--port", str(port), "--verifiers", *NAMES]
    with process(words, log, nodes.environment) as child:
        end = time.monotonic() + STARTS_S
        while not _ready(url):
            if child.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"a reward service did not start: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield url


def _ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/readyz", timeout=5):
            return True
    except OSError:
        return False


def judged(url: str) -> int:
    """The verdicts that a service has given."""
    with urlopen(f"{url}/metrics", timeout=5) as reply:
        lines = reply.read().decode().split("\n")
    counts = (line for line in lines if line.startswith("veriloop_verdicts_total{"))
    return sum(int(float(line.rpartition(" ")[2])) for line in counts)


def ended(child: subprocess.Popen[bytes], log: Path, nodes: RayNodes) -> dict[str, int]:
    """Wait for a run; the node of each of its servers, by URL. Raises SystemExit if it fails."""
    seen: dict[str, int] = {}
    while child.poll() is None:
        if len(seen) < 2:
            seen |= nodes.servers()
        time.sleep(0.5)
    if child.returncode:
        said = log.read_text(errors="replace")[-3000:]
        raise SystemExit(f"{log.name}: exit code {child.returncode}:\n{said}")
    return seen


def run_one(folder: Path, seed: int, base: Path, size: Sequence[str]) -> dict[str, Any]:
    """The run in one process. Of the nodes only their mark is used: what is left of it ends."""
    output, log = folder / f"one-{seed}", folder / f"one-{seed}.log"
    words = [*CLI, *flags(seed, base, output, size), "--sampler.engine", "vllm"]
    with (
        ray_nodes(folder / "none", 0) as nodes,
        process(words, log, nodes.environment) as child,
    ):
        ended(child, log, nodes)
    return {"way": ONE, "seed": seed, **summary(output)}


def run_cluster(folder: Path, seed: int, base: Path, size: Sequence[str]) -> dict[str, Any]:
    output, log = folder / f"cluster-{seed}", folder / f"cluster-{seed}.log"
    with ray_nodes(folder / f"nodes-{seed}") as nodes, _services(folder, nodes) as services:
        words = [*RANKED, *flags(seed, base, output, size), *clustered(nodes.address, services)]
        began = time.monotonic()
        with process(words, log, nodes.environment | {"OMP_NUM_THREADS": "1"}) as child:
            places = ended(child, log, nodes)
        wall_s = time.monotonic() - began
        verdicts = [judged(url) for url in services]
    own = {"nodes": sorted(places.values()), "verdicts": verdicts, "wall_s": wall_s}
    return {"way": CLUSTER, "seed": seed, **own, **summary(output)}


@contextmanager
def _services(folder: Path, nodes: RayNodes) -> Iterator[list[str]]:
    with service(folder, nodes) as one, service(folder, nodes) as other:
        yield [one, other]


def summary(output: Path) -> dict[str, Any]:
    """What both ways report of a run."""
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    curve = read_metrics(output / "zero" / "metrics.jsonl")
    files = [output / f"zero/rollouts/step_{row['step']:06d}.parquet" for row in curve[-LAST:]]
    groups = group_means([row for path in files for row in read_rollouts(path)])
    return {
        "rewards": [row["reward"] for row in curve],
        "last": fmean(row["reward"] for row in curve[-LAST:]),
        "noise": NORMAL_95 * stdev(groups) / len(groups) ** 0.5,
        "shares": shares(curve),
        "sync_max": max(row["sync/max"] for row in curve),
        "seconds": stage["seconds"],
        "sampler": stage["sampler"],
        "before": stage["before"]["pass@1"],
        "after": stage["after"]["pass@1"],
    }


def group_means(rows: Sequence[Run]) -> list[float]:
    """The mean reward of the answers to each question."""
    groups = defaultdict[str, list[float]](list)
    for row in rows:
        if row["reward"] is not None:
            groups[row["group"]].append(row["reward"])
    return [fmean(rewards) for rewards in groups.values()]


def shares(curve: Sequence[Run]) -> list[float]:
    """The share of the tokens that each server sampled, rising; empty without servers."""
    tokens = defaultdict[str, float](float)
    for row in curve:
        for name, count in row.items():
            if name.startswith("system/sampled/"):
                tokens[name] += count
    whole = sum(tokens.values())
    return sorted(count / whole for count in tokens.values())


def pairs(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """The run in one process and that on the cluster of each seed."""
    by = {(run["seed"], run["way"]): run for run in runs}
    seeds = dict.fromkeys(run["seed"] for run in runs)
    return [(by[seed, ONE], by[seed, CLUSTER]) for seed in seeds]


def gap(runs: Sequence[Run]) -> tuple[float, float]:
    """Mean difference of the cluster from one process, and half of its 95 % interval."""
    return interval([cluster["last"] - one["last"] for one, cluster in pairs(runs)])


def missed(runs: Sequence[Run]) -> list[str]:
    """The targets that the runs miss."""
    failed = differs(
        f"reward of the last {LAST} steps, cluster less one process", gap(runs), MARGIN
    )
    for one, cluster in pairs(runs):
        seed = cluster["seed"]
        if abs(cluster["last"] - one["last"]) > one["noise"]:
            failed.append(
                f"seed {seed}: the cluster's {cluster['last']:.4f} is not within the 95 % interval "
                f"{one['last']:.4f} ± {one['noise']:.4f} of one process"
            )
        if len(cluster["shares"]) != 2 or cluster["shares"][0] < SHARE:
            failed.append(f"seed {seed}: servers sampled the shares {cluster['shares']} of tokens")
        if cluster["nodes"] != [0, 1]:
            failed.append(f"seed {seed}: the servers ran on the nodes {cluster['nodes']}")
        if 0 in cluster["verdicts"]:
            failed.append(f"seed {seed}: the services gave {cluster['verdicts']} verdicts")
    for run in runs:
        if run["sync_max"] > SYNC_MAX:
            failed.append(f"{run['way']}, seed {run['seed']}: a sync is {run['sync_max']:.1e} off")
        if run["last"] < run["rewards"][0] + LEARNED:
            failed.append(f"{run['way']}, seed {run['seed']}: it learned nothing")
    return failed


def shown(runs: Sequence[Run]) -> str:
    """The table of all runs, and the difference."""
    rows = [
        [run["way"], str(run["seed"]), f"{run['rewards'][0]:.3f}", f"{run['last']:.4f}",
         f"{run['noise']:.4f}", f"{run['before']:.3f} > {run['after']:.3f}",
         " ".join(f"{share:.3f}" for share in run["shares"]), f"{run['sync_max']:.1e}",
         f"{run['seconds']:.0f}"]
        for run in runs
    ]  # fmt: skip
    header = ["way", "seed", "first reward", f"mean of the last {LAST}", "± 95 %", "pass@1",
              "tokens by server", "sync max", "seconds"]  # fmt: skip
    mean, noise = gap(runs)
    return f"{table(header, rows)}\ncluster less one process: {mean:+.4f} ± {noise:.4f} (95 %)"


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = work_folder(options.folder, "cluster-zero")
    seeds = options.seeds[:1] if options.quick else options.seeds
    size = ["--steps", str(options.steps), "--rollout.prompts", str(options.prompts)]
    if options.quick:
        size = [*QUICK]
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        base = base_of(folder, seed, quick=options.quick)
        for run in (run_one, run_cluster):
            runs.append(run(folder, seed, base, size))
            print(f"{runs[-1]['way']}, {seed}: {runs[-1]['seconds']:.0f} s", flush=True)
    result = {"runs": runs, "gap": gap(runs)}
    return publish(options, shown(runs), result, failed=[] if options.quick else missed(runs))


if __name__ == "__main__":
    sys.exit(main())
