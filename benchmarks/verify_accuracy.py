"""Mathematical answers: agreement with labelled responses, per kind, and the hacks that are paid.

    python benchmarks/verify_accuracy.py [--quick] [--json FILE] [--cases FILE ...]

Our own cases lie under tests/; `--cases` names further files of the same form (gold, response,
label, category). A gold without a value has the label null: the verdict has to be an error. One
table counts what decided: a rule of ours or computer algebra. The last one compares pairs with what
math-verify documents.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish, table

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
    return [json.loads(line) for line in path.read_text().splitlines()]


def not_worked_out() -> list[dict[str, Any]]:
    """Golds such as integrals and series, each with the answer in a box."""
    rows = read(CASES / "math_not_worked_out.jsonl")
    return [row | {"response": f"\\boxed{{{row['answer']}}}"} for row in rows]


def rung(verdict: Verdict) -> str:
    """What decided: a rule, or the status of a verdict without a graded answer."""
    decided = verdict.status if verdict.status != "graded" else verdict.detail
    return re.sub(r"\d+ characters", "allowed", decided) or "no rule"


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Right and all per category and per rung, lines judged wrongly, hacks paid."""
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
    paid = [one for one in wrong if one["category"].startswith("hack") and not one["label"]]
    return {
        "lines": len(rows),
        "accuracy": 1 - len(wrong) / len(rows),
        "kinds": {kind: tuple(counts) for kind, counts in sorted(kinds.items())},
        "rungs": {name: dict(counts) for name, counts in sorted(rungs.items())},
        "hacks_paid": len(paid),
        "wrong": wrong,
    }


def equalities() -> dict[str, Any]:
    """How often we agree with what math-verify documents, and what stands where we do not."""
    rows = read(CASES / "math_equalities.jsonl")
    ours = [decide(row["gold"], unboxed(row["answer"]))[0] for row in rows]
    pairs = list(zip(rows, ours, strict=True))
    apart = [row for row, said in pairs if said != row["documented"]]
    return {
        "pairs": len(rows),
        "agreement": 1 - len(apart) / len(rows),
        "agreement_with_its_verdicts": sum(s == r["math_verify"] for r, s in pairs) / len(rows),
        "apart": [
            {"gold": r["gold"], "answer": r["answer"], "why": r.get("why", "")} for r in apart
        ],
    }


def shortfalls(name: str, found: dict[str, Any]) -> list[str]:
    low = [k for k, (right, all_) in found["kinds"].items() if right / all_ < GOAL_OF_KIND]
    failed = [f"{name}: accuracy {found['accuracy']:.3f}"] if found["accuracy"] < GOAL else []
    failed += [f"{name}: under {GOAL_OF_KIND} in {', '.join(low)}"] if low else []
    return failed + ([f"{name}: {found['hacks_paid']} hacks paid"] if found["hacks_paid"] else [])


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
        found = judged(rows[::20] if options.quick else rows)
        results[name] = found
        failed += [] if options.quick else shortfalls(name, found)
        lines = [[k, r, n, r / n] for k, (r, n) in found["kinds"].items()]
        blocks.append(table([f"{name} cases", "right", "of", "share"], lines))
        decided = [[k, n["lines"], n["right"]] for k, n in found["rungs"].items()]
        blocks.append(table([f"{name} cases decided by", "lines", "judged right"], decided))
        blocks.append(
            f"{found['lines']} lines, accuracy {found['accuracy']:.4f}, "
            f"hacks paid {found['hacks_paid']}\n"
        )
    same = results["equalities"] = equalities()
    blocks.append(
        f"{same['pairs']} pairs: agreement {same['agreement']:.4f} with what is documented, "
        f"{same['agreement_with_its_verdicts']:.4f} with math-verify's verdicts"
    )
    blocks += [f"  apart: {one['gold']} ~ {one['answer']}: {one['why']}" for one in same["apart"]]
    failed += ["the table of equalities"] if same["agreement"] < GOAL_EQUALITIES else []
    return publish(options, "\n".join(blocks), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
