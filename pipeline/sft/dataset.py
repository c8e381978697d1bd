"""SFT rows as token ids: encoded, length-filtered, split into training and held-out examples."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from veriloop.data.sft_ids import EncodedExample, encode_example
from veriloop.data.sft_rows import Row, question
from veriloop.pipeline.config.sft import SFTExamplesConfig
from veriloop.pipeline.errors import RecipeError


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTDataset:
    """The examples of a run."""

    train: tuple[EncodedExample, ...]
    held_out: tuple[EncodedExample, ...]
    too_long: int  # rows left out

    @property
    def key(self) -> str:
        """Hash of all ids and loss masks, in order."""
        digest = sha256()
        for example in (*self.train, *self.held_out):
            digest.update(struct.pack(f"<q{len(example.ids)}q", len(example.ids), *example.ids))
            digest.update(bytes(example.learned))
        return digest.hexdigest()

    @property
    def facts(self) -> dict[str, int]:
        """Counts, for run.json."""
        return {
            "rows": len(self.train),
            "held_out": len(self.held_out),
            "too_long": self.too_long,
            "learned_tokens": sum(example.targets for example in self.train),
        }


def build_dataset(
    rows: Sequence[Row], config: SFTExamplesConfig, tokenizer: Any, ends: Sequence[int], seed: int
) -> SFTDataset:
    """Encode and split `rows`; `ends` are the EOS ids.

    Raises RecipeError, with the row's number, for a row that cannot be encoded, or that exceeds
    `config.max_tokens` under `too_long: refuse`.
    """
    splits = [
        _encoded(split, config, tokenizer, ends)
        for split in split_held_out(rows, config.held_out, seed)
    ]
    train, held_out = (
        tuple(example for example in split if len(example.ids) <= config.max_tokens)
        for split in splits
    )
    if not train:
        raise RecipeError(f"data: every row exceeds max_tokens={config.max_tokens}")
    too_long = sum(map(len, splits)) - len(train) - len(held_out)
    return SFTDataset(train=train, held_out=held_out, too_long=too_long)


def split_held_out(
    rows: Sequence[Row], held_out: int, seed: int
) -> tuple[list[tuple[int, Row]], list[tuple[int, Row]]]:
    """Numbered training and held-out rows.

    Whole questions are held out, so that no answer to a held-out question is trained on; they are
    drawn until they hold `held_out` rows or more.
    """
    questions = [question(row) for row in rows]
    counts = Counter(questions)
    order = sorted(counts)
    Random(f"held-out/{seed}").shuffle(order)
    chosen: set[str] = set()
    total = 0
    for drawn in order:
        if total >= held_out:
            break
        chosen.add(drawn)
        total += counts[drawn]
    numbered = list(zip(enumerate(rows, 1), questions, strict=True))
    train = [row for row, text in numbered if text not in chosen]
    if not train:
        raise RecipeError(f"data.held_out={held_out} leaves none of the {len(rows)} rows to learn")
    return train, [row for row, text in numbered if text in chosen]


def _encoded(
    rows: Sequence[tuple[int, Row]], config: SFTExamplesConfig, tokenizer: Any, ends: Sequence[int]
) -> list[EncodedExample]:
    examples: list[EncodedExample] = []
    for number, row in rows:
        try:
            example = encode_example(row, tokenizer, ends, last_turn=config.turns == "last")
        except ValueError as mistake:
            raise RecipeError(f"data: row {number}: {mistake}") from mistake
        if len(example.ids) > config.max_tokens and config.too_long == "refuse":
            raise RecipeError(
                f"data: row {number} has {len(example.ids)} tokens; max_tokens={config.max_tokens} "
                "(data.too_long: leave_out would leave it out)"
            )
        examples.append(example)
    return examples
