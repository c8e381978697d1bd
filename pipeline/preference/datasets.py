"""Preference data of a run: rows loaded, encoded, length-filtered and divided into rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from veriloop.data import arithmetic_preferences, general_preferences, preferences
from veriloop.data.preferences import Row
from veriloop.pipeline.config.preference import (
    PreferenceDataConfig,
    PreferenceLossConfig,
    ScheduleConfig,
)
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.preference.examples import (
    Example,
    encode_labelled,
    encode_pairs,
    split_by_gap,
    to_labelled,
    to_pairs,
    unpair,
    within_limits,
)

DRAWS = 100  # for each generated row, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceDataset:
    """The encoded examples of a run."""

    rounds: tuple[tuple[Example, ...], ...]  # empty if rounds are sampled
    held_out: tuple[Example, ...]
    facts: dict[str, int] = field(default_factory=dict)  # counts, for run.json


Splits = tuple[list[Row], list[Row]]  # training and held-out rows


def load_rows(
    config: PreferenceDataConfig, kind: str = "pairs", say: Callable[[str], None] = lambda _: None
) -> Splits:
    """Training and held-out rows, whose prompts differ. Raises RecipeError with line and column of
    a malformed one."""
    try:
        if config.source == "arithmetic":
            rows = preferences.parse_rows(_arithmetic(config, kind), "generated data, row")
        elif config.source == "general":  # held-out rows use held-out entities
            rows = [
                row
                for split, count in (("train", config.rows), ("test", config.held_out))
                for row in preferences.parse_rows(
                    general_preferences.rows(
                        split, config.seed, count, adversarial=config.adversarial, kind=kind
                    ),
                    "generated data, row",
                )
            ]
        else:
            rows = preferences.read(Path(config.source))
    except ValueError as mistake:
        raise RecipeError(f"data.source: {mistake}") from mistake
    train = config.rows or len(rows) - config.held_out
    if train < 1 or train + config.held_out > len(rows):
        raise RecipeError(
            f"data.source: {config.source} has {len(rows)} rows; data.rows={config.rows} and "
            f"data.held_out={config.held_out} need more"
        )
    held_out = rows[train : train + config.held_out]
    held_out_prompts = {repr(row.prompt) for row in held_out}
    apart = [row for row in rows[:train] if repr(row.prompt) not in held_out_prompts]
    if len(apart) < train:
        say(f"data: {train - len(apart)} training rows with a held-out prompt are left out")
    if not apart:
        raise RecipeError(f"data.source: {config.source} has no prompt that is not held out")
    return apart, held_out


def _arithmetic(config: PreferenceDataConfig, kind: str) -> list[dict[str, Any]]:
    """Generated rows; one with the prompt of a held-out row is drawn anew."""
    most = DRAWS * config.rows + config.held_out
    drawn = arithmetic_preferences.rows(kind, config.seed, most)  # type: ignore[arg-type]
    first = list(islice(drawn, config.rows + config.held_out))
    held_out = first[config.rows :]
    held_out_prompts = {repr(row["prompt"]) for row in held_out}
    others = (
        row
        for row in chain(first[: config.rows], drawn)
        if repr(row["prompt"]) not in held_out_prompts
    )
    return [*islice(others, config.rows), *held_out]


def kind_of(schedule: ScheduleConfig) -> str:
    """The kind of rows that a schedule needs."""
    return "ranked" if schedule.name == "curriculum" else "pairs"


def build_dataset(
    config: PreferenceDataConfig,
    loss: PreferenceLossConfig,
    schedule: ScheduleConfig,
    tokenizer: Any,
    ends: Sequence[int],
    say: Callable[[str], None] = lambda _: None,
    rows: Splits | None = None,
) -> PreferenceDataset:
    """Encode the data, loaded here if `rows` is None; examples over the length limits are left out,
    with a message."""
    train, held_out = rows or load_rows(config, kind_of(schedule), say)
    if schedule.name == "curriculum":
        rounds, dropped = _curriculum(train, config, loss, schedule, tokenizer, ends)
    elif schedule.samples:
        rounds, dropped = [], 0
    else:
        examples, dropped = _encoded(train, config, loss, tokenizer, ends)
        rounds = [examples]
    measured, held_out_dropped = _encoded(held_out, config, loss, tokenizer, ends)
    if dropped or held_out_dropped:
        say(
            f"data: {dropped} training and {held_out_dropped} held-out examples exceed max_prompt="
            f"{config.max_prompt} or max_completion={config.max_completion} tokens; left out"
        )
    if not measured or not all(rounds):
        raise RecipeError(
            f"data: every example exceeds max_prompt={config.max_prompt} or "
            f"max_completion={config.max_completion} tokens"
        )
    facts = {
        "examples": sum(map(len, rounds)),
        "held_out": len(measured),
        "too_long": dropped + held_out_dropped,
    }
    return PreferenceDataset(
        rounds=tuple(map(tuple, rounds)), held_out=tuple(measured), facts=facts
    )


def _encoded(
    rows: Sequence[Row],
    config: PreferenceDataConfig,
    loss: PreferenceLossConfig,
    tokenizer: Any,
    ends: Sequence[int],
) -> tuple[list[Example], int]:
    """The examples within the length limits, and how many exceed them."""
    limits = config.max_prompt, config.max_completion
    if loss.name == "kto":
        return encode_labelled(to_labelled(rows), tokenizer, ends, limits)
    return within_limits(encode_pairs(to_pairs(rows), tokenizer, ends, loss), *limits)


def _curriculum(
    rows: Sequence[Row],
    config: PreferenceDataConfig,
    loss: PreferenceLossConfig,
    schedule: ScheduleConfig,
    tokenizer: Any,
    ends: Sequence[int],
) -> tuple[list[list[Example]], int]:
    """Curry-DPO's rounds and how many pairs exceed the limits.

    KTO's mismatched answers come from the same round.
    """
    pairs = encode_pairs(to_pairs(rows), tokenizer, ends, loss)
    pairs, dropped = within_limits(pairs, config.max_prompt, config.max_completion)
    rounds = split_by_gap(pairs, schedule.rounds)
    return [unpair(part) if loss.name == "kto" else part for part in rounds], dropped
