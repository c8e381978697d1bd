"""R1-Zero with other KL coefficients, for the rewards of the verifiers and for random ones.

    python benchmarks/zero_kl.py [--quick] [--json FILE] [--seeds N ...]

A reward without information should leave the policy where it was, and a real one should still teach
it. Each run is `tiny/zero` on the command line with a coefficient of COEFFICIENTS in place of the
recipe's, among which the paper's is the least; the runs of a seed share one base model. Nothing is
claimed: the table is the reason for the recipe's coefficient.
"""

import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from learning_tables import zero_kl
from publish import arguments, publish
from zero_seeds import run

COEFFICIENTS = (0.001, 0.02, 0.05, 0.2)
CONTROLS = ("none", "random")  # `none`: the rewards of the verifiers
SEEDS = (0, 1)


def main() -> int:
    options = arguments(__doc__ or "", seeds={"nargs": "+", "type": int, "default": list(SEEDS)})
    seeds = options.seeds[:1] if options.quick else options.seeds
    tried = COEFFICIENTS[:1] if options.quick else COEFFICIENTS
    folder = Path(tempfile.mkdtemp(prefix="zero-kl-"))
    results: list[dict[str, Any]] = []
    for seed, control, coefficient in product(seeds, CONTROLS, tried):
        name = f"{control}-{coefficient}-{seed}"
        flags = ("--algorithm.kl-coefficient", str(coefficient))
        made = run(folder, name, seed, control, *flags, quick=options.quick)
        results.append({"kl_coefficient": coefficient, **made})
        print(f"{name}: {made['seconds']:.0f} s", flush=True)
    return publish(options, "\n".join(zero_kl(results)), results)


if __name__ == "__main__":
    sys.exit(main())
