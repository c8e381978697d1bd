"""`make demo` from a clean clone with an installed environment: wall time and peak memory.

    python benchmarks/demo.py [--quick] [--json FILE]

The clone borrows this environment and starts with an empty cache. `--quick` stops after the plan.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from publish import ROOT, arguments, publish, table

LIMIT_S = 480  # what is claimed of two cores


def main() -> int:
    options = arguments(__doc__ or "")
    clone = Path(tempfile.mkdtemp(prefix="demo-")) / "veriloop"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    words = [
        sys.executable,
        "-m",
        "stages.command",
        "zero",
        "tiny/zero",
        "--output",
        "outputs/demo",
    ]
    words += ["--dry-run"] if options.quick else ["--resume"]
    began = time.monotonic()
    done = subprocess.run(words, cwd=clone, check=False, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"the demo failed: {done.stdout[-2000:]}")
    if options.quick:
        return publish(options, done.stdout, {"seconds": seconds})
    run = json.loads((clone / "outputs/demo/run.json").read_text())
    stages = {stage["name"]: stage["seconds"] for stage in run["stages"]}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    results = {
        "seconds": seconds,
        "peak_gib": peak,
        **stages,
        "sampler": run["stages"][-1]["sampler"],
    }
    text = table(list(results), [list(results.values())])
    failed = [f"{seconds:.0f} s is more than {LIMIT_S} s"] if seconds > LIMIT_S else []
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
