"""Results of the whole recipe, the language reward and distillation, as Markdown."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from learning_tables import epochs, pretraining, spread, table, zero_kl
from paired import gain, lead, tenths

FIGURES = ("pass@1", "format", "language", "general", "mean_length")
Run = Mapping[str, Any]


def zero(runs: Sequence[Run]) -> list[str]:
    """One row per run, with each figure before and after."""
    names = {"random": "random rewards, ", "shuffled_groups": "shuffled groups, ", "none": ""}
    digits = {"pass@1": 3, "greedy": 3, "maj@4": 3, "format": 3, "mean_length": 1}
    header = ["run", "pass@1, T=1", "95 % after", "greedy", "maj@4", "format", "mean length"]
    rows: list[list[str]] = []
    for run in runs:
        before, after = run["before"], run["after"]
        low, high = after["pass@1 95%"]
        change = [f"{before[k]:.{d}f} → {after[k]:.{d}f}" for k, d in digits.items()]
        name = f"{names[run['control']]}seed {run['seed']}"
        rows.append([name, change[0], f"{low:.3f} to {high:.3f}", *change[1:]])
    return table(header, rows)


def quiet(runs: Sequence[Run]) -> list[Run]:
    """The runs without a busy process beside them."""
    return [run for run in runs if not run.get("busy_loops")]


def whole(runs: Sequence[Run]) -> list[str]:
    """One row per stage: the first run before and after, then the range over all runs that had the
    machine to themselves."""
    runs, rows = quiet(runs), list[list[str]]()
    for at, stage in enumerate(runs[0]["stages"]):
        ends = [run["stages"][at]["after"] for run in runs]
        cells = [_cell(stage, ends, name) for name in FIGURES]
        rows.append([stage["name"], f"{stage['seconds']:.0f}", *cells])
    return table(["stage", "s", *FIGURES], rows)


def _cell(stage: Run, ends: Sequence[Run], name: str) -> str:
    before, after = (stage[side].get(name) for side in ("before", "after"))
    if after is None:
        return ""
    change = f"{_short(after)}" if before is None else f"{_short(before)} → {_short(after)}"
    low, high = (_short(pick(end[name] for end in ends)) for pick in (min, max))
    return change if len(ends) == 1 else f"{change} ({low} to {high})"


def _short(value: float) -> str:
    return f"{value:.1f}" if value > 2 else f"{value:.2f}"


def language_reward(runs: Sequence[Run]) -> list[str]:
    """With the reward and without it, seed by seed."""
    digits = {"language": 3, "pass@1": 3, "greedy": 3, "format": 3, "mean_length": 1}
    rows = [
        [f"{run['arm']}, seed {run['seed']}"]
        + [f"{run['before'][k]:.{d}f} → {run['after'][k]:.{d}f}" for k, d in digits.items()]
        for run in runs
    ]
    return table(["run", *digits], rows)


ARMS = {"preference_rl": "reward model", "control": "control"}  # of secondary RL
SECONDARY = ("general", "pass@1", "format", "language")
REWARD_MODELS = ("reward_model", "reward_model_2")  # of RLHF in two rounds
OPTIMISED = {"reward": "reward", "right": "right by the rule", "kl": "KL to SFT"}


def secondary_rl(runs: Sequence[Run]) -> list[str]:
    """With the reward model and without it, seed by seed, and the gains over the seeds."""
    rows = [
        [f"{name}, seed {run['seed']}"]
        + [f"{run[arm]['before'][k]:.3f} → {run[arm]['after'][k]:.3f}" for k in SECONDARY]
        for run in runs
        for arm, name in ARMS.items()
    ]
    rows += [
        [
            f"{name}, gain, 95 %",
            *("{:+.3f} ± {:.3f}".format(*gain(runs, arm, k)) for k in SECONDARY),
        ]
        for arm, name in ARMS.items()
    ]
    return table(["run", *SECONDARY], rows)


def rlhf(runs: Sequence[Run]) -> list[str]:
    """The policies beside the SFT model seed by seed, and what PPO did to reward and rule."""
    header = ["run", "SFT right", "PPO right", "free right", "PPO wins", "free wins"]
    rows = [
        [
            f"seed {run['seed']}",
            *(f"{v:.3f}" for v in [*run["right"].values(), *run["wins"].values()]),
        ]
        for run in runs
    ]
    curves = [
        [f"{arm}: {what}", *(f"{fmean(at):.2f}" for at in zip(
            *(tenths(run["curves"][arm][key]) for run in runs), strict=True))]
        for arm in ("ppo", "free")
        for key, what in OPTIMISED.items()
    ]  # fmt: skip
    return [*table(header, rows), "", *table(["tenth of the run", *map(str, range(1, 11))], curves)]


ROUNDS = {
    **{"sft": "SFT", "ppo": "first round", "ppo_2": "second round"},
    "control": "first reward model further",
}


def rlhf_rounds(runs: Sequence[Run]) -> list[str]:
    """The share right by the rule after each round of RLHF, seed by seed, the leads over the
    seeds, and how accurate the reward models are on which pairs."""
    rows = [
        [f"seed {run['seed']}", *(f"{run['right'][name]:.3f}" for name in ROUNDS)] for run in runs
    ]
    first, second = ([run["accuracy"][name] for run in runs] for name in REWARD_MODELS)
    pairs = [
        ["first", spread([after for _, after in first], 3), spread([old for old, _ in second], 3)],
        ["second", "", spread([after for _, after in second], 3)],
    ]
    return [
        *table(["right by the rule after", *ROUNDS.values()], rows),
        "",
        *table(["reward model", "on pairs of the SFT model", "on pairs of the first round"], pairs),
    ]


def distillation(results: Sequence[Mapping[str, Run]]) -> list[str]:
    """One row per method of teaching the student, over all seeds. What it costs with the training
    of the teacher, and RL of that cost, are shown where they were measured."""
    others = [arm for arm in ("rl", "rl_longer") if arm in results[0]]
    whole = ["with the teacher's training"] * any(
        "cpu_with_teacher" in r["distill"] for r in results
    )
    digits = {"pass@1": 3, "greedy": 3, "format": 3, "mean_length": 1}
    rows: list[list[str]] = []
    for arm in results[0]:
        ends = [r[arm]["after"] for r in results]
        leads = ["{:+.3f} ± {:.3f}".format(*lead(results, arm, other)) for other in others]
        rows.append(
            [arm]
            + [spread([end[name] for end in ends], d) for name, d in digits.items()]
            + [spread([r[arm]["cpu"] for r in results], 0)]
            + [spread([r[arm].get("cpu_with_teacher", r[arm]["cpu"]) for r in results], 0)]
            * len(whole)
            + ([""] * len(others) if arm in others else leads)
        )
    minus = [f"pass@1 minus `{other}`, 95 %" for other in others]
    return table(["student by", *digits, "CPU seconds", *whole, *minus], rows)


def cluster_zero(result: Mapping[str, Any]) -> list[str]:
    """One row per run, in one process and on the cluster; then the difference over the seeds."""
    rows = [
        [
            f"{run['way']}, seed {run['seed']}",
            f"{run['rewards'][0]:.2f}",
            f"{run['last']:.3f} ± {run['noise']:.3f}",
            f"{run['before']:.3f} → {run['after']:.3f}",
            ", ".join(f"{share:.1%}" for share in run["shares"]),
            f"{run['sync_max']:.1e}",
            f"{run['seconds']:.0f}",
        ]
        for run in result["runs"]
    ]
    header = ["run", "first reward", "of the last steps, 95 %", "pass@1", "tokens by server",
              "largest gap of a sync", "s"]  # fmt: skip
    mean, noise = result["gap"]
    note = f"Cluster less one process, over the seeds: {mean:+.3f} ± {noise:.3f} (95 %)."
    return [*table(header, rows), "", note]


def proofs(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of docs/results.md: (what, measured, the script that printed it)."""
    rows = {"whole": _whole, "language_reward": _language, "distillation": _taught}
    rows |= {"secondary_rl": _secondary, "rlhf": _rlhf, "rlhf_rounds": _rounds}
    rows |= {"cluster_zero": _cluster, "epochs": _epochs}
    return [(*row(results[name]), name) for name, row in rows.items() if name in results]


def _epochs(runs: Sequence[Run]) -> tuple[str, str]:
    reached: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        own = reached.setdefault(run["preset"], {})
        own.setdefault(run["epochs"], []).append(run["after"]["pass@1"])
    means = {
        preset: ", ".join(f"{fmean(values):.3f}" for _, values in sorted(own.items()))
        for preset, own in reached.items()
    }
    counts = ", ".join(map(str, sorted({run["epochs"] for run in runs})))
    return (
        f"held-out pass@1 with {counts} epochs over each rollout, "
        f"{len({run['seed'] for run in runs})} seeds ([table](algorithms.md#several-epochs))",
        "; ".join(f"{preset}: {text}" for preset, text in means.items()),
    )


def _whole(runs: Sequence[Run]) -> tuple[str, str]:
    beside = [run["seconds"] for run in runs if run not in quiet(runs)]
    busy = f" ({max(beside):.0f} s beside a busy process)" if beside else ""
    runs = quiet(runs)
    last = [run["stages"][-3]["after"] for run in runs]
    taught = [run["stages"][-1] for run in runs]
    return (
        f"the whole recipe, {len(runs[0]['stages'])} stages, {len(runs)} seed"
        f"{'s' * (len(runs) > 1)}: seconds; peak memory; final pass@1 at T=0.7, general score and "
        "student's pass@1 ([table](r1.md#measured))",
        f"{max(r['seconds'] for r in runs):.0f} s{busy}; "
        f"{max(r['peak_gib'] for r in runs):.1f} GiB; "
        f"{min(r['pass@1'] for r in last):.2f}, {min(r['general'] for r in last):.2f}, "
        f"{min(r['after']['pass@1'] for r in taught):.2f}",
    )


def _language(runs: Sequence[Run]) -> tuple[str, str]:
    shown: list[str] = []
    for arm in ("reward", "control"):
        ends = [run["after"] for run in runs if run["arm"] == arm]
        shown.append(f"{_range(ends, 'language')}, {_range(ends, 'pass@1')}")
    return (
        "language consistency of the chains and pass@1, with the language reward; without it "
        "([table](rl.md#with-and-without-the-language-reward))",
        "; ".join(shown),
    )


def _taught(results: Sequence[Mapping[str, Run]]) -> tuple[str, str]:
    others = [name for name in ("rl", "rl_longer") if name in results[0]]
    leads = ["{:+.2f} ± {:.2f}".format(*lead(results, "distill", other)) for other in others]
    return (
        "pass@1 of a distilled student minus the same student trained by RL with twice its CPU "
        "time; with that of the teacher's training as well "
        "([table](distillation.md#against-reinforcement-learning))",
        "; ".join(leads),
    )


def _secondary(runs: Sequence[Run]) -> tuple[str, str]:
    rises = ["{:+.2f} ± {:.2f}".format(*gain(runs, arm, "general")) for arm in ARMS]
    return (
        f"general score of secondary RL, {len(runs)} seeds: gain with the reward model; without it "
        "([table](r1.md#secondary-rl-beside-a-control))",
        "; ".join(rises),
    )


def _rlhf(runs: Sequence[Run]) -> tuple[str, str]:
    return (
        f"classical RLHF, {len(runs)} seeds: win rate of PPO over its SFT model by the exact rule "
        "([table](rl.md#measured))",
        spread([run["wins"]["ppo"] for run in runs], 2),
    )


def _rounds(runs: Sequence[Run]) -> tuple[str, str]:
    ends = (fmean(run["right"][name] for run in runs) for name in ROUNDS)
    return (
        f"RLHF in two rounds, {len(runs)} seeds, right by the exact rule: SFT, first and second "
        "round; without a second reward model ([table](rl.md#reward-model-and-policy-in-turn))",
        "{:.2f}, {:.2f}, {:.2f}; {:.2f}".format(*ends),
    )


def _cluster(result: Mapping[str, Any]) -> tuple[str, str]:
    mean, noise = result["gap"]
    least = min(run["shares"][0] for run in result["runs"] if run["shares"])
    return (
        "R1-Zero on two Ray nodes, two ranks and two vLLM servers, less one process: reward of the "
        "last steps (maximum 2); least share of the tokens of a server "
        "([table](cluster.md#against-one-process))",
        f"{mean:+.3f} ± {noise:.3f}; {least:.0%}",
    )


def _range(ends: Sequence[Run], name: str) -> str:
    values = [end[name] for end in ends]
    return f"{min(values):.3f} to {max(values):.3f}"


def report(result: Mapping[str, Any]) -> list[str]:
    """One row per report, and the delay until a step was shown live."""
    header = ["of", "MB", "report made in", "memory", "page", "first paint", "console errors"]
    rows = [
        [
            {"run": "a whole run"}.get(name, "a made-up run"),
            f"{sizes['run_mb']:.0f}",
            f"{sizes['seconds']:.1f} s",
            f"{sizes['peak_mib']:.0f} MiB",
            f"{sizes['page_mb']:.1f} MB",
            f"{sizes['first_paint_ms']} ms",
            str(sizes["console_errors"]),
        ]
        for name, sizes in result.items()
        if name != "watch"
    ]
    live = result["watch"]
    return [
        *table(header, rows),
        "",
        f"`veriloop watch` showed {live['steps']} new steps, each within {live['seen_s']:.2f} s of "
        f"its line; {live['console_errors']} console errors.",
    ]


TABLES = {  # by result: the page, and what it says there
    "zero_kl": ("docs/r1_zero.md", zero_kl),
    "pretraining": ("docs/speed.md", pretraining),
    "whole": ("docs/r1.md", whole),
    "language_reward": ("docs/rl.md", language_reward),
    "distillation": ("docs/distillation.md", distillation),
    "secondary_rl": ("docs/r1.md", secondary_rl),
    "rlhf": ("docs/rl.md", rlhf),
    "rlhf_rounds": ("docs/rl.md", rlhf_rounds),
    "report": ("docs/report.md", report),
    "epochs": ("docs/algorithms.md", epochs),
    "cluster_zero": ("docs/cluster.md", cluster_zero),
}
