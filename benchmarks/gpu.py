"""One GPU: updates, their memory, FSDP2 of one rank, the sampler, sleeping and waking, weights sent
to another process, with random weights.

    python benchmarks/gpu.py [--device auto|cuda:N|cpu] [--sections NAME ...] [--seconds S]
                             [--at-once N] [--quick] [--json FILE]

Updates are of whole sequences of 8,192 tokens, one per row, in bfloat16 over float32 weights, with
gradient checkpointing, of cheap operations alone if the GPU has room for it. `mfu` is the model's
FLOPs (6 per weight and position, and attention; recomputation is not counted) as a share of the
GPU's dense bfloat16 peak. Each update has a waterfall: its time by part, by kind of kernel, and of
the output head. Memory is compared with the prediction of `--dry-run`. vLLM is left out where it is
not installed. `--device cpu` runs a miniature and names what it cannot measure without a GPU.
Sections that have not begun after S seconds are left out; N run at the same time.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from publish import ROOT, arguments, publish, table

MODELS = ("0.5B", "1.5B", "7B+adapters", "7B")  # of those that fit
LENGTH, COUNT, REPEATS = 8192, 8, 3
VOCABULARIES = (32_768, 65_536, 131_072, 262_144)
ROOM = 0.9  # of the card's memory that a plan may fill
PROMPTS, TOKENS, CACHE_GIB = 256, 1024, 8.0
LEAST_MFU = dict.fromkeys(MODELS, 0.40)
FLAT_GIB = 0.25  # that peak memory may grow by from the smallest to the largest vocabulary
NEAR = 0.15  # of the predicted peak: how far the measured one may be off
WAKE_S = 5.0
GRAPHS = 1.5  # times the tokens a second without them, at least
MINIATURE: dict[str, Any] = {"length": 64, "count": 8, "repeats": 1}
SECTIONS = (
    *(f"update:{name}" for name in MODELS), "vocabularies", "sharded", "ipc", "sampler:eager",
    "sampler:graphs", "torch:eager", "torch:graphs", "zero", "published",
)  # fmt: skip
NEEDS_A_CARD = (
    "peak memory of an update, and the prediction held against it",
    "peak memory against the vocabulary",
    "CUDA graphs of the samplers",
    "R1-Zero on the GPU beside the CPU",
    "sleeping and waking",
    "CUDA IPC; NCCL under FSDP2",
)


def section(name: str, device: str, quick: bool) -> Any:
    """The result of one section."""
    import gpu_sections as sections

    if name == "vocabularies":
        return sections.vocabularies(VOCABULARIES[:2] if quick else VOCABULARIES, device, 2048)
    kind, _, what = name.partition(":")
    small = device == "cpu"
    if kind in ("sharded", "ipc"):
        return _of_ranks(kind, device, quick)
    if kind in ("torch", "zero", "published"):
        return _of_torch(kind, what, device, quick)
    if kind == "sampler":
        if not small and find_spec("vllm") is None:
            return {"left_out": "vLLM is not installed"}
        return sections.sampler(
            "tiny" if small else "1.5B",
            device,
            engine="torch" if small else "vllm",
            graphs=what == "graphs",
            prompts=8 if small else PROMPTS,
            tokens=8 if small else TOKENS // (8 if quick else 1),
            cache_gib=CACHE_GIB,
        )
    if device == "cpu":
        return sections.update(what, device, **MINIATURE)
    return _fitting(sections, what, device, quick)


def _of_ranks(kind: str, device: str, quick: bool) -> dict[str, Any]:
    """A section on ranks and servers."""
    import gpu_cluster

    name = "tiny" if device == "cpu" else "1.5B"
    if kind == "ipc":
        return gpu_cluster.sent(name, device, repeats=1 if quick else REPEATS)
    sizes = {"length": LENGTH, "count": COUNT, "repeats": 1 if quick else REPEATS}
    return gpu_cluster.sharded(name, device, **(MINIATURE if device == "cpu" else sizes))


def _of_torch(kind: str, what: str, device: str, quick: bool) -> dict[str, Any]:
    """A section of the torch sampler."""
    import gpu_sampling

    small = device == "cpu"
    if kind in gpu_sampling.RUNS:
        run = gpu_sampling.zero if kind == "zero" else gpu_sampling.published
        return run(device, small=quick)
    return gpu_sampling.speed(
        "tiny" if small else "0.5B",
        device,
        graphs=what == "graphs",
        prompts=8 if small else PROMPTS,
        tokens=8 if small else TOKENS // (8 if quick else 1),
        cache_gib=CACHE_GIB,
    )


def _fitting(sections: Any, name: str, device: str, quick: bool) -> dict[str, Any]:
    """The settings of an update, or why it does not fit."""
    import torch

    room = torch.cuda.get_device_properties(device).total_memory / sections.GIB
    repeats = 1 if quick else REPEATS
    for recompute in ("cheap", "all"):
        trainer = sections.trainer_of(device, LENGTH, adapters="+" in name, recompute=recompute)
        prediction = sections.predicted(name, trainer, LENGTH)
        if prediction["predicted_gib"] < ROOM * room:
            return sections.update(
                name, device, length=LENGTH, count=COUNT, repeats=repeats,
                recompute=recompute,
            )  # fmt: skip
    needed = f"needs {prediction['predicted_gib']:.0f} GiB, there are {room:.0f}"
    return prediction | {"left_out": needed}


def measured(name: str, device: str, quick: bool) -> Any:
    """A section in a separate process, so that sections do not share memory."""
    if name.startswith("sampler") and find_spec("vllm") is None:
        return section(name, device, quick)
    words = [sys.executable, __file__, "--device", device, "--section", name]
    done = subprocess.run(
        [*words, *(["--quick"] if quick else [])], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        return {"failed": f"{name}: {done.stderr.strip()[-1500:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def all_measured(
    names: Sequence[str], device: str, quick: bool, until: float, at_once: int
) -> dict[str, Any]:
    """The sections, `at_once` at a time; those that would begin after `until` are left out."""

    def result_of(name: str) -> Any:
        began = time.monotonic()
        if began > until:
            return {"left_out": "no time was left"}
        result = measured(name, device, quick)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        return result

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(names, pool.map(result_of, names), strict=True))


def shortfalls(results: dict[str, Any]) -> list[str]:
    """Targets that were missed."""
    failed = [
        result["failed"]
        for result in results.values()
        if isinstance(result, dict) and "failed" in result
    ]
    for name, result in results.items():
        if not name.startswith("update:") or "mfu" not in result:
            continue
        least = LEAST_MFU.get(result["model"], 0.0)
        if result["mfu"] < least:
            failed.append(f"update of {result['model']}: mfu {result['mfu']:.2f}, aim {least}")
        off = abs(result["peak_gib"] / result["predicted_gib"] - 1)
        if off > NEAR:
            failed.append(f"memory of {result['model']}: {result['peak_gib']:.1f} GiB, predicted "
                          f"{result['predicted_gib']:.1f}")  # fmt: skip
    rows = results.get("vocabularies", [])
    if isinstance(rows, list) and rows:
        grown = rows[-1]["rest_gib"] - rows[0]["rest_gib"]
        if grown > FLAT_GIB:
            failed.append(f"memory: {grown:.2f} GiB more at a vocabulary of "
                          f"{rows[-1]['vocabulary']}, at most {FLAT_GIB}")  # fmt: skip
    from gpu_cluster import shortfalls as of_ranks
    from gpu_sampling import shortfalls as of_torch

    return failed + of_ranks(results) + _of_the_sampler(results) + of_torch(results)


def _of_the_sampler(results: dict[str, Any]) -> list[str]:
    plain, fast = (results.get(f"sampler:{kind}", {}) for kind in ("eager", "graphs"))
    failed = []
    if "tokens_s" in plain and "tokens_s" in fast:
        gained = fast["tokens_s"] / plain["tokens_s"]
        if gained < GRAPHS:
            failed.append(f"CUDA graphs: {gained:.2f} times the tokens a second, aim {GRAPHS}")
    for result in (plain, fast):
        if result.get("wake_s", 0.0) > WAKE_S:
            failed.append(f"waking with new weights: {result['wake_s']:.1f} s, aim {WAKE_S}")
    return failed


def shown(results: dict[str, Any]) -> str:
    """The tables of the results."""
    updates = [result for name, result in results.items() if name.startswith("update:")]
    names = ("first_s", "seconds", "tokens_s", "mfu", "roof_tflops", "predicted_gib", "peak_gib")
    text = table(
        ["update of", "recompute", *names, "roof"],
        [[result.get("model", "-"), result.get("recompute", "-"),
          *(_cell(result.get(n)) for n in names),
          result.get("roof") or result.get("left_out", "-")] for result in updates],
    )  # fmt: skip
    kept = [result for name, result in results.items() if name.startswith("sampler:")]
    names = ("start_s", "tokens_s", "sleep_s", "wake_s", "freed_gib")
    text += "\n\n" + table(
        ["sampler", "graphs", *names],
        [[r.get("engine") or r.get("left_out", "-"), str(r.get("graphs")),
          *(_cell(r.get(n)) for n in names)] for r in kept],
    )  # fmt: skip
    rows = results.get("vocabularies", [])
    if isinstance(rows, list) and rows:
        names = ("peak_gib", "rest_gib")
        text += "\n\n" + table(
            ["vocabulary", *names], [[str(r["vocabulary"]), *(r[n] for n in names)] for r in rows]
        )
    from gpu_cluster import shown as of_ranks
    from gpu_sampling import shown as of_torch

    waterfalls = [_waterfall(u["model"], u) for u in updates if "kinds" in u]
    return "\n\n".join([text, of_ranks(results), of_torch(results), *waterfalls])


def _waterfall(name: str, one: dict[str, Any]) -> str:
    import gpu_waterfall

    return gpu_waterfall.shown(name, one)


def _cell(value: float | None) -> float | str:
    return "-" if value is None else value


def main() -> int:
    options = arguments(
        __doc__ or "",
        device={"default": "auto", "help": "auto, cuda:N, or cpu for a miniature"},
        section={"help": "one measurement, printed as JSON"},
        sections={"nargs": "+", "choices": SECTIONS, "default": list(SECTIONS)},
        seconds={"type": float, "default": float("inf"), "help": "begin no section later"},
        at_once={"type": int, "default": 1, "help": "sections at a time; more disturb timings"},
    )
    from veriloop.pipeline.model.device import choose_device

    device = str(choose_device(options.device))
    if options.section:
        print(json.dumps(section(options.section, device, options.quick)))
        return 0
    if device == "cpu":
        if options.device == "auto":
            raise SystemExit("no card is here; --device cpu runs a miniature that measures none")
        names = ["update:tiny", "sharded", "ipc", "sampler:eager"]
        names += ["torch:eager", "zero", "published"]
        results = {name: section(name, device, True) for name in names}
        refused = [f"not measured on cpu: {what}" for what in NEEDS_A_CARD]
        return publish(options, "\n".join([shown(results), "", *refused]), results)
    until = time.monotonic() + options.seconds
    results = all_measured(options.sections, device, options.quick, until, options.at_once)
    failed = shortfalls(results)
    return publish(options, shown(results), results, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
