"""verl: `reward.custom_reward_function.path=.../verifiers/adapters/verl.py`, name `compute_score`.

verl averages the keys of the first sample over all samples, so every sample has the same numeric
keys, and an exception would end the run. What cannot be judged is therefore 0 with `error` 1.
`reward_kwargs: {verifier: ...}` names the verifier. Without it, the label in `extra_info` of
exported rows names it, and `math_answer` judges rows that have none. verl does not pass the
prompt: it is read from `extra_info`, from `prompt` or, as in verl's own data sets, `question`.
Without it an answer that repeats the problem is judged like any other.
"""

from collections.abc import Mapping
from typing import Any

from veriloop.verifiers.adapters.grading import judge_tasks
from veriloop.verifiers.conversation import user_text
from veriloop.verifiers.labels import names_verifier, problem_for
from veriloop.verifiers.registry import describe

KEYS = ("score", "no_answer", "timeout", "error")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    verifier: str = "",
    **unused: Any,
) -> dict[str, float]:
    """The score, and each status as 0 or 1. Never raises."""
    del data_source, unused
    try:
        row = extra_info or {}
        exported = not verifier and names_verifier(row.get("label"))
        gold, name = row["label"] if exported else ground_truth, verifier or "math_answer"
        problem = problem_for(gold, name, prompt=_prompt(row), facts=row.get("facts"))
        (verdict,) = judge_tasks([(problem, solution_str)])
    except Exception as failure:  # noqa: BLE001  an exception would end the whole run
        print(f"veriloop: {describe(failure)}", flush=True)
        return dict.fromkeys(KEYS, 0.0) | {"error": 1.0}
    statuses = {key: float(verdict.status == key) for key in KEYS[1:]}
    return {"score": verdict.score or 0.0, **statuses}


def _prompt(row: Mapping[str, Any]) -> str:
    """The prompt in `extra_info`: text, a conversation, or its array of a Parquet file."""
    prompt = row.get("prompt", row.get("question"))
    return user_text(prompt.tolist() if hasattr(prompt, "tolist") else prompt)
