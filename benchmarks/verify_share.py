"""Time spent waiting for verdicts on mathematical answers, as a share of a GRPO step.

    python benchmarks/verify_share.py [--quick] [--json FILE] [--rounds N]

The loop of every RL stage on random models, one core, a pool of one worker: 16 questions, 8 answers
of at most 80 tokens to each, sampled by vLLM, both engines in bfloat16. In place of each answer
`math_answer` judges one from the mix of `verify_speed.py`; the same loop on sums takes turns with
it. Groups are judged while others are sampled: `verify` is the judging that remains when sampling
ends. `--quick` samples by torch.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from contenders import BFLOAT16, SIZES, Contender, Process, in_turn, model_of
from publish import arguments, publish, table

MODELS = ("1M", "10M")
SIDES: Mapping[str, str] = {"sums": "ours", "mathematics": "ours_math"}
BAR = 0.03  # of a step
WARM_UP = 1
QUICK = {"rollout.prompts": 2, "rollout.max_tokens": 8, "sampler.engine": "torch"}


def measured(size: str, rounds: int, folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """One row per kind of answer, with the share of verification in its steps."""
    model = model_of(folder / size, SIZES[size])
    running = [
        Process(
            Contender(name=name, side=side, settings=QUICK if quick else BFLOAT16),
            "grpo_turns.py", model, folder,
        )
        for name, side in SIDES.items()
    ]  # fmt: skip
    rows = in_turn(running, 0 if quick else WARM_UP, rounds)
    return [
        {
            "size": size,
            **row,
            "verify": median(step["verify"] for step in row["steps"]),
            "share": median(step["verify"] / step["s"] for step in row["steps"]),
        }
        for row in rows
    ]


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Steps that wait too long for verdicts."""
    return [
        f"{r['size']}, {r['name']}: verification is {r['share']:.1%} of a step, wanted {BAR:.0%}"
        for r in rows
        if r["share"] > BAR
    ]


def main() -> int:
    options = arguments(
        __doc__ or "",
        rounds={"type": int, "default": 7, "help": "steps of each that are counted"},
    )
    sizes, rounds = (MODELS[:1], 1) if options.quick else (MODELS, options.rounds)
    with tempfile.TemporaryDirectory(prefix="verify-share-") as name:
        rows = [
            row for size in sizes for row in measured(size, rounds, Path(name), quick=options.quick)
        ]
    shown = [[r["size"], r["name"], r["s"], r["verify"], f"{r['share']:.2%}"] for r in rows]
    failed = [] if options.quick else shortfalls(rows)
    header = ["size", "answers", "s a step", "verify, s", "share"]
    return publish(options, table(header, shown), rows, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
