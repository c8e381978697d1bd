"""Run one suite on one tier in a separate process, with any Python and account; prints JSON.

Needs the standard library and the packages `sandbox`, `verifiers` and `data`, nothing else.
"""

import json
import sys
from pathlib import Path


def main(root: str, suite: str, tier: str, processes: str) -> None:
    """Print the report, and the results of the probe."""
    sys.path.insert(0, root)
    from veriloop.sandbox.canaries import canaries
    from veriloop.sandbox.namespace.pool import NamespaceExecutor
    from veriloop.sandbox.probe import SandboxUnavailableError, probe
    from veriloop.sandbox.suite import load, run_suite
    from veriloop.verifiers.code.tests import grade

    attacks, honest = load(Path(suite), processes=processes == "processes")
    with canaries() as targets:
        try:
            box = NamespaceExecutor(slots=2, tier=int(tier))  # two: some attacks have a neighbour
        except SandboxUnavailableError as refusal:
            print(json.dumps({"skipped": str(refusal).splitlines()[0]}))
            return
        with box:
            if processes == "processes" and not box.probe.cgroup:
                print(json.dumps({"skipped": "no cgroup to bound processes together"}))
                return
            report = run_suite(box, targets, attacks, honest, grade)
    print(json.dumps({**report.flat(), "probe": str(probe())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
