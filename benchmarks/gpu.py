"""One card: updates, their memory, the sampler, sleeping and waking; of random weights.

    python benchmarks/gpu.py [--device auto|cuda:N|cpu] [--quick] [--json FILE]

Updates are of whole sequences of 8,192 tokens, one a row, in bfloat16 over float32 weights, with
gradient checkpointing. `mfu` is the share of the card's dense bfloat16 products that the model's
own are: 6 for each weight and position, and attention; what checkpointing computes again counts
for nothing. Memory is compared with what `--dry-run` predicts. `--device cpu` runs a miniature,
and says by name what it cannot measure without a card.
"""

import json
import subprocess
import sys
from typing import Any

from publish import ROOT, arguments, publish, table

MODELS = ("1.5B", "7B+adapters", "7B")  # of those that fit
LENGTH, COUNT, REPEATS = 8192, 8, 5
VOCABULARIES = (32_768, 65_536, 131_072, 262_144)
PROMPTS, TOKENS, CACHE_GIB = 256, 1024, 8.0
LEAST_MFU = {"1.5B": 0.45, "7B": 0.45}
FLAT_GIB = 0.25  # that peak memory may grow by from the smallest to the largest vocabulary
NEAR = 0.2  # of the predicted peak: how far the measured one may be off
WAKE_S = 5.0
GRAPHS = 1.5  # times the tokens a second without them, at least
MINIATURE = {"length": 64, "count": 8, "repeats": 1}
NEEDS_A_CARD = (
    "peak memory of an update, and the prediction held against it",
    "peak memory against the vocabulary",
    "CUDA graphs of the sampler",
    "sleeping and waking",
)


def section(name: str, device: str, quick: bool) -> Any:
    """One section's result."""
    import gpu_sections as sections

    if name == "vocabularies":
        return sections.vocabularies(VOCABULARIES[:2] if quick else VOCABULARIES, device, 2048)
    kind, _, what = name.partition(":")
    if kind == "sampler":
        small = device == "cpu"
        return sections.sampler(
            "tiny" if small else "1.5B",
            device,
            graphs=what == "graphs",
            prompts=8 if small else PROMPTS,
            tokens=8 if small else TOKENS // (8 if quick else 1),
            cache_gib=CACHE_GIB,
        )
    if device == "cpu":
        return sections.update(what, device, **MINIATURE)
    return _fitting(sections, what, device, quick)


def _fitting(sections: Any, name: str, device: str, quick: bool) -> dict[str, Any]:
    """An update, or why there is none."""
    import torch

    trainer = sections.trainer_of(device, LENGTH, adapters="+" in name)
    found = sections.predicted(name, trainer, LENGTH)
    room = torch.cuda.get_device_properties(device).total_memory / sections.GIB
    if found["predicted_gib"] > room:
        return found | {"left_out": f"needs {found['predicted_gib']:.0f} GiB, there are {room:.0f}"}
    count, repeats = (2, 1) if quick else (COUNT, REPEATS)
    return sections.update(name, device, length=LENGTH, count=count, repeats=repeats)


def measured(name: str, device: str, quick: bool) -> Any:
    """A section in a process of its own, so that none finds the memory of another."""
    words = [sys.executable, __file__, "--device", device, "--section", name]
    done = subprocess.run(
        [*words, *(["--quick"] if quick else [])], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        return {"failed": f"{name}: {done.stderr.strip()[-500:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def shortfalls(found: dict[str, Any]) -> list[str]:
    """What is aimed at and missed."""
    failed = [one["failed"] for one in found.values() if isinstance(one, dict) and "failed" in one]
    for name, one in found.items():
        if not name.startswith("update:") or "mfu" not in one:
            continue
        least = LEAST_MFU.get(one["model"], 0.0)
        if one["mfu"] < least:
            failed.append(f"update of {one['model']}: mfu {one['mfu']:.2f}, aim {least}")
        off = abs(one["peak_gib"] / one["predicted_gib"] - 1)
        if off > NEAR:
            failed.append(f"memory of {one['model']}: {one['peak_gib']:.1f} GiB, predicted "
                          f"{one['predicted_gib']:.1f}")  # fmt: skip
    rows = found.get("vocabularies", [])
    if isinstance(rows, list) and rows:
        grown = rows[-1]["rest_gib"] - rows[0]["rest_gib"]
        if grown > FLAT_GIB:
            failed.append(f"memory: {grown:.2f} GiB more at a vocabulary of "
                          f"{rows[-1]['vocabulary']}, at most {FLAT_GIB}")  # fmt: skip
    return failed + _of_the_sampler(found)


def _of_the_sampler(found: dict[str, Any]) -> list[str]:
    plain, fast = (found.get(f"sampler:{kind}", {}) for kind in ("eager", "graphs"))
    failed = []
    if "tokens_s" in plain and "tokens_s" in fast:
        gained = fast["tokens_s"] / plain["tokens_s"]
        if gained < GRAPHS:
            failed.append(f"CUDA graphs: {gained:.2f} times the tokens a second, aim {GRAPHS}")
    for one in (plain, fast):
        if one.get("wake_s", 0.0) > WAKE_S:
            failed.append(f"waking with new weights: {one['wake_s']:.1f} s, aim {WAKE_S}")
    return failed


def shown(found: dict[str, Any]) -> str:
    """The tables of what was measured."""
    updates = [one for name, one in found.items() if name.startswith("update:")]
    names = ("seconds", "tokens_s", "mfu", "roof_tflops", "predicted_gib", "peak_gib")
    text = table(
        ["update of", *names, "roof"],
        [[one.get("model", "-"), *(_cell(one.get(n)) for n in names),
          one.get("roof") or one.get("left_out", "-")] for one in updates],
    )  # fmt: skip
    kept = [one for name, one in found.items() if name.startswith("sampler:")]
    names = ("start_s", "tokens_s", "sleep_s", "wake_s", "freed_gib")
    text += "\n\n" + table(
        ["sampler", "graphs", *names],
        [[one.get("engine", "-"), str(one.get("graphs")), *(_cell(one.get(n)) for n in names)]
         for one in kept],
    )  # fmt: skip
    rows = found.get("vocabularies", [])
    if isinstance(rows, list) and rows:
        names = ("peak_gib", "rest_gib")
        text += "\n\n" + table(
            ["vocabulary", *names], [[str(r["vocabulary"]), *(r[n] for n in names)] for r in rows]
        )
    return text


def _cell(value: float | None) -> float | str:
    return "-" if value is None else value


def main() -> int:
    options = arguments(
        __doc__ or "",
        device={"default": "auto", "help": "auto, cuda:N, or cpu for a miniature"},
        section={"help": "one measurement, printed as JSON"},
    )
    from veriloop.pipeline.model.device import choose_device

    device = str(choose_device(options.device))
    if options.section:
        print(json.dumps(section(options.section, device, options.quick)))
        return 0
    if device == "cpu":
        if options.device == "auto":
            raise SystemExit("no card is here; --device cpu runs a miniature that measures none")
        found = {name: section(name, device, True) for name in ("update:tiny", "sampler:eager")}
        refused = [f"not measured on cpu: {what}" for what in NEEDS_A_CARD]
        return publish(options, "\n".join([shown(found), "", *refused]), found)
    names = [f"update:{name}" for name in MODELS]
    names += ["vocabularies", "sampler:eager", "sampler:graphs"]
    found = {name: measured(name, device, options.quick) for name in names}
    failed = shortfalls(found)
    return publish(options, shown(found), found, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
