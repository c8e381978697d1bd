"""Classical RLHF: wins over its SFT model by an exact rule, and the reward model over-optimised.

    python benchmarks/rlhf.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]

For each seed all stages of `recipes/tiny/rlhf.yaml`, in a separate process on one core. Then a
second reward model learns from an eighth of the pairs, and PPO goes on for more steps with it and
without a KL to the SFT model (`free`), as in the study of over-optimisation of Gao et al. (arXiv
2210.10760), whose reward models differ in their pairs. The seeds share the base model and nothing
after it. Then the SFT model and both policies answer the same held-out prompts; the answer that
the exact rule of the general prompts scores higher wins, and a tie counts half. RL never sees this
rule. Claims, over the seeds: PPO wins 0.75 or more; in the further steps the reward rises by more
than its 95 % interval, and the share right by the rule by no more than 0.01.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from listed_runs import Settings, Stage, each_seed, listed, shipped
from paired import interval, tenths
from preferences import win_rate
from publish import arguments, publish, table
from tiny_runs import OPTIONS

from veriloop.data import general
from veriloop.data.problem import Problem
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler
from veriloop.verifiers.registry import judge

LIST, SEEDS = "tiny/rlhf", (0, 1, 2)
PROMPTS, ANSWERS, TEMPERATURE = 120, 4, 0.7  # all held-out prompts
WINS, STALLS = 0.75, 0.01
MORE = {"steps": 40, "algorithm.kl_coefficient": 1e-9}  # measures the KL and does nothing about it
WEAK = {"data.rows": 2048, "data.adversarial": 0.5, "optimizer.learning_rate": 6e-4, "epochs": 2}
QUICK: Settings = {
    "base": {"name": "tiny/quick", "steps": 60, "step_accuracy": 0.0},
    "sft": {"data.rows": 64, "data.held_out": 8, "epochs": 1, "evaluation.problems": 8},
    "reward_model": {"data.rows": 64, "data.held_out": 16, "epochs": 1},
    "weak_model": {"data.rows": 64, "data.held_out": 16, "epochs": 1},
    "ppo": {"steps": 10, "rollout.prompts": 8, "evaluation.problems": 8},
    "free": {"steps": 10, "rollout.prompts": 8, "evaluation.problems": 8},
}
CURVES = {"reward": "reward", "right": "rewards/accuracy/mean", "kl": "kl"}


def further() -> list[Stage]:
    """The weak reward model, and PPO with it from where the shipped stage ends."""
    own = {stage["name"]: stage for stage in shipped(LIST)["stages"]}
    weak = own["reward_model"] | {"name": "weak_model", "set": WEAK}
    ppo = own["ppo"]
    take = {key: "weak_model.checkpoint" for key in ppo["take"]} | {"start": "ppo.checkpoint"}
    return [weak, ppo | {"name": "free", "take": take, "set": ppo["set"] | MORE}]


def scores(checkpoint: Path, problems: Sequence[Problem], seed: int) -> list[float]:
    """What the exact rule gives to each of the answers."""
    scribe = RolloutGenerator(load_tokenizer(checkpoint), load_generation_config(checkpoint))
    sampling = Sampling(per_prompt=ANSWERS, temperature=TEMPERATURE, max_tokens=112, seed=seed)
    asked = [(problem.id, problem) for problem in problems]
    rollouts = scribe.rollouts(TorchSampler(str(checkpoint)), asked, sampling)
    return [judge(r.problem, r.response).score or 0.0 for r in rollouts]


def told(seed: int, stages: Mapping[str, Stage], *, quick: bool) -> dict[str, Any]:
    """What is published of one seed."""
    problems = general.distinct("test", 1, 8 if quick else PROMPTS)
    answers = {
        name: scores(Path(stages[name]["outputs"]["checkpoint"]), problems, 1000 + seed)
        for name in ("sft", "ppo", "free")
    }
    return {
        "seed": seed,
        **{
            name: {k: v for k, v in stages[name]["after"].items() if k.startswith("accuracy")}
            for name in ("reward_model", "weak_model")
        },
        "right": {name: fmean(own) for name, own in answers.items()},
        "wins": {name: win_rate(answers[name], answers["sft"]) for name in ("ppo", "free")},
        "curves": {
            name: {what: [step[key] for step in stages[name]["curve"]]
                   for what, key in CURVES.items()}
            for name in ("ppo", "free")
        },
        "seconds": {name: stage["seconds"] for name, stage in stages.items()},
    }  # fmt: skip


def rise(results: Sequence[Mapping[str, Any]], what: str) -> tuple[float, float]:
    """The rise from the first tenth of the further steps to the last, and half of its 95 %
    interval."""
    curves = [tenths(r["curves"]["free"][what]) for r in results]
    return interval([curve[-1] - curve[0] for curve in curves])


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the results do not support."""
    wins = fmean(r["wins"]["ppo"] for r in results)
    (reward, noise), (right, _) = (rise(results, what) for what in ("reward", "right"))
    missed = [f"win rate over SFT {wins:.3f} < {WINS}"] if wins < WINS else []
    if reward <= noise:
        missed.append(f"the reward in the further steps: {reward:+.3f} ± {noise:.3f}")
    if right > STALLS:
        missed.append(f"the share right in the further steps still rises, by {right:+.3f}")
    return missed


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f"seed {r['seed']}", *(f"{value:.3f}" for value in r["right"].values()),
         *(f"{value:.3f}" for value in r["wins"].values())]
        for r in results
    ]  # fmt: skip
    header = ["run", "SFT", "PPO", "free", "PPO wins", "free wins"]
    curves = [
        [name, what, *(f"{fmean(at):.2f}" for at in zip(
            *(tenths(r["curves"][name][what]) for r in results), strict=True))]
        for name in ("ppo", "free")
        for what in CURVES
    ]  # fmt: skip
    parts = ["run", "tenths of the run", *map(str, range(1, 11))]
    return f"{table(header, rows)}\n\n{table(parts, curves)}"


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
    )
    quick = options.quick
    results = [
        told(seed, stages, quick=quick)
        for seed, stages in each_seed(
            options, "rlhf", lambda seed: listed(LIST, seed, QUICK if quick else {}, further())
        )
    ]
    missed = [] if quick or len(results) == 1 else shortfalls(results)
    return publish(options, summary(results), results, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
