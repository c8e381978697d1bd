"""Where a round's examples come from: a file in one or several shares, or the model itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data import arithmetic_preferences, general_preferences, preferences
from data.preferences import Row
from pipeline.failures import RecipeError
from pipeline.preference.examples import (
    Example,
    as_labelled,
    as_pairs,
    by_gap,
    labelled,
    paired,
    short_enough,
)
from pipeline.preference_config import (
    PreferenceDataConfig,
    PreferenceLossConfig,
    ScheduleConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The data of a run as ids."""

    rounds: tuple[tuple[Example, ...], ...]  # empty where rounds are sampled
    held_out: tuple[Example, ...]
    facts: dict[str, int] = field(default_factory=dict)  # counts, for the record


def load_rows(config: PreferenceDataConfig, kind: str = "pairs") -> tuple[list[Row], list[Row]]:
    """Rows to train on and rows to measure on. Raises RecipeError, naming line and column."""
    wanted = config.rows + config.held_out
    try:
        if config.source == "arithmetic":
            raw = arithmetic_preferences.rows(kind, config.seed, wanted)  # type: ignore[arg-type]
            rows = preferences.checked(raw, "generated data, row")
        elif config.source == "general":  # held-out rows are about held-out entities
            rows = [
                row
                for split, count in (("train", config.rows), ("test", config.held_out))
                for row in preferences.checked(
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
    return rows[:train], rows[train : train + config.held_out]


def prepare(
    config: PreferenceDataConfig,
    loss: PreferenceLossConfig,
    schedule: ScheduleConfig,
    tokenizer: Any,
    ends: Sequence[int],
    say: Callable[[str], None] = lambda _: None,
) -> Prepared:
    """Read, check and encode the data; what is too long is left out, counted and said."""
    kind = "ranked" if schedule.name == "curriculum" else "pairs"
    train, held_out = load_rows(config, kind)
    if schedule.name == "curriculum":
        shares, dropped = _by_gap(train, config, loss, schedule, tokenizer, ends)
    elif schedule.samples:
        shares, dropped = [], 0
    else:
        encoded = _encoded(train, loss, tokenizer, ends)
        kept, dropped = short_enough(encoded, config.max_prompt, config.max_completion)
        shares = [kept]
    measured, lost = short_enough(
        _encoded(held_out, loss, tokenizer, ends), config.max_prompt, config.max_completion
    )
    if dropped or lost:
        say(f"data: {dropped} examples to train on and {lost} held-out ones exceed the limits")
    if not measured or not all(shares):
        raise RecipeError(
            f"data: every example exceeds max_prompt={config.max_prompt} or "
            f"max_completion={config.max_completion} tokens"
        )
    facts = {
        "examples": sum(map(len, shares)),
        "held_out": len(measured),
        "too_long": dropped + lost,
    }
    return Prepared(rounds=tuple(map(tuple, shares)), held_out=tuple(measured), facts=facts)


def _encoded(
    rows: Sequence[Row], loss: PreferenceLossConfig, tokenizer: Any, ends: Sequence[int]
) -> list[Example]:
    if loss.name == "kto":
        return labelled(as_labelled(rows), tokenizer, ends)
    return paired(as_pairs(rows), tokenizer, ends, loss)


def _by_gap(
    rows: Sequence[Row],
    config: PreferenceDataConfig,
    loss: PreferenceLossConfig,
    schedule: ScheduleConfig,
    tokenizer: Any,
    ends: Sequence[int],
) -> tuple[list[list[Example]], int]:
    """Curry-DPO's rounds. KTO's mismatched answers come from the same round."""
    from pipeline.preference.labels import unpaired

    pairs = paired(as_pairs(rows), tokenizer, ends, loss)
    kept, dropped = short_enough(pairs, config.max_prompt, config.max_completion)
    shares = by_gap(kept, schedule.rounds)
    return [unpaired(share) if loss.name == "kto" else share for share in shares], dropped
