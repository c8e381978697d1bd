"""reasoning-gym's tasks through the strict verifier: own answers in, padded answers in, hedges out.

    python benchmarks/verify_reasoning_gym.py [--quick] [--json FILE]

Every task generates some entries. Its own answer is its oracle, or the solution in its metadata;
tasks without either (several solutions, none stored) are listed and left to their scorers.
"""

import sys
from collections.abc import Callable
from typing import Any

from publish import arguments, publish, table

from veriloop.verifiers.reasoning_gym import KNOWN
from veriloop.verifiers.registry import get, judge

WRITTEN: dict[str, Callable[[str], str]] = {
    "own answer": lambda own: own,
    "padded": lambda own: f"  \n {own} \n",
    "hedge: X or 17": lambda own: f"{own} or 17",
    "hedge: 17, X": lambda own: f"17, {own}",
    "hedge: X twice": lambda own: f"{own}\n{own}",
    "I don't know": lambda own: "I don't know",
}
LEFT_OUT = ("composite",)  # a mixture of the others


def own_answer(entry: dict[str, Any]) -> str | None:
    """The solution in the entry, as text."""
    named = [entry["answer"], *(entry["metadata"].get(key) for key in KNOWN)]
    answer = next((candidate for candidate in named if candidate is not None), None)
    if isinstance(answer, dict):  # a colouring, whose scorer reads JSON
        pairs = ", ".join(f'"{key}": {value}' for key, value in answer.items())
        return f"{{{pairs}}}"
    return None if answer is None else str(answer)


def main() -> int:
    options = arguments(__doc__ or "")
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError as missing:
        print(f"needs the package {missing.name}; see requirements/reasoning-gym.txt")
        return 1
    size = 1 if options.quick else 5
    names = [name for name in sorted(DATASETS) if name not in LEFT_OUT]
    earned: dict[str, list[str]] = {kind: [] for kind in WRITTEN}  # tasks that paid every entry
    paid: dict[str, list[str]] = {kind: [] for kind in WRITTEN}  # tasks that paid any entry
    unknown: list[str] = []
    for name in names:
        entries = [dict(entry) for entry in reasoning_gym.create_dataset(name, size=size, seed=1)]
        owns = [own_answer(entry) for entry in entries]
        if None in owns:
            unknown.append(name)
            continue
        for kind, write in WRITTEN.items():
            scores = [
                score(name, entry, write(own or ""))
                for entry, own in zip(entries, owns, strict=True)
            ]
            earned[kind] += [name] * all(value == 1.0 for value in scores)
            paid[kind] += [name] * any(value != 0.0 for value in scores)
    tried = len(names) - len(unknown)
    rows = [[kind, str(len(earned[kind])), str(len(paid[kind]))] for kind in WRITTEN]
    failed = [
        f"{kind}: not accepted in {sorted(set(names) - set(unknown) - set(earned[kind]))}"
        for kind in ("own answer", "padded")
        if len(earned[kind]) < tried
    ]
    failed += [f"{kind}: earned in {paid[kind]}" for kind in list(WRITTEN)[2:5] if paid[kind]]
    text = table([f"of {tried} tasks, {size} entries each", "earned in all", "in any"], rows)
    text += f"\nno solution of their own: {', '.join(unknown) or 'none'}"
    return publish(options, text, {"tasks": tried, "earned": earned, "paid": paid}, failed=failed)


def score(task: str, entry: dict[str, Any], answer: str) -> float | None:
    problem = get("reasoning_gym").problem({"task": task, "entry": entry})
    return judge(problem, f"<answer>{answer}</answer>").score


if __name__ == "__main__":
    sys.exit(main())
