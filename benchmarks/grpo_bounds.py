"""The least time that a GRPO step of `against_trl.py` can take on its core: its matrix products.

The bound of an update is the forward and backward pass of all linear layers over the positions that
our run passes, each prompt once for its group; that of sampling is a forward pass for each token,
or reading the weights once for each token of the longest answer where that takes longer. Attention,
norms, the optimizer, the sync and verification are left out: no implementation with this
arithmetic can be faster, and none has to reach it. All times are CPU seconds of one thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from contenders import Contender, Process
from grpo_turns import GROUP, MAX_TOKENS, PROMPTS

from veriloop.data import arithmetic
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator

SCRIPT = "bound_turns.py"
ANSWERS = PROMPTS * GROUP
BYTES = {"float32": 4, "bfloat16": 2}
Products = Mapping[str, float]  # "update OUTPUTS INPUTS" -> seconds for a position


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Positions of a step: those of the prompts, each counted once, and tokens of the answers."""

    prompts: float
    tokens: float

    def update(self, *, head: bool) -> float:
        """Positions of an update. The last token of a prompt predicts the first one of each of its
        answers, whose last tokens predict nothing."""
        return self.tokens if head else self.prompts - PROMPTS + self.tokens

    def sampling(self, *, head: bool) -> float:
        """Positions of sampling. The first tokens of a group come from its prompt."""
        return self.tokens - ANSWERS + (PROMPTS if head else self.prompts)


def with_bounds(
    rows: Sequence[Mapping[str, Any]], bounds_of: Callable[[Mapping[str, Any]], Any]
) -> list[dict[str, Any]]:
    """The rows of contenders; the fastest of ours of each size and precision have their bounds,
    None where they are not wanted."""
    bounded: list[dict[str, Any]] = []
    for row in rows:
        own = dict(row)
        if row is fastest(rows, row["size"], row.get("precision")) and (least := bounds_of(row)):
            own["bound"] = least
        bounded.append(own)
    return bounded


def fastest(
    rows: Sequence[Mapping[str, Any]], size: str, precision: str | None
) -> Mapping[str, Any] | None:
    """The row of ours of this size and precision with the most tokens per second."""
    ours = [
        row
        for row in rows
        if (row["size"], row.get("precision", "")) == (size, precision)
        and row["name"].startswith("ours")
    ]
    return max(ours, key=lambda row: row["tokens_per_s"], default=None)


def prompt_tokens(model: Path) -> float:
    """Mean tokens of the prompts of a step."""
    from transformers import GenerationConfig

    scribe = RolloutGenerator(load_tokenizer(model), GenerationConfig.from_pretrained(model))
    problems = (arithmetic.problem("rl", 0, index) for index in range(64 * PROMPTS))
    return PROMPTS * fmean(len(scribe.prompt(problem)) for problem in problems)


def measured(model: Path, precision: str, rounds: int, folder: Path) -> tuple[Products, float]:
    """The least seconds of each product, and the most bytes read per second, over some rounds;
    with MKL as it is and in its mode for Intel processors, in turn."""
    settings = {"precision": precision, "batch": ANSWERS}
    running = [
        Process(
            Contender(name=f"products {intel}", side="products", settings=settings, as_intel=intel),
            SCRIPT,
            model,
            folder,
        )
        for intel in (False, True)
    ]
    try:
        turns = [process.step() for _ in range(rounds) for process in running]
    finally:
        for process in running:
            process.kill()
    names = turns[0]["products"]
    least = {name: min(turn["products"][name] for turn in turns) for name in names}
    return least, max(turn["read_bytes_s"] for turn in turns)


def bound(
    precision: str,
    steps: Sequence[Mapping[str, float]],
    shapes: Sequence[tuple[int, int]],
    products: Products,
    read_bytes_s: float,
    prompts: float,
) -> dict[str, float]:
    """The bounds of the fastest of our steps, its own CPU seconds, and what the bounds follow from.
    The last of `shapes` is the head."""
    step = min(steps, key=lambda step: step["cpu_s"] / step["tokens"])
    work = Work(prompts=prompts, tokens=step["tokens"])
    seconds: dict[str, float] = {"update": 0.0, "sample": 0.0}
    operations = dict(seconds)
    for index, (outputs, inputs) in enumerate(shapes):
        head = index == len(shapes) - 1
        positions = {"update": work.update(head=head), "sample": work.sampling(head=head)}
        for kind, passes in (("update", 3), ("sample", 1)):
            seconds[kind] += positions[kind] * products[f"{kind} {outputs} {inputs}"]
            operations[kind] += positions[kind] * passes * 2.0 * outputs * inputs
    weights = sum(outputs * inputs for outputs, inputs in shapes)
    reading = MAX_TOKENS * weights * BYTES[precision] / read_bytes_s
    busy = step["cpu_s"] / step["s"]  # other processes may have had the core meanwhile
    return {
        "weights": weights,
        "prompt_tokens": prompts,
        "tokens": step["tokens"],
        "update_gflops": operations["update"] / seconds["update"] / 1e9,
        "sample_gflops": operations["sample"] / seconds["sample"] / 1e9,
        "read_gb_s": read_bytes_s / 1e9,
        "reading_s": reading,
        "update_s": seconds["update"],
        "sample_s": max(seconds["sample"], reading),
        "our_update_s": busy * step["update"],
        "our_sample_s": busy * step["sample"],
        "our_step_s": step["cpu_s"],
    }
