"""What a script inside a peer saw: claims, each with what came and what was wanted, as JSON."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

MARK = "claims: "  # before the one line that the parent reads


class Claims:
    """Collects claims about one peer. `packages`: whose versions are told, the peer's own first."""

    def __init__(self, called: str, packages: Sequence[str]) -> None:
        self._told: dict[str, Any] = {
            "called": called,
            "versions": {name: version(name) for name in packages},
            "claims": [],
        }

    def holds(self, claim: str, came: Any, wanted: Any) -> None:
        """Note whether what came is what was wanted."""
        told = {"claim": claim, "holds": bool(came == wanted)}
        if not told["holds"]:
            told |= {"came": repr(came)[:2000], "wanted": repr(wanted)[:2000]}
        self._told["claims"].append(told)

    def tell(self) -> None:
        """Print them all on one line."""
        print(MARK + json.dumps(self._told), flush=True)
