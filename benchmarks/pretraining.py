"""Pre-training of the tiny models in float32 and in bfloat16: CPU seconds, and accuracy.

    python benchmarks/pretraining.py [--quick] [--json FILE] [--seeds N ...]

`tiny/base_r1`, which leaves the precision to the CPU (`compute: auto`), and `tiny/student`, each
from nothing with one thread, in turn. CPU seconds are those of the whole command, with the
tokenizer and the measurement of accuracy at its end, which are the same in both precisions.
Claims: on a CPU with instructions for bfloat16 it takes fewer CPU seconds, and the bases reach the
accuracy that their recipes demand either way.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from learning_tables import pretraining
from publish import ROOT, arguments, publish

from veriloop.pipeline.runs.provenance import computes_bfloat16, cpu_flags

MODELS, PRECISIONS, SEEDS = ("tiny/base_r1", "tiny/student"), ("float32", "bfloat16"), (0, 1)
QUICK = ("--steps", "5", "--step-accuracy", "0", "--tokenizer-documents", "300")
SHOWN = ("loss", "step_accuracy", "program_accuracy")


def run(model: str, precision: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """What is published of one model."""
    words = ["base", model, "--seed", str(seed), "--compute", precision, *(QUICK if quick else ())]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="pretraining-") as name:
        ended = subprocess.run(
            [sys.executable, "-m", "veriloop", *words, "--output", "run"],
            cwd=name,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise SystemExit(f"veriloop {' '.join(words)} failed:\n{ended.stderr[-3000:]}")
        facts = json.loads(next(Path(name).glob("outputs/cache/*/base.json")).read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kept = {key: facts[key] for key in SHOWN if key in facts}
    return {"model": model, "precision": precision, "seed": seed, "cpu_s": used, **kept}


def missed(rows: list[dict[str, Any]]) -> list[str]:
    """Claims that the results do not support on this CPU."""
    flags, failed = cpu_flags(), list[str]()
    for model in MODELS if flags and computes_bfloat16(flags) else ():
        whole, half = (
            min(r["cpu_s"] for r in rows if (r["model"], r["precision"]) == (model, precision))
            for precision in PRECISIONS
        )
        if half >= whole:
            failed.append(f"{model}: bfloat16 {half:.0f} CPU seconds, float32 {whole:.0f}")
    return failed


def main() -> int:
    options = arguments(__doc__ or "", seeds={"nargs": "+", "type": int, "default": list(SEEDS)})
    seeds = options.seeds[:1] if options.quick else options.seeds
    rows: list[dict[str, Any]] = []
    for seed, model, precision in product(seeds, MODELS, PRECISIONS):
        rows.append(run(model, precision, seed, quick=options.quick))
        print(f"{model}, {precision}, seed {seed}: {rows[-1]['cpu_s']:.0f} CPU s", flush=True)
    failed = [] if options.quick else missed(rows)
    return publish(options, "\n".join(pretraining(rows)), rows, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
