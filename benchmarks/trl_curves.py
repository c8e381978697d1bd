"""Rewards of GRPO in veriloop and in TRL, from the same models with the same settings.

    python benchmarks/trl_curves.py [--quick] [--json FILE] [--seeds N ...] [--steps N]

Random models of a million parameters learn to write tokens of the first half of the vocabulary: 16
questions with 8 answers of at most 24 tokens a step, one optimizer step each, loss and settings of
GRPO. veriloop samples by vLLM and packs, in float32 and with trainer and sampler in bfloat16; TRL
has its defaults without gradient checkpointing, in float32. They take turns in separate processes.
The mean reward over all steps and over the last quarter is compared: the 95 % interval of the
difference must lie within +-MARGIN.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from against_trl import with_trl_template
from contenders import BFLOAT16, SIZES, Contender, Process, in_turn, model_of
from paired import differs, interval
from publish import arguments, publish, table

SEEDS, STEPS, QUICK_STEPS = (0, 1, 2), 40, 2
TRL = "TRL"
SIDES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # side of the script, settings
    "ours": ("ours", {"sampler.engine": "vllm"}),
    "ours, bf16": ("ours", BFLOAT16),
    TRL: ("trl", {"bf16": False, "gradient_checkpointing": False}),
}
SHOWN = 8  # rewards of a curve in the table
MARGIN = 0.02  # of a reward of at most 1, within which both sides count as equal
LEARNED = 0.1  # that each curve rises by, or there was nothing to compare


def curves(seed: int, steps: int, folder: Path) -> list[dict[str, Any]]:
    """The reward at each step of all sides."""
    model = with_trl_template(model_of(folder / str(seed), SIZES["1M"], seed=seed))
    running = [
        Process(
            Contender(
                name=f"{name} {seed}", side=side, settings={**own, "learn": True, "seed": seed}
            ),
            "grpo_turns.py", model, folder,
        )
        for name, (side, own) in SIDES.items()
    ]  # fmt: skip
    rows = in_turn(running, 0, steps)
    return [
        {"side": name, "seed": seed, "rewards": [step["paid"] for step in row["steps"]]}
        for name, row in zip(SIDES, rows, strict=True)
    ]


def gap(rows: Sequence[Mapping[str, Any]], side: str, share: float) -> tuple[float, float]:
    """Mean difference from TRL over the last `share` of the steps, and half of its 95 %
    interval."""
    means = {
        (row["side"], row["seed"]): fmean(row["rewards"][-round(share * len(row["rewards"])) :])
        for row in rows
    }
    gaps = [means[side, seed] - means[TRL, seed] for seed in dict.fromkeys(r["seed"] for r in rows)]
    return interval(gaps)


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        steps={"type": int, "default": STEPS},
    )
    seeds = options.seeds[:1] if options.quick else options.seeds
    steps = QUICK_STEPS if options.quick else options.steps
    folder = Path(tempfile.mkdtemp(prefix="trl-curves-"))
    rows = [row for seed in seeds for row in curves(seed, steps, folder)]
    every = max(1, steps // SHOWN)
    text = table(
        ["side", "seed", *(f"step {n}" for n in range(every, steps + 1, every))],
        [[r["side"], str(r["seed"]), *r["rewards"][every - 1 :: every]] for r in rows],
    )
    gaps = {
        f"{side}, {name}": gap(rows, side, share)
        for side in SIDES
        if side != TRL
        for name, share in (("all steps", 1.0), ("the last", 0.25))
    }
    for name, (mean, noise) in gaps.items():
        text += f"\n{name}: less TRL's {mean:+.4f} ± {noise:.4f} (95 %)"
    failed = [reason for name, gap in gaps.items() for reason in differs(name, gap, MARGIN)]
    failed += [
        f"{r['side']}, seed {r['seed']}: learned nothing"
        for r in rows
        if r["rewards"][-1] < r["rewards"][0] + LEARNED
    ]
    result = {"runs": rows, "gaps": gaps}
    return publish(options, text, result, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
