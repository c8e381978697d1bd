"""Peak resident memory of a GRPO update of ours against TRL's: a vocabulary of 150,000.

    python benchmarks/grpo_memory.py [--quick] [--json FILE]

16 answers of 512 tokens, given and not sampled, on a Qwen2 of 10 M parameters of which the tied
head has most. All answers of the batch in one micro-batch, and one at a time, on both sides; TRL as
it installs and in float32 without gradient checkpointing. Each contender is a process of its own
and makes three updates; shown are its peak resident memory (VmHWM of /proc), what it had reached
when model and trainer were there, and the seconds of an update. One allocator arena for all.
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
    """Those that work on so many answers at one time."""
    told, both = f"{at_once} at once", {"vocabulary": vocabulary}
    rows = {**both, "rows": at_once}  # an answer is longer than a row, and gets one of its own
    trl = {**both, "at_once": at_once}
    return [
        Contender(name=f"TRL, {told}", side="trl", settings=trl),
        Contender(name=f"TRL, float32, {told}", side="trl", settings={**trl, **PLAIN}),
        Contender(name=f"ours, {told}", side="ours", settings=rows),
        Contender(
            name=f"ours, bfloat16, {told}", side="ours", settings={**rows, "compute": "bfloat16"}
        ),
    ]


def measured(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """One contender after the other: none takes memory from another."""
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
    """Our least peak over TRL's least, by the answers at once."""
    found: dict[int, float] = {}
    for at_once in AT_ONCE:
        ours, theirs = sides([r for r in rows if r["at_once"] == at_once], "peak_gib", min)
        found[at_once] = ours / theirs
    return found


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
    found = shares(rows)
    text += "".join(f"\n{n} at once: {share:.2f} of TRL's least" for n, share in found.items())
    failed = [
        f"{n} answers at once: peak memory {share:.2f} of TRL's least, wanted {BAR}"
        for n, share in found.items()
        if share > BAR
    ]
    return publish(options, text, rows, failed=[] if options.quick else failed)


if __name__ == "__main__":
    sys.exit(main())
