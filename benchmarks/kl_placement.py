"""KL estimators in the reward and in the loss: published claims about training stability, tested.

    python benchmarks/kl_placement.py [--quick] [--json FILE] [--betas B ...] [--rates R ...]
                                      [--seeds N ...] [--steps N] [--folder DIR] [--jobs N]

Claims: k1 in the reward is unbiased and works best; k1 in the loss is unstable; k3 in the reward
collapses; k3 in the loss is stable. Each (estimator, place) is trained with several weights and
learning rates on the tiny base, three seeds each, with a fixed reference, and evaluated during
training, which also shows the results of shorter training. A run is unstable if its held-out
accuracy falls by more than FALL from its best, or if a number is not finite. The control has no KL.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from publish import arguments, publish, table
from tiny_runs import OPTIONS, Ended, all_of, run, work_folder

SEEDS = (0, 1, 2)
PLACES = [("k1", "reward"), ("k1", "loss"), ("k3", "reward"), ("k3", "loss")]
BETAS = (0.05, 0.5)
RATES = (2e-4, 6e-4)
STEPS = 48
FALL = 0.10
CONTROL = ("k3", "loss", 1e-9)  # a weight that measures the KL and does nothing about it
SIZE = ("--rollout.prompts", "8", "--evaluation.every", "12", "--algorithm.minibatches", "4")


class Run(NamedTuple):
    estimator: str
    place: str
    beta: float
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self))

    @property
    def flags(self) -> list[str]:
        """Command-line flags."""
        flags = [*SIZE, "--optimizer.learning-rate", str(self.rate)]
        flags += ["--algorithm.kl-coefficient", str(self.beta)]
        flags += ["--algorithm.kl-estimator", self.estimator]
        return [*flags, "--algorithm.kl-placement", self.place, "--algorithm.allow-biased"]


def measured(wanted: Run, ended: Ended) -> dict[str, Any]:
    """Accuracy during training, KL, and whether the run ended with a number that is not finite."""
    log = ended.log.read_text()
    if ended.status and "gradient norm is" not in log:  # any other end says nothing of KLs
        raise SystemExit(f"{wanted.name} failed:\n{log[-3000:]}")
    accuracy = [row["pass@1"] for row in ended.evaluations]
    return {
        **wanted._asdict(),
        "broke_off": bool(ended.status),
        "before": accuracy[0],
        "after": accuracy[-1],
        "best": max(accuracy),
        "unstable": bool(ended.status) or max(accuracy) - accuracy[-1] > FALL,
        "kl": fmean(step["kl"] for step in ended.steps[-5:]),
        "largest_norm": max(step["grad_norm"] for step in ended.steps),
        "held_out": [[row["step"], row["pass@1"]] for row in ended.evaluations],
    }


def cells(results: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, float]]:
    """By (estimator, place, beta, rate): means over the seeds, and the share that was unstable."""
    keys = ("estimator", "place", "beta", "rate")
    by_cell: dict[tuple[Any, ...], dict[str, float]] = {}
    for cell in dict.fromkeys(tuple(r[k] for k in keys) for r in results):
        own = [r for r in results if tuple(r[k] for k in keys) == cell]
        means = {k: fmean(r[k] for r in own) for k in ("after", "best", "kl", "unstable")}
        by_cell[cell] = means | {"largest_norm": max(r["largest_norm"] for r in own)}
    return by_cell


def claims(by_cell: Mapping[tuple[Any, ...], Mapping[str, float]]) -> list[list[Any]]:
    """Each claim, and in how many of the (beta, rate) cells it holds."""
    settings = list(dict.fromkeys(cell[2:] for cell in by_cell if cell != (*CONTROL, cell[3])))

    def count(holds: Callable[[float, float], bool]) -> str:
        return f"{sum(holds(*setting) for setting in settings)} of {len(settings)}"

    def of(estimator: str, placement: str, what: str) -> Callable[[float, float], float]:
        return lambda beta, rate: by_cell[estimator, placement, beta, rate][what]

    def best(beta: float, rate: float) -> bool:
        after = {placement: of(*placement, "after")(beta, rate) for placement in PLACES}
        return max(after, key=lambda placement: after[placement]) == ("k1", "reward")

    def holds_kl(estimator: str, placement: str) -> Callable[[float, float], bool]:
        kl = of(estimator, placement, "kl")
        return lambda beta, rate: kl(beta, rate) < by_cell[(*CONTROL, rate)]["kl"]

    def unstable(estimator: str, placement: str) -> Callable[[float, float], bool]:
        share = of(estimator, placement, "unstable")
        return lambda beta, rate: share(beta, rate) > 0

    return [
        ["k1 in the reward is the best of all", count(best)],
        ["k1 in the reward lowers the KL", count(holds_kl("k1", "reward"))],
        ["k1 in the loss is unstable", count(unstable("k1", "loss"))],
        ["k1 in the loss lowers the KL", count(holds_kl("k1", "loss"))],
        ["k3 in the reward collapses", count(unstable("k3", "reward"))],
        ["k3 in the loss is stable", count(lambda *setting: not unstable("k3", "loss")(*setting))],
        ["k3 in the loss lowers the KL", count(holds_kl("k3", "loss"))],
    ]


def main() -> int:
    options = arguments(
        __doc__ or "",
        betas={"nargs": "+", "type": float, "default": list(BETAS)},
        rates={"nargs": "+", "type": float, "default": list(RATES)},
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        steps={"type": int, "default": STEPS},
        **OPTIONS,
    )
    betas, rates, seeds = options.betas, options.rates, options.seeds
    if options.quick:
        betas, rates, seeds = betas[:1], rates[:1], seeds[:1]
    folder = work_folder(options.folder, "kl")
    cases = [(*placement, beta) for placement, beta in product(PLACES, betas)]
    wanted = [
        Run(*case, rate, seed) for seed, rate, case in product(seeds, rates, [CONTROL, *cases])
    ]

    def train(wanted_run: Run) -> Mapping[str, Any]:
        flags = ["--steps", str(options.steps), *wanted_run.flags]
        summarize = partial(measured, wanted_run)
        result = run(
            folder, wanted_run.name, flags, wanted_run.seed, summarize, quick=options.quick
        )
        print(f"{wanted_run.name}: pass@1 {result['after']:.3f}, KL {result['kl']:.3f}", flush=True)
        return result

    results = all_of(wanted, options.jobs, train)
    by_cell = cells(results)
    header = ["estimator", "in the", "beta", "rate", "after", "best", "KL", "unstable", "norm"]
    rows = [[*map(str, cell), *means.values()] for cell, means in by_cell.items()]
    held = claims(by_cell)
    text = "\n".join([table(header, rows), "", table(["claim", "(beta, rate) cells"], held)])
    return publish(options, text, {"runs": results, "claims": held})


if __name__ == "__main__":
    sys.exit(main())
