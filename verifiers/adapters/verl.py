"""verl: `reward.custom_reward_function.path=.../verifiers/adapters/verl.py`, name `compute_score`.

verl takes the keys of the first sample for all and averages each, so every answer has the same
numeric keys, and raising would end the run. A failure of ours is therefore 0 with `error` 1: it
has no other way. `reward_kwargs: {verifier: ...}` names the verifier.
"""

from collections.abc import Mapping
from typing import Any

from verifiers.adapters.grading import judged
from verifiers.labels import problem_for
from verifiers.registry import describe

KEYS = ("score", "no_answer", "timeout", "error")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    verifier: str = "math_answer",
    **unused: Any,
) -> dict[str, float]:
    """The score, and which status it has as 0 or 1. Never raises."""
    del data_source, unused
    try:
        facts = (extra_info or {}).get("facts")
        (verdict,) = judged([(problem_for(ground_truth, verifier, facts=facts), solution_str)])
    except Exception as failure:  # noqa: BLE001  one raised here ends the whole run
        print(f"veriloop: {describe(failure)}", flush=True)
        return dict.fromkeys(KEYS, 0.0) | {"error": 1.0}
    told = {key: float(verdict.status == key) for key in KEYS[1:]}
    return {"score": verdict.score or 0.0, **told}
