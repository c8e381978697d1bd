"""Controls of `aha.py`: a base whose plain steps are reliable, and a loss averaged by sequence.

    python benchmarks/aha_control.py [--quick] [--json FILE] [--seeds N ...]

"trusted steps" starts the same reinforcement learning from `recipes/tiny/base.yaml`, whose corpus
has no systematic errors and few slips: its base checks as often, but does not need to. "sequence
mean" starts from the base that needs checks, but averages each answer's loss over its tokens first,
as GRPO does. There are no claims about either.
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
    return publish(options, aha.summary(results), results)


if __name__ == "__main__":
    sys.exit(main())
