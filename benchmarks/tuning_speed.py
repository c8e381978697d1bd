"""SFT and DPO steps of veriloop and of TRL on the same tokens, one core each, taking turns.

    python benchmarks/tuning_speed.py [--quick] [--json FILE] [--tasks sft dpo] [--rounds N]

32 sequences of 20 to 400 tokens, or 16 pairs of them, on a Qwen2 of 10 M parameters. TRL has a
separate environment (created once under outputs/cache) and is measured with its defaults and with
the best settings found: no gradient checkpointing, MKL set to treat the processor as Intel's,
bfloat16, for SFT its packing in rows, for DPO micro-batches of similar lengths and precomputed
reference log-probs, as ours are. veriloop has the best number of rows found. Each contender is a
separate process on one core, and they take turns: A B C A B C. The metric is tokens without padding
per second. All must have the same loss and gradient norm at the first step; otherwise they do
different work. The table includes the time that the matrix products of a step alone take on this
core.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contenders import SIZES, Contender, Process, in_turn, model_of
from paired import sides
from publish import arguments, publish, table

SCRIPT = "tuning_turns.py"
SEQUENCES = 32  # of a step: answers, or both answers of half as many pairs
WARM_UP = 2  # steps of each that are not counted
QUICK = 4  # contenders of a quick run, the last ones of each task
BAR = 2.0  # times TRL at its best
AGREE = {"float32": 1e-3, "bfloat16": 3e-2}  # of the first loss and gradient norm, relative
TUNED = {"gradient_checkpointing": False}
PACKED = {**TUNED, "packing": True, "max_length": 512, "micro": 1}
PAIRED = {**TUNED, "precompute_ref_log_probs": True, "micro": 4}


def _trl(task: str, settings: Mapping[str, Any], name: str) -> list[Contender]:
    return [
        Contender(
            name=f"TRL, {name}, {kind}",
            side=f"trl_{task}",
            settings={**settings, "bf16": kind == "bfloat16"},
            as_intel=True,
        )
        for kind in AGREE
    ]


def _ours(task: str) -> list[Contender]:
    return [
        Contender(name=f"ours, {kind}", side=f"ours_{task}", settings={"compute": kind, "rows": 4})
        for kind in AGREE
    ]


CONTENDERS = {
    "sft": [
        Contender(name="TRL", side="trl_sft", settings={}),
        *_trl("sft", {**TUNED, "micro": 4}, "tuned"),
        *_trl("sft", PACKED, "packed"),
        *_ours("sft"),
    ],
    "dpo": [
        Contender(name="TRL", side="trl_dpo", settings={}),
        *_trl("dpo", PAIRED, "tuned"),
        *_ours("dpo"),
    ],
}


def measured(task: str, folder: Path, *, quick: bool, rounds: int) -> list[dict[str, Any]]:
    """Every contender's steps in turn."""
    shape, sequences = (SIZES["1M"], 8) if quick else (SIZES["10M"], SEQUENCES)
    model = model_of(folder / task, shape)
    model_of(model / "reference", shape, seed=1)
    contenders = CONTENDERS[task][-QUICK:] if quick else CONTENDERS[task]
    given = [
        replace(contender, settings={**contender.settings, "sequences": sequences})
        for contender in contenders
    ]
    running = [Process(contender, SCRIPT, model, folder) for contender in given]
    warm_up = 0 if quick else WARM_UP
    rows = in_turn(running, warm_up, rounds)
    floors = {kind: products_s(model, kind, rows[0]["tokens"]) for kind in AGREE}
    return [{"task": task, **row, "products_s": floors[_kind(row["name"])]} for row in rows]


def products_s(model: Path, kind: str, tokens: int) -> float:
    """The least seconds of the matrix products of a step over so many tokens on one core."""
    import torch

    from veriloop.pipeline.model.policy import load_policy
    from veriloop.pipeline.offline import profile

    torch.set_num_threads(1)
    policy = load_policy(model)
    parameters = sum(p.numel() for p in policy.parameters())
    return (
        profile.matmul_operations(parameters, tokens)
        / profile.matmul_speed(policy, getattr(torch, kind)).flops
    )


def _kind(name: str) -> str:
    """The precision of a contender; TRL by default uses bfloat16 if it is supported."""
    return "float32" if name.endswith("float32") else "bfloat16"


def disagreements(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """First losses and gradient norms that differ from ours in float32."""
    messages: list[str] = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        right = next(row["first"] for row in own if row["name"] == "ours, float32")
        for row in own:
            allowed = AGREE[_kind(row["name"])]
            for what in ("loss", "grad_norm"):
                wanted, value = right[what], row["first"][what]
                if abs(value - wanted) > allowed * abs(wanted):
                    messages.append(f"{task}: {what} of {row['name']} is {value}, ours {wanted}")
    return messages


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that are missed."""
    missed: list[str] = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        best, theirs = sides(own, "tokens_per_s", max)
        if best < BAR * theirs:
            least = min(own, key=lambda r: r["products_s"])
            most = least["tokens"] / least["products_s"] / theirs
            missed.append(
                f"{task}: {best / theirs:.2f} x TRL at its best, wanted {BAR}; with its matrix "
                f"products alone it would be {most:.2f} x"
            )
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        tasks={"nargs": "+", "choices": list(CONTENDERS), "default": list(CONTENDERS)},
        rounds={"type": int, "default": 7, "help": "steps of each contender that are counted"},
    )
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="tuning-speed-") as folder:
        rows = [
            row
            for task in options.tasks
            for row in measured(task, Path(folder), quick=options.quick, rounds=rounds)
        ]
    shown = [
        [row["task"], row["name"], row["s"], row["tokens"], row["tokens_per_s"], row["products_s"],
         row["peak_gib"],
         f"{row['first']['loss']:.5f}", f"{row['first']['grad_norm']:.4f}"]
        for row in rows
    ]  # fmt: skip
    header = [
        "task",
        "contender",
        "s",
        "tokens",
        "per s",
        "products s",
        "GiB",
        "first loss",
        "gradient norm",
    ]
    slow = [] if options.quick else shortfalls(rows)
    return publish(options, table(header, shown), rows, failed=[*disagreements(rows), *slow])


if __name__ == "__main__":
    sys.exit(main())
