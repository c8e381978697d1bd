"""The sections of `benchmarks/gpu.py` on the torch sampler: speed, agreement with the trainer, and
R1-Zero beside the same run on the CPU: of the tiny base, and of a published model where it is at
hand. None needs vLLM."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import yaml
from gpu_sections import model_of, saved
from publish import ROOT, table

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.device import give_back_unused
from veriloop.pipeline.model.fused_layers import in_float32
from veriloop.pipeline.model.packing import best_fit, lay_out, response_mask
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.sampling.sampler import Completion, Sampling
from veriloop.pipeline.sampling.static_engine import StaticSampler

LEAST_TOKENS_S = 8000  # of 0.5B with 256 sequences
NEAR_NATS = {"float32": 1e-4, "bfloat16": 0.03}  # mean difference to the trainer in the same type
SCORED = 16  # sequences compared with the trainer
LAST, NOISE = 10, 0.05  # of the reward in the last steps, between the two runs
PUBLISHED = ROOT / "models" / "SmolLM2-135M-Instruct"
BRIEF = {"length": {"at_most": 20, "slack": 200, "unit": "characters"}}
PUBLISHED_RUN: dict[str, Any] = {  # it earns nothing for answers, and something for brevity
    "stage": "zero", "name": "gpu/published", "steps": 20, "tensorboard": False,
    "rollout": {"prompts": 8, "per_prompt": 8, "max_tokens": 48},
    "algorithm": {"kl_coefficient": 0.0, "minibatches": 1},
    "reward": {"terms": {"brief": {"verifier": "length", "reference": BRIEF}}},
    "optimizer": {"learning_rate": 1e-5}, "evaluation": {"problems": 16, "samples": 1},
}  # fmt: skip
RUNS = {"zero": "R1-Zero", "published": f"R1-Zero of {PUBLISHED.name}"}
SMALL = ("--steps", "2", "--rollout.prompts", "4", "--rollout.max-tokens", "32",
         "--evaluation.problems", "8", "--evaluation.every", "0")  # fmt: skip


def speed(
    name: str, device: str, *, graphs: bool, prompts: int, tokens: int, cache_gib: float
) -> dict[str, Any]:
    """Tokens per second when the steps are captured and afterwards, and the mean difference of
    log-probs to the trainer, in the sampler's type and in float32."""
    card = device != "cpu"
    dtype = "bfloat16" if card else "float32"
    prompt_ids = [[1 + i % 200, 5, 9, 7] for i in range(prompts)]
    sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=tokens, seed=0)
    model = model_of(name, device)
    with saved(model) as folder:
        engine = StaticSampler(
            str(folder),
            device=torch.device(device),
            dtype=dtype,
            cache_gib=cache_gib,
            max_batch=prompts,
            graphs=graphs,
        )
    first_s, _ = _timed(engine, prompt_ids, sampling)
    seconds, answers = _timed(engine, prompt_ids, sampling)
    engine.close()
    give_back_unused()
    count = sum(len(answer.ids) for answer in answers)
    trainer = TrainerConfig.model_validate(
        {"device": device, "compute": dtype, "row": 4 + tokens, "rows": 1}
    )
    gaps = _gaps(prepare(model, trainer), prompt_ids[:SCORED], answers[:SCORED])
    return {
        "model": name,
        "dtype": dtype,
        "graphs": graphs and card,
        "sequences": prompts,
        "first_s": first_s,
        "tokens_s": count / seconds,
        "mean_nats": gaps[0],
        "mean_nats_float32": gaps[1],
    }


def _timed(
    engine: StaticSampler, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> tuple[float, list[Completion]]:
    """Answers end on the host, so no work of the GPU is left."""
    began = time.monotonic()
    groups = engine.sample(prompts, sampling)
    return time.monotonic() - began, [group[0] for group in groups]


@torch.no_grad()
def _gaps(
    policy: Any, prompts: Sequence[Sequence[int]], answers: Sequence[Completion]
) -> tuple[float, float]:
    """Mean differences to the trainer's log-probs: as it computes, and in float32."""
    sequences = [(*p, *answer.ids) for p, answer in zip(prompts, answers, strict=True)]
    sizes = [len(sequence) - 1 for sequence in sequences]
    packed = lay_out(sequences, best_fit(sizes, max(sizes)))
    mask_RT = response_mask(packed, [len(p) for p in prompts])
    order_M = packed.sequence_RT[mask_RT].argsort(stable=True)
    sampled_M = torch.tensor([logp for answer in answers for logp in answer.logp])

    def gap() -> float:
        rows = (packed.ids_RT, packed.positions_RT, packed.targets_RT, mask_RT)
        logp_M, _ = score(policy, *rows, temperature=1.0, chunk=4096)
        return (logp_M.cpu()[order_M] - sampled_M).abs().mean().item()

    own = gap()
    with in_float32(policy):
        return own, gap()


def zero(device: str, *, small: bool) -> dict[str, Any]:
    """R1-Zero on the tiny base with the torch sampler, on the CPU and on the device at once."""

    def words(folder: Path) -> list[str]:
        base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text())
        if small:
            base |= {"steps": 20, "step_accuracy": 0.0, "name": "tiny/quick"}
        recipe = _written(folder / "base.yaml", base)
        return ["tiny/zero", "--start", recipe, *(SMALL if small else ())]

    return _beside_the_cpu(device, words, "rewards/accuracy/mean")


def published(device: str, *, small: bool) -> dict[str, Any]:
    """The same with the published model, rewarded for short answers too."""
    if not PUBLISHED.is_dir():
        return {"left_out": f"{PUBLISHED.name} is not in {PUBLISHED.parent.name}"}

    def words(folder: Path) -> list[str]:
        recipe = _written(folder / "zero.yaml", PUBLISHED_RUN | {"start": str(PUBLISHED)})
        return [recipe, *(SMALL if small else ())]

    return _beside_the_cpu(device, words, "reward")


def _written(path: Path, values: Any) -> str:
    path.write_text(yaml.safe_dump(values))
    return str(path)


def _beside_the_cpu(device: str, words: Callable[[Path], list[str]], reward: str) -> dict[str, Any]:
    """R1-Zero by these words, which get a folder for their files, on the CPU and on the device at
    once; with the curve of a metric."""
    places = {"cpu": "cpu"} if device == "cpu" else {"cpu": "cpu", "gpu": device}
    with ExitStack() as stack:
        whole = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-zero-")))
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, place in places.items():
            (whole / f"files-{name}").mkdir()
            running[name] = _started(whole / name, place, words(whole / f"files-{name}"))
            stack.callback(running[name].kill)
        return {name: _ended(whole / name, child, reward) for name, child in running.items()}


def _started(output: Path, device: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "veriloop.stages.cli", "zero", *words]
    command += ["--output", str(output), "--trainer.device", device]
    command += ["--sampler.engine", "torch", "--sampler.device", device]
    with output.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


def _ended(output: Path, child: subprocess.Popen[bytes], reward: str) -> dict[str, Any]:
    if child.wait():
        raise SystemExit(output.with_suffix(".log").read_text()[-1000:])
    stage = json.loads((output / "run.json").read_text())["stages"][-1]
    return {
        "before": stage["before"]["pass@1"],
        "after": stage["after"]["pass@1"],
        "after_95": stage["after"]["pass@1 95%"],
        "seconds": stage["seconds"],
        "curve": [step[reward] for step in read_metrics(output / "zero" / "metrics.jsonl")],
    }


def shortfalls(result: dict[str, Any]) -> list[str]:
    """What the torch sampler's sections aim at and miss."""
    failed = []
    for name, one in result.items():
        if not name.startswith("torch:") or "tokens_s" not in one:
            continue
        if one["graphs"] and one["tokens_s"] < LEAST_TOKENS_S:
            failed.append(
                f"torch sampler: {one['tokens_s']:.0f} tokens/s at {one['model']}, aim "
                f"{LEAST_TOKENS_S}"
            )
        if one["mean_nats"] > NEAR_NATS[one["dtype"]]:
            failed.append(
                f"torch sampler: {one['mean_nats']:.1e} nats from the trainer in {one['dtype']}, "
                f"at most {NEAR_NATS[one['dtype']]:g}"
            )
    for section, title in RUNS.items():
        runs = result.get(section, {})
        if not {"cpu", "gpu"} <= runs.keys():
            continue
        here, there = (_last(runs[place]["curve"]) for place in ("cpu", "gpu"))
        if abs(here - there) > NOISE:
            failed.append(f"{title}: reward {there:.3f} on the GPU, {here:.3f} on the CPU")
    return failed


def _last(curve: Sequence[float]) -> float:
    return sum(curve[-LAST:]) / len(curve[-LAST:])


def shown(result: dict[str, Any]) -> str:
    """Tables of speed and agreement, and of the two curves."""
    names = ("sequences", "first_s", "tokens_s", "mean_nats", "mean_nats_float32")
    rows = [one for name, one in result.items() if name.startswith("torch:") and "tokens_s" in one]
    text = table(
        ["torch sampler", "dtype", "graphs", *names],
        [[r["model"], r["dtype"], str(r["graphs"]), *(r[n] for n in names)] for r in rows],
    )
    curves = (_curves(title, result[name]) for name, title in RUNS.items() if name in result)
    return "\n\n".join([text, *curves])


def _curves(title: str, result: dict[str, Any]) -> str:
    """The runs side by side, or why there are none."""
    runs = {k: v for k, v in result.items() if k in ("cpu", "gpu")}
    if not runs:
        return f"{title}: {result.get('left_out') or result.get('failed')}"
    curves = [one["curve"] for one in runs.values()]
    steps = range(0, len(curves[0]), max(1, len(curves[0]) // 10))
    lines = [[str(step), *(curve[step] for curve in curves)] for step in steps]
    for what in ("before", "after", "seconds"):
        lines.append([what, *(one[what] for one in runs.values())])
    return table([f"{title}: reward at step", *runs], lines)
