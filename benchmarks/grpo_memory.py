"""Peak resident memory of a GRPO update, veriloop against TRL, with a vocabulary of 150,000.

    python benchmarks/grpo_memory.py [--quick] [--json FILE]

16 fixed answers of 512 tokens on a Qwen2 of 10 M parameters, most of them in the tied head. Both
sides run with all answers in one micro-batch and with one at a time; TRL with its defaults, and in
float32 without gradient checkpointing. Each contender is a separate process and makes three
updates. Reported are its peak resident memory (VmHWM of /proc), the peak when model and trainer
were loaded, and the seconds of an update. All use one allocator arena.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contenders import Contender, Process, in_turn, model_of
from paired import sides
from publish import arguments, publish, table
from update_turns import ANSWERS

SCRIPT = "update_turns.py"
VOCABULARY, QUICK = 150_000, 4096
SHAPE = {
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "heads": 2,
    "tie_word_embeddings": True,
}  # fmt: skip
BAR = 0.5  # of the least that TRL takes for as many answers at once
PLAIN = {"bf16": False, "gradient_checkpointing": False}
AT_ONCE = (ANSWERS, 1)


def contenders(at_once: int, vocabulary: int) -> list[Contender]:
    """The contenders with `at_once` answers per micro-batch."""
    label, both = f"{at_once} at once", {"vocabulary": vocabulary}
    rows = {**both, "rows": at_once}  # an answer is longer than a row, and gets one of its own
    trl = {**both, "at_once": at_once}
    return [
        Contender(name=f"TRL, {label}", side="trl", settings=trl),
        Contender(name=f"TRL, float32, {label}", side="trl", settings={**trl, **PLAIN}),
        Contender(name=f"ours, {label}", side="ours", settings=rows),
        Contender(
            name=f"ours, bfloat16, {label}", side="ours", settings={**rows, "compute": "bfloat16"}
        ),
    ]


def measured(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Run one contender after the other, since they would share memory."""
    vocabulary = QUICK if quick else VOCABULARY
    warm_up, rounds = (0, 1) if quick else (1, 2)
    model = model_of(folder / "model", {**SHAPE, "vocab_size": vocabulary})
    rows: list[dict[str, Any]] = []
    for at_once in AT_ONCE:
        for contender in contenders(at_once, vocabulary):
            (row,) = in_turn([Process(contender, SCRIPT, model, folder)], warm_up, rounds)
            loaded = row["first"]["loaded_gib"]
            rows.append({"at_once": at_once, **row, "loaded_gib": loaded})
    return rows


def shares(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """veriloop's lowest peak over TRL's lowest, by answers at once."""
    by_batch: dict[int, float] = {}
    for at_once in AT_ONCE:
        ours, theirs = sides([r for r in rows if r["at_once"] == at_once], "peak_gib", min)
        by_batch[at_once] = ours / theirs
    return by_batch


def main() -> int:
    options = arguments(__doc__ or "")
    os.environ["MALLOC_ARENA_MAX"] = "1"
    with tempfile.TemporaryDirectory(prefix="grpo-memory-") as folder:
        rows = measured(Path(folder), quick=options.quick)
    shown = [
        [r["name"], r["loaded_gib"], r["peak_gib"], r["peak_gib"] - r["loaded_gib"], r["s"]]
        for r in rows
    ]
    text = table(["contender", "loaded GiB", "peak GiB", "update GiB", "s"], shown)
    ratios = shares(rows)
    text += "".join(f"\n{n} at once: {share:.2f} of TRL's least" for n, share in ratios.items())
    failed = [
        f"{n} answers at once: peak memory {share:.2f} of TRL's least, wanted {BAR}"
        for n, share in ratios.items()
        if share > BAR
    ]
    return publish(options, text, rows, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
