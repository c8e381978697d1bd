"""Results of speed and memory, compared with TRL and by size, as Markdown."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from learning_tables import table
from paired import at_equal_precision, over_bounds, sides

Rows = Sequence[Mapping[str, Any]]
PARTS = ("sync_s", "groups_s", "sampling_s", "driver_s")  # of a turn of the simulated fleet


def update_speed(rows: Rows) -> list[str]:
    """CPU seconds of an update, one row per size, and the lower bound by its matrix products."""
    cells: list[list[str]] = []
    for size in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == size]
        cells.append(
            [f"{size} parameters"]
            + [f"{row['cpu_s']:.2f} s, {row['times_floor']:.1f} × its floor" for row in own]
        )
    return table(["", *dict.fromkeys(row["setting"] for row in rows)], cells)


def against(rows: Rows, by: str) -> list[str]:
    """One row per contender, with the ratio to the best of TRL at the same `by`, a size or a
    task."""
    cells: list[list[str]] = []
    for row in rows:
        theirs = [r for r in rows if r[by] == row[by] and r["name"].startswith("TRL")]
        best = max(r["tokens_per_s"] for r in theirs)
        cells.append(
            [
                str(row[by]),
                row["name"],
                f"{row['s']:.2f}",
                f"{row['tokens_per_s']:,.0f}",
                f"{row['tokens_per_s'] / best:.2f}",
                f"{row['peak_gib']:.2f}",
            ]
            + [f"{row[key]:.2f}" for key in ("products_s",) if key in row]
        )
    header = [by, "contender", "s a step", "tokens a second", "× TRL at its best", "GiB"]
    header += ["its products alone, s"] * ("products_s" in rows[0])
    return table(header, cells)


def against_trl(rows: Rows) -> list[str]:
    """The steps of all contenders, the update's part of ours, the bounds of our steps, then all
    settings of TRL that were tried and their rates."""
    trials = [
        [
            f"{row['size']}, {row['precision']}",
            ", ".join(_setting(key, value) for key, value in trial.items() if key not in SAME),
            f"{trial['tokens_per_s']:,.0f}" if trial["tokens_per_s"] else "does not run",
        ]
        for row in rows
        for trial in row.get("trials", ())
    ]
    tried = ["", *table(["TRL's settings tried", "", "tokens a second"], trials)] if trials else []
    parts = [
        f"{row['size']}, {row['name']}: the update takes "
        f"{median(step['update'] for step in row['steps']):.1f} of {row['s']:.1f} s."
        for row in rows
        if "update" in next(iter(row.get("steps", ())), {})
    ]
    return against(rows, "size") + (["", *parts] if parts else []) + _bounds(rows) + tried


def _bounds(rows: Rows) -> list[str]:
    """One row per size and precision: the matrix products alone, ours over them, and how many times
    faster than TRL at its best in that precision ours is, and they would be."""
    cells = [
        [f"{row['size']}, {row['precision']}"]
        + [
            f"{row[f'{part}_{what}']:.2f}"
            for part in ("update", "sample")
            for what in ("least", "times")
        ]
        + [f"{row[key]:.2f}" for key in ("step_times", "ours", "at_most")]
        for row in over_bounds(rows)
    ]
    header = ["products alone", "update, s", "ours", "sampling, s", "ours", "our step"]
    return ["", *table([*header, "× TRL: ours", "× TRL: at most"], cells)] if cells else []


SAME = ("bf16", "gradient_checkpointing", "tokens_per_s")  # of all trials of a precision


def _setting(key: str, value: Any) -> str:
    return f"`{key}`" if value is True else f"`{key}: {value}`"


def grpo_memory(rows: Rows) -> list[str]:
    """One row per contender: memory after loading, peak, and the ratio to TRL's lowest peak."""
    cells: list[list[str]] = []
    for row in rows:
        theirs = [
            r["peak_gib"]
            for r in rows
            if r["at_once"] == row["at_once"] and r["name"].startswith("TRL")
        ]
        sizes = (row["loaded_gib"], row["peak_gib"], row["peak_gib"] / min(theirs), row["s"])
        cells.append([row["name"], *(f"{size:.2f}" for size in sizes)])
    return table(["contender", "loaded, GiB", "peak, GiB", "× TRL's least", "s an update"], cells)


def scaling(result: Mapping[str, Any]) -> list[str]:
    """One row per point, seconds by part; then the exponent by which each part grows."""
    parts = ("s", "sample", "verify", "update", "sync")
    points = [
        [row["axis"], str(row["value"]), f"{row['tokens']:,.0f}"]
        + [f"{row[part]:.3g}" for part in parts]
        for row in result["rows"]
    ]
    powers = [
        [axis, *(f"{by_part[part]:.2f}" for part in parts)]
        for axis, by_part in result["powers"].items()
    ]
    named = ("step", *parts[1:])
    return [
        "![seconds of the parts of a step](images/scaling.png)",
        "",
        *table(["varied", "value", "tokens", *named], points),
        "",
        *table(["seconds grow with", *(f"{name}, power" for name in named)], powers),
    ]


def overlap(result: Mapping[str, Any]) -> list[str]:
    """One row per setting; then accuracy with and without sampling ahead."""
    in_turn = _in_turn(result["speed"])
    steps = [
        [
            row["size"],
            row["name"],
            f"{row['s']:.2f}",
            f"{row['tokens_per_s']:,.0f}",
            f"{row['times']:.2f}",
            f"{row['tokens_per_s'] / in_turn[row['size']]:.2f}",
        ]
        for row in result["speed"]
    ]
    runs = [[str(row["seed"]), str(row["ahead"]), f"{row['pass@1']:.3f}"] for row in result["runs"]]
    gap, noise = result["difference"], result["noise"]
    return [
        *table(
            ["size", "way", "s a step", "tokens a second", "× one core", "× two cores in turn"],
            steps,
        ),
        "",
        *table(["seed", "steps ahead", "pass@1"], runs),
        "",
        f"Ahead minus in turn: {gap:+.3f} ± {noise:.3f} (95 %).",
    ]


def _in_turn(rows: Rows) -> dict[str, float]:
    """Tokens per second of two cores that sample and update in turn, by size."""
    return {r["size"]: r["tokens_per_s"] for r in rows if r["name"] == "two cores, in turn"}


def trl_curves(result: Mapping[str, Any]) -> list[str]:
    """One row per run, its reward at some steps; then the differences from TRL."""
    steps = len(result["runs"][0]["rewards"])
    shown = range(max(1, steps // 8), steps + 1, max(1, steps // 8))
    rows = [
        [row["side"], str(row["seed"]), *(f"{row['rewards'][step - 1]:.2f}" for step in shown)]
        for row in result["runs"]
    ]
    notes = [
        f"{name}: less TRL's {mean:+.3f} ± {noise:.3f} (95 %)."
        for name, (mean, noise) in result["gaps"].items()
    ]
    return [*table(["", "seed", *(f"step {n}" for n in shown)], rows), "", *notes]


def memory(result: Mapping[str, Any]) -> list[str]:
    """One row per size: the memory that an update adds to the model, with the head's weights
    separate."""
    rows = [
        [f"{row[name]:,}" for name in ("vocabulary", "tokens", "answers")]
        + [f"{row[name]:,.0f}" for name in ("update_mib", "head_mib", "rest_mib")]
        for row in (*result["vocabulary"], *result["length"])
    ]
    header = ["vocabulary", "tokens", "answers", "MiB of an update", "of the head", "of the rest"]
    return table(header, rows)


def verify_share(rows: Rows) -> list[str]:
    """One row per size and kind of answer."""
    cells = [
        [row["size"], row["name"], f"{row['s']:.2f}", f"{row['verify']:.3f}", f"{row['share']:.2%}"]
        for row in rows
    ]
    return table(["size", "answers", "s a step", "left to wait for, s", "of a step"], cells)


def prefix(rows: Rows) -> list[str]:
    """One row per sampler, seconds of each kind of call."""
    cells = [
        [row["sampler"], *(f"{figure:.2f}" for figure in (*row["seconds"].values(), row["share"]))]
        for row in rows
    ]
    ways = (f"{way}, s" for way in rows[0]["seconds"])
    return table(["sampler", *ways, "the group over 16 prompts"], cells)


def startup(result: Mapping[str, Any]) -> list[str]:
    """One row per command, in seconds."""
    cells = [
        [name, *(f"{row[key]:.2f}" for key in ("median_s", "min_s", "max_s")), str(row["runs"])]
        for name, row in result.items()
    ]
    return table(["", "median, s", "fastest", "slowest", "runs"], cells)


def staleness(result: Mapping[str, Any]) -> list[str]:
    """One row per way, means over the seeds; then its accuracy against sampling in turn."""
    runs, ways = result["runs"], dict.fromkeys(row["way"] for row in result["runs"])
    in_turn = {row["seed"]: row["wall"] for row in runs if not row["ahead"]}
    cells: list[list[str]] = []
    for way in ways:
        own = [row for row in runs if row["way"] == way]
        cells.append([way, f"{fmean(row['wall'] / in_turn[row['seed']] for row in own):.2f}"])
        for measure in ("pass@1", "late"):
            mean, noise = result["gaps"].get(way, {}).get(measure, (0.0, 0.0))
            against = f"{mean:+.3f} ± {noise:.3f}" if way in result["gaps"] else ""
            cells[-1] += [f"{fmean(row[measure] for row in own):.3f}", against]
        cells[-1] += [
            str(max(row["oldest"] for row in own)),
            f"{fmean(row['staleness'] for row in own):.2f}",
        ]
    against = "minus in turn (95 %)"
    return table(
        ["S", "time, × in turn", "pass@1", against, "second half of the turns", against,
         "oldest token", "mean age"], cells,
    )  # fmt: skip


def with_sync(turns: Sequence[Mapping[str, float]]) -> list[list[float]]:
    """Tokens per second and server relative to the smallest fleet's, with the time in which weights
    are sent: by files, and by process groups."""
    shares = []
    for sent in ("sync_s", "groups_s"):
        rates = [t["tokens"] / (t["sampling_s"] + t[sent]) / t["servers"] for t in turns]
        shares.append([rate / rates[0] for rate in rates])
    return shares


def cluster_sim(result: Mapping[str, Any]) -> list[str]:
    """The measured run and its simulation; then one row per size of the simulated fleet."""
    two = result["two_servers"]
    cells = [
        [f"{turn['servers']:,}", *(f"{turn[part]:,.1f}" for part in PARTS), f"{turn['share']:.2f}",
         *(f"{share:.2f}" for share in whole)]
        for turn, *whole in zip(result["turns"], *with_sync(result["turns"]), strict=True)
    ]  # fmt: skip
    return [
        f"Two servers, {two['asks']} asks, {two['tokens']:,} tokens: {two['measured_s']:.1f} s "
        f"measured, {two['simulated_s']:.1f} s simulated.",
        "",
        *table(
            [
                "servers",
                "weights by files, s",
                "by groups, s",
                "sampling, s",
                "the driver's share, s",
                "sampling, of linear",
                "with weights by files",
                "with weights by groups",
            ],
            cells,
        ),
        "",
        "These take a tenth of a step first, in this order: "
        f"{'; '.join(result['breaks']) or 'nothing'}.",
    ]


def published_speed(result: Mapping[str, Any]) -> list[str]:
    """Tokens per second of each sampler; then when a run shows its first answers."""
    rates = result["tokens_per_second"]
    ours = next(iter(rates.values()))
    return [
        *table(
            ["sampler", "tokens a second", "ours over it"],
            [[way, f"{rate:,.0f}", f"{ours / rate:.2f}"] for way, rate in rates.items()],
        ),
        "",
        *table(
            ["", "seconds after the command"],
            [[moment, f"{at:.1f}"] for moment, at in result["seconds"].items()],
        ),
    ]


def proofs(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of docs/results.md: (what, measured, the script that printed it)."""
    rows = {
        "against_trl": _against_trl,
        "trl_curves": _trl_curves,
        "overlap": _overlap,
        "grpo_memory": _grpo_memory,
        "verify_share": _verify_share,
        "prefix": _prefix,
        "startup": _first_step,
        "published_speed": _published_speed,
        "staleness": _staleness,
        "cluster_sim": _cluster_sim,
        "gpu": _gpu,
    }
    return [(*row(results[name]), name) for name, row in rows.items() if name in results]


def _against_trl(rows: Rows) -> tuple[str, str]:
    ratios: list[str] = []
    for size in dict.fromkeys(row["size"] for row in rows):
        own = [row for row in rows if row["size"] == size]
        ours, theirs = sides(own, "tokens_per_s", max)
        (installed,) = (row["tokens_per_s"] for row in own if row["name"] == "TRL")
        equal = [f", {times:.1f} × in {p}" for p, times in at_equal_precision(own).items()]
        ratios.append(f"{size}: {ours / installed:.1f} ×, {ours / theirs:.1f} ×{''.join(equal)}")
    # Results that record no settings are of a TRL whose default of bfloat16 was off.
    recorded = all("settings" in row for row in rows if row["name"] == "TRL")
    installs = "as it installs" if recorded else "as it installs but for `bf16: False`"
    at_best = "at the best settings found" + ("; at equal precision" if recorded else "")
    return (
        f"tokens per second of a GRPO step relative to TRL on one core: TRL {installs}; {at_best} "
        "([table](speed.md#a-grpo-step-against-trl))",
        "; ".join(ratios),
    )


def _trl_curves(result: Mapping[str, Any]) -> tuple[str, str]:
    return (
        "reward minus TRL's reward at the same settings (maximum 1) "
        "([table](speed.md#what-is-learned-here-and-in-trl))",
        "; ".join(
            f"{name}: {mean:+.3f} ± {noise:.3f}" for name, (mean, noise) in result["gaps"].items()
        ),
    )


def _overlap(result: Mapping[str, Any]) -> tuple[str, str]:
    ways = [row for row in result["speed"] if row["name"].endswith("ahead")]
    in_turn = _in_turn(result["speed"])
    return (
        "speed-up of two cores with sampling one step ahead over one core; over two cores in turn "
        "([table](speed.md#sampling-a-step-ahead))",
        "; ".join(
            f"{row['size']}: {row['times']:.2f} ×, "
            f"{row['tokens_per_s'] / in_turn[row['size']]:.2f} ×"
            for row in ways
        ),
    )


def _grpo_memory(rows: Rows) -> tuple[str, str]:
    shares: list[str] = []
    for count in dict.fromkeys(row["at_once"] for row in rows):
        ours, theirs = sides([r for r in rows if r["at_once"] == count], "peak_gib", min)
        shares.append(f"{ours / theirs:.2f}")
    return (
        "peak memory of an update relative to TRL's lowest; vocabulary 150,000, 16 answers of 512 "
        "tokens, in one batch; one by one "
        "([table](speed.md#memory-of-a-grpo-update-against-trl))",
        ", ".join(shares),
    )


def _verify_share(rows: Rows) -> tuple[str, str]:
    own = [row for row in rows if row["name"] == "mathematics"]
    return (
        "share of a step spent waiting for verdicts, mathematics, one worker "
        "([table](speed.md#waiting-for-verdicts))",
        "; ".join(f"{row['size']}: {row['share']:.2%}" for row in own),
    )


def _prefix(rows: Rows) -> tuple[str, str]:
    return (
        "time of 16 answers of 16 tokens to one prompt of 1,000 tokens relative to 16 prompts with "
        "one each "
        "([table](speed.md#a-prompt-is-read-once))",
        "; ".join(f"{row['sampler']}: {row['share']:.2f}" for row in rows),
    )


def gpu(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was measured on a GPU; sections that were left out have no row."""
    cells: list[list[str]] = []
    for name, row in results.items():
        model = row.get("model", "")
        if name.startswith("update:") and "mfu" in row:
            times = f"{row['seconds']:.2f} s, {row['tokens_s']:,.0f} tokens a second"
            cells += [
                [f"update of {model}, 8 sequences of {row['length']:,} tokens", times],
                ["share of the dense bfloat16 peak", f"{row['mfu']:.0%}"],
                *([f"of its time: {kind}", f"{seconds / row['seconds']:.0%}"]
                  for kind, seconds in row["kinds"].items()),
                ["peak memory; as predicted", f"{row['peak_gib']:.1f} GiB; "
                                              f"{row['predicted_gib']:.1f} GiB"],
            ]  # fmt: skip
        if name.startswith("torch:") and "tokens_s" in row:
            graphs = "with" if row["graphs"] else "without"
            cells += [
                [f"torch sampler {graphs} CUDA graphs, {model}, {row['sequences']} sequences",
                 f"{row['tokens_s']:,.0f} tokens a second"],
                ["mean difference of its log-probs to the trainer's", f"{row['mean_nats']:.3f}"],
            ]  # fmt: skip
        if name == "ipc" and "send_s" in row:
            cells.append([f"weights of {model} ({row['gib']:.1f} GiB) to another process",
                          f"{row['send_s']:.2f} s"])  # fmt: skip
    return table(["", "measured"], cells)


def _gpu(results: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    update, sampler = results["update:1.5B"], results["torch:graphs"]
    return (
        "one GPU: share of its peak in an update of 1.5B, its memory relative to the plan; tokens "
        "per second of the torch sampler at 0.5B ([table](gpu.md#measured))",
        f"{update['mfu']:.2f}, {update['peak_gib'] / update['predicted_gib']:.2f}; "
        f"{sampler['tokens_s']:,.0f}",
    )


def _first_step(result: Mapping[str, Any]) -> tuple[str, str]:
    seconds = result["to the first step, engine in this process"]["median_s"]
    return (
        "time from the command to the first optimizer step, vLLM "
        "([table](speed.md#from-the-command-to-the-first-step))",
        f"{seconds:.1f} s",
    )


def _published_speed(result: Mapping[str, Any]) -> tuple[str, str]:
    ours, *others = result["tokens_per_second"].values()
    graded, step, _, silent = result["seconds"].values()
    return (
        "SmolLM2-135M, 64 answers: tokens per second relative to the faster `generate`; from the "
        "command until the first answers are graded, and those of the first step; longest silence "
        "([table](speed.md#a-published-model))",
        f"{ours / max(others):.1f} ×; {graded:.0f} s, {step:.0f} s; {silent:.0f} s",
    )


def _staleness(result: Mapping[str, Any]) -> tuple[str, str]:
    (row,) = (line for line in staleness(result) if line.startswith("| 4, corrected |"))
    _, times, _, gap, _, _, oldest, _ = row.strip("| ").split(" | ")
    return (
        "four steps ahead, a few answers ten times as slow: time relative to sampling in turn; "
        "pass@1 less that in turn; oldest token ([table](speed.md#several-steps-ahead))",
        f"{times} ×; {gap}; {oldest}",
    )


def _cluster_sim(result: Mapping[str, Any]) -> tuple[str, str]:
    kept = [f"{turn['servers']:,}: {turn['share']:.2f}" for turn in result["turns"][1:]]
    return (
        "tokens per second of simulated servers under one driver while they sample, share of "
        "linear "
        "([table](speed.md#many-servers-simulated))",
        "; ".join(kept),
    )


TABLES = {
    "published_speed": published_speed,
    "staleness": staleness,
    "cluster_sim": cluster_sim,
    "verify_share": verify_share,
    "prefix": prefix,
    "update_speed": update_speed,
    "against_trl": against_trl,
    "tuning_speed": lambda rows: against(rows, "task"),
    "grpo_memory": grpo_memory,
    "memory": memory,
    "scaling": scaling,
    "overlap": overlap,
    "startup": startup,
    "trl_curves": trl_curves,
}
