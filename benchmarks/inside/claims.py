"""Claims that a script inside a peer has checked, with actual and expected values, as JSON."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

MARK = "claims: "  # before the one line that the parent reads


class Claims:
    """Collects claims about one peer. `packages`: those whose versions are reported, the peer
    first."""

    def __init__(self, called: str, packages: Sequence[str]) -> None:
        self._told: dict[str, Any] = {
            "called": called,
            "versions": {name: version(name) for name in packages},
            "claims": [],
        }

    def holds(self, claim: str, came: Any, wanted: Any) -> None:
        """Record whether the actual value equals the expected one."""
        entry = {"claim": claim, "holds": bool(came == wanted)}
        if not entry["holds"]:
            entry |= {"came": repr(came)[:2000], "wanted": repr(wanted)[:2000]}
        self._told["claims"].append(entry)

    def tell(self) -> None:
        """Print all claims on one line."""
        print(MARK + json.dumps(self._told), flush=True)
