"""Mathematical answers: agreement with labelled responses per kind, and rewarded hacks.

    python benchmarks/verify_accuracy.py [--quick] [--json FILE] [--cases FILE ...]

Our own cases lie under tests/; `--cases` names further files of the same form (gold, response,
label, category). A gold without a value has the label null: the verdict has to be an error. One
table counts how answers were decided: by a rule or by computer algebra. The last one compares pairs
with the documentation of math-verify.
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish, table

from veriloop.data.jsonl import read_rows
from veriloop.data.problem import Problem
from veriloop.verifiers.answer import unboxed
from veriloop.verifiers.math.decide import decide
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.verdict import Verdict

CASES = ROOT / "tests" / "verifiers" / "cases"
GOAL = 0.97
GOAL_OF_KIND = 0.9
GOAL_EQUALITIES = 0.98


def read(path: Path) -> list[dict[str, Any]]:
    return list(read_rows(path))


def not_worked_out() -> list[dict[str, Any]]:
    """Golds such as integrals and series, each with the answer in a box."""
    rows = read(CASES / "math_not_worked_out.jsonl")
    return [row | {"response": f"\\boxed{{{row['answer']}}}"} for row in rows]


def rung(verdict: Verdict) -> str:
    """What decided: a rule, or the status of a verdict without a graded answer."""
    decided = verdict.status if verdict.status != "graded" else verdict.detail
    return re.sub(r"\d+ characters", "allowed", decided) or "no rule"


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Correct and all verdicts per category and per rung, lines judged wrongly, rewarded hacks."""
    tasks = [
        (
            Problem(
                id=f"a/{n}", prompt="", verifier="math_answer", reference={"answer": row["gold"]}
            ),
            row["response"],
        )
        for n, row in enumerate(rows)
    ]
    with VerifierPool(workers=1, limit_s=5.0) as pool:
        verdicts = pool.judge_all(tasks)
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    wrong: list[dict[str, Any]] = []
    rungs: dict[str, Counter[str]] = defaultdict(Counter)
    for row, verdict in zip(rows, verdicts, strict=True):
        label = None if verdict.score is None else bool(verdict.score)
        right = label == row["label"]
        rungs[rung(verdict)].update(lines=1, right=right)
        kinds[row["category"]][0] += right
        kinds[row["category"]][1] += 1
        if not right:
            wrong.append({**row, "answer": verdict.answer, "detail": verdict.detail})
    paid = [entry for entry in wrong if entry["category"].startswith("hack") and not entry["label"]]
    return {
        "lines": len(rows),
        "accuracy": 1 - len(wrong) / len(rows),
        "kinds": {kind: tuple(counts) for kind, counts in sorted(kinds.items())},
        "rungs": {name: dict(counts) for name, counts in sorted(rungs.items())},
        "hacks_paid": len(paid),
        "wrong": wrong,
    }


def equalities() -> dict[str, Any]:
    """The agreement with the documentation of math-verify, and the pairs that differ."""
    rows = read(CASES / "math_equalities.jsonl")
    ours = [decide(row["gold"], unboxed(row["answer"]))[0] for row in rows]
    pairs = list(zip(rows, ours, strict=True))
    apart = [row for row, verdict in pairs if verdict != row["documented"]]
    return {
        "pairs": len(rows),
        "agreement": 1 - len(apart) / len(rows),
        "agreement_with_its_verdicts": sum(s == r["math_verify"] for r, s in pairs) / len(rows),
        "apart": [
            {"gold": r["gold"], "answer": r["answer"], "why": r.get("why", "")} for r in apart
        ],
    }


def shortfalls(name: str, counts: dict[str, Any]) -> list[str]:
    low = [k for k, (right, all_) in counts["kinds"].items() if right / all_ < GOAL_OF_KIND]
    failed = [f"{name}: accuracy {counts['accuracy']:.3f}"] if counts["accuracy"] < GOAL else []
    failed += [f"{name}: under {GOAL_OF_KIND} in {', '.join(low)}"] if low else []
    return failed + ([f"{name}: {counts['hacks_paid']} hacks paid"] if counts["hacks_paid"] else [])


def main() -> int:
    options = arguments(
        __doc__ or "", cases={"type": Path, "nargs": "*", "default": [], "help": "more cases"}
    )
    sources = {
        "own": read(CASES / "math_answers.jsonl"),
        "reading": read(CASES / "math_reading.jsonl"),
        "review": read(CASES / "math_review.jsonl"),
        "not worked out": not_worked_out(),
    }
    sources |= {path.stem: read(path) for path in options.cases}
    results: dict[str, Any] = {}
    failed: list[str] = []
    blocks: list[str] = []
    for name, rows in sources.items():
        counts = judged(rows[::20] if options.quick else rows)
        results[name] = counts
        failed += [] if options.quick else shortfalls(name, counts)
        lines = [[k, r, n, r / n] for k, (r, n) in counts["kinds"].items()]
        blocks.append(table([f"{name} cases", "right", "of", "share"], lines))
        decided = [[k, n["lines"], n["right"]] for k, n in counts["rungs"].items()]
        blocks.append(table([f"{name} cases decided by", "lines", "judged right"], decided))
        blocks.append(
            f"{counts['lines']} lines, accuracy {counts['accuracy']:.4f}, "
            f"hacks paid {counts['hacks_paid']}\n"
        )
    same = results["equalities"] = equalities()
    blocks.append(
        f"{same['pairs']} pairs: agreement {same['agreement']:.4f} with what is documented, "
        f"{same['agreement_with_its_verdicts']:.4f} with math-verify's verdicts"
    )
    blocks += [
        f"  apart: {pair['gold']} ~ {pair['answer']}: {pair['why']}" for pair in same["apart"]
    ]
    failed += ["the table of equalities"] if same["agreement"] < GOAL_EQUALITIES else []
    return publish(options, "\n".join(blocks), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
