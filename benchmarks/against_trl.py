"""A GRPO step of ours against TRL's, one core each in turn: equal questions, lengths and reward.

    python benchmarks/against_trl.py [--quick] [--json FILE] [--sizes 1M 10M 60M] [--rounds N]
                                      [--precisions float32 bfloat16] [--folder DIR]
    python benchmarks/against_trl.py --bounds RESULT.json [--json FILE] [--sizes ...] [--rounds N]

16 prompts x 8 answers of at most 80 tokens, from random models that rarely end early. TRL has a
separate environment (created once under outputs/cache) and is measured as it installs, which is in
bfloat16, and in each precision with the best settings found: a search takes gradient checkpointing
off, tells MKL that the processor is Intel's, and tries micro-batches, a static cache and
torch.compile one after the other, keeping what is faster. The trials are part of the result. Then
the contenders of each precision, each a separate process on one core, take turns: A B C A B C. TRL
as it installs takes turns with those in bfloat16. The metric is answer tokens per second; the bars
are at equal precision. With `--precisions float32` only TRL as it installs computes in bfloat16,
which is slower on a CPU without instructions for it. Trials, and contenders that are done, are kept
in DIR; the same command at the same clean commit goes on with them. Those of 60M that take turns
hold up to 13 GiB. Then the least time that an update and sampling can take is measured for each
size and precision (`grpo_bounds.py`). `--bounds` measures that alone, without TRL, with a few steps
of ours beside it, and writes the earlier result with it.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bound_turns import linear_shapes
from contenders import BFLOAT16, SIZES, Contender, Process, in_turn, model_of
from grpo_bounds import bound, prompt_tokens, with_bounds
from grpo_bounds import measured as products_of
from grpo_turns import QUESTIONS
from paired import at_equal_precision, over_bounds
from publish import ROOT, arguments, publish, table
from tiny_runs import work_folder

from veriloop.data import arithmetic
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.provenance import git

SCRIPT = "grpo_turns.py"
WARM_UP = {"1M": 2, "10M": 2, "60M": 1}  # steps of each that are not counted
# Of a setting in the search: steps that are not counted, and that are. One of 60M takes minutes.
TRIAL = {"1M": (1, 2), "10M": (1, 2), "60M": (1, 1)}
# Of ours beside the products of an earlier result: the same. Machines of one name differ in speed.
BESIDE = {"1M": (1, 2), "10M": (1, 2), "60M": (0, 1)}
BARS = {"1M": 2.0, "10M": 3.5, "60M": 3.5}  # times TRL's best at equal precision
MICRO_BATCHES = {"1M": (128, 32, 16), "10M": (128, 32, 16), "60M": (16, 8)}  # 128 exceed memory
PRECISIONS = ("float32", "bfloat16")

Settings = dict[str, Any]
Measure = Callable[[Contender], float]  # tokens per second; raises SystemExit if it does not run

TRIALS, DONE, BOUNDS = "trials.json", "rows.json", "bounds.json"  # what is kept in a folder

OURS = (
    Contender(name="ours, vLLM", side="ours", settings={"sampler.engine": "vllm"}),
    Contender(
        name="ours, vLLM, bf16 trainer",
        side="ours",
        settings={"sampler.engine": "vllm", "trainer.compute": "bfloat16"},
    ),
    Contender(name="ours, vLLM, bf16", side="ours", settings=BFLOAT16),
    Contender(name="ours, torch", side="ours", settings={"sampler.engine": "torch"}),
)
INSTALLED = "TRL"
PRECISION = {  # of the contenders that are compared at equal precision
    "ours, vLLM": "float32",
    "ours, torch": "float32",
    "ours, vLLM, bf16": "bfloat16",
    "TRL, searched, float32": "float32",
    "TRL, searched, bfloat16": "bfloat16",
}
IN_BFLOAT16 = ("ours, vLLM, bf16 trainer", "ours, vLLM, bf16")
ABSENT = {"10M": ("ours, torch",), "60M": ("ours, torch", "ours, vLLM, bf16 trainer")}


def choices(size: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The settings of TRL that the search tries, and their values, in order."""
    return [
        ("micro_batch", MICRO_BATCHES[size]),
        ("as_intel", (True,)),
        ("cache_implementation", ("static",)),
        ("torch_compile", (True,)),
    ]


def searched(size: str, precision: str, measure: Measure) -> tuple[Contender, list[Settings]]:
    """TRL with the best settings, one changed after the other, and all trials with their rates.

    A trial that does not run has the rate 0.
    """
    name, trials = f"TRL, searched, {precision}", list[Settings]()

    def contender(settings: Settings) -> Contender:
        own = {key: value for key, value in settings.items() if key != "as_intel"}
        return Contender(
            name=name, side="trl", settings=own, as_intel=settings.get("as_intel", False)
        )

    def tried(settings: Settings) -> float:
        try:
            rate = measure(contender(settings))
        except SystemExit as failure:
            rate = 0.0
            print(f"{size}: {settings} does not run: {str(failure)[-300:]}", flush=True)
        trials.append({**settings, "tokens_per_s": rate})
        print(f"{size}: {settings}: {rate:.0f} tokens a second", flush=True)
        return rate

    # Micro-batches come first, since some sizes run with them only.
    first, *others = choices(size)
    best: Settings = {"bf16": precision == "bfloat16", "gradient_checkpointing": False}
    rate = 0.0
    for key, values in (first, *others):
        for trial in [{**best, key: value} for value in values]:
            if (new := tried(trial)) > rate:
                best, rate = trial, new
    if not rate:
        raise SystemExit(f"{size}: TRL runs with none of the settings tried in {precision}")
    return contender(best), trials


def with_trl_template(path: Path) -> Path:
    """The same model, with the questions in TRL's format."""
    from transformers import GenerationConfig

    tokenizer = load_tokenizer(path)
    scribe = RolloutGenerator(tokenizer, GenerationConfig.from_pretrained(path))
    problems = (arithmetic.problem("rl", 0, index) for index in range(QUESTIONS))
    prompts = [tokenizer.decode(scribe.prompt(problem)[1:]) for problem in problems]
    (path / "prompts.json").write_text(json.dumps(prompts))
    return path


class Kept:
    """Values by key in a file, for a clean commit; of another one nothing is known."""

    def __init__(self, path: Path) -> None:
        self._path, self._git = path, git(ROOT)
        content = json.loads(path.read_text()) if path.is_file() else {}
        same = content.get("git") == self._git and self._git["dirty"] is False
        self._values: dict[str, Any] = content["values"] if same else {}

    def __call__(self, key: Sequence[Any], make: Callable[[], Any]) -> Any:
        """The value with this key, made if it is not known."""
        name = json.dumps(key)
        if name not in self._values:
            self._values[name] = make()
            text = json.dumps({"git": self._git, "values": self._values})
            write_atomically(self._path, lambda draft: draft.write_text(text))
        return self._values[name]


def measured(
    size: str, precisions: Sequence[str], rounds: int, folder: Path
) -> list[dict[str, Any]]:
    """The steps of all contenders in turn, without the first ones of each; rows of TRL have its
    settings and the trials of the search."""
    model = with_trl_template(model_of(folder / size, SIZES[size]))
    trials, done = Kept(folder / TRIALS), Kept(folder / DONE)

    def trial(contender: Contender) -> float:
        def rate() -> float:
            (row,) = in_turn([Process(contender, SCRIPT, model, folder)], *TRIAL[size])
            return row["tokens_per_s"]

        return trials([size, contender.settings, contender.as_intel], rate)

    installed = {} if size != "60M" else {"micro_batch": MICRO_BATCHES[size][0]}
    rows: list[dict[str, Any]] = []
    for precision in PRECISIONS:
        single = precision == "float32"
        theirs = [] if single else [Contender(name=INSTALLED, side="trl", settings=installed)]
        found: dict[str, list[Settings]] = {}
        if precision in precisions:
            best, found[best.name] = searched(size, precision, trial)
            theirs.append(best)
        ours = [
            one
            for one in OURS
            if precision in precisions
            and one.name not in ABSENT.get(size, ())
            and (one.name in IN_BFLOAT16) is not single
        ]
        contenders = (*theirs, *ours)
        if contenders:
            rows += done(
                [size, precision, rounds], partial(_rows, size, contenders, rounds, model, folder)
            )
        for row in rows:
            row |= {"trials": found[row["name"]]} if row["name"] in found else {}
    return rows


def _rows(
    size: str, contenders: Sequence[Contender], rounds: int, model: Path, folder: Path
) -> list[dict[str, Any]]:
    """The steps of contenders that take turns, with the settings of TRL."""
    running = [Process(one, SCRIPT, model, folder) for one in contenders]
    settings = {
        one.name: {**one.settings, "as_intel": one.as_intel}
        for one in contenders
        if one.side == "trl"
    }
    return [
        {
            "size": size,
            **row,
            **({"settings": settings[row["name"]]} if row["name"] in settings else {}),
            **({"precision": PRECISION[row["name"]]} if row["name"] in PRECISION else {}),
        }
        for row in in_turn(running, WARM_UP[size], rounds)
    ]


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that are missed."""
    return [
        f"{size}: {times:.2f} x TRL at its best in {precision}, wanted {BARS[size]}"
        for size in dict.fromkeys(row["size"] for row in rows)
        for precision, times in at_equal_precision([r for r in rows if r["size"] == size]).items()
        if times < BARS[size]
    ]


def main() -> int:
    options = arguments(
        __doc__ or "",
        sizes={"nargs": "+", "choices": list(BARS), "default": list(BARS)},
        precisions={"nargs": "+", "choices": PRECISIONS, "default": PRECISIONS},
        rounds={"type": int, "default": 7, "help": "steps of each contender that are counted"},
        folder={"type": Path, "help": "where trials are kept; default: a new folder"},
        bounds={"type": Path, "help": "add the least times to this result and measure no step"},
    )
    sizes, rounds = (["1M"], 1) if options.quick else (options.sizes, options.rounds)
    folder = work_folder(options.folder, "against-trl")
    older = json.loads(options.bounds.read_text()) if options.bounds else None
    rows = older["results"] if older else []
    if older is None:
        for size in sizes:
            rows += measured(size, options.precisions, rounds, folder)
    models = {size: with_trl_template(model_of(folder / size, SIZES[size])) for size in sizes}
    done = Kept(folder / BOUNDS)

    def bounds_of(row: Mapping[str, Any]) -> dict[str, float] | None:
        if row["size"] not in models or row["precision"] not in options.precisions:
            return row.get("bound")
        least = partial(bounds, row, models[row["size"]], rounds, folder, anew=older is not None)
        return done([row["size"], row["precision"], rounds], least)

    rows = with_bounds(rows, bounds_of)
    failed = [] if options.quick else shortfalls(rows)
    added = ("bounds", older) if older else None
    return publish(options, shown(rows), rows, failed=failed, added=added)


def bounds(
    row: Mapping[str, Any], model: Path, rounds: int, folder: Path, *, anew: bool
) -> dict[str, float]:
    """The bounds of a row of ours; with `anew` of steps that it takes now, else of its own."""
    steps = row["steps"]
    if anew:
        (contender,) = (ours for ours in OURS if ours.name == row["name"])
        (measured_now,) = in_turn([Process(contender, SCRIPT, model, folder)], *BESIDE[row["size"]])
        steps = measured_now["steps"]
    products, read = products_of(model, row["precision"], rounds, folder)
    least = bound(
        row["precision"], steps, linear_shapes(model), products, read, prompt_tokens(model)
    )
    print(f"{row['size']}, {row['precision']}: {least}", flush=True)
    return least


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The steps, the settings of TRL that were found, and how far the steps are from the bounds."""
    columns = ("s", "cpu_s", "tokens", "tokens_per_s", "peak_gib")
    text = table(
        ["size", "contender", "s", "CPU s", "tokens", "per s", "GiB"],
        [[row["size"], row["name"], *(row[column] for column in columns)] for row in rows],
    )
    for row in rows:
        if "trials" in row:
            text += f"\n{row['size']}, {row['name']}: {row['settings']}"
    if least := over_bounds(rows):
        text += "\n" + table(list(least[0]), [list(row.values()) for row in least])
    return text


if __name__ == "__main__":
    sys.exit(main())
