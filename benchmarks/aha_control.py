"""The control of `aha.py`: plain steps that are wrong as often, but by chance and not by belief.

    python benchmarks/aha_control.py [--quick] [--json FILE]

No sum is learned wrong in this corpus; each step, in conversations and on the web, slips at random
at the rate at which the other corpus states a myth. Everything else, and what is measured, is the
same, and so are the sums that the rows call myths. Nothing is claimed of it: it shows what false
beliefs add to plain unreliability.
"""

import sys
import tempfile
from pathlib import Path

import aha
import yaml
from publish import arguments, publish

SEED = 0


def main() -> int:
    options = arguments(__doc__ or "")
    mix = yaml.safe_load(aha.BASE.read_text())["corpus"]
    rate = mix["myths"] * mix["believed"]
    chance = {"myths": 0.0, "step_errors": [rate, rate], "web_step_errors": rate,
              "caught_errors": rate}  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="aha-control-"))
    results = [aha.run(folder, SEED, quick=options.quick, corpus=chance)]
    return publish(options, aha.told(results), results)


if __name__ == "__main__":
    sys.exit(main())
