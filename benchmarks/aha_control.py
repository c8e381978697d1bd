"""Controls of `aha.py`: where plain steps can be trusted, and where long answers count for less.

    python benchmarks/aha_control.py [--quick] [--json FILE] [--seeds N ...]

"trusted steps" starts the same reinforcement learning from `recipes/tiny/base.yaml`, in whose
corpus nobody has learned a sum wrong and a step seldom slips: its base checks as often, and need
not. "sequence mean" starts from the base that needs checks, but averages each answer's loss over
its tokens first, as GRPO does. Nothing is claimed of either.
"""

import sys
import tempfile
from pathlib import Path

import aha
from publish import ROOT, arguments, publish

CONTROLS = {  # name: (base recipe, flags)
    "trusted steps": (ROOT / "recipes/tiny/base.yaml", ()),
    "sequence mean": (aha.BASE, ("--algorithm.aggregation", "sequence_mean")),
}
SEED = 1


def main() -> int:
    options = arguments(__doc__ or "", seeds={"nargs": "+", "type": int, "default": [SEED]})
    folder = Path(tempfile.mkdtemp(prefix="aha-control-"))
    results = [
        aha.run(folder / name.replace(" ", "-"), seed, start, flags, quick=options.quick)
        | {"name": f"{name}, seed {seed}"}
        for name, (start, flags) in CONTROLS.items()
        for seed in (options.seeds[:1] if options.quick else options.seeds)
    ]
    return publish(options, aha.told(results), results)


if __name__ == "__main__":
    sys.exit(main())
