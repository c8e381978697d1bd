"""What the reference says about every answer of a round: computed once, before training on it.

The pass is kept on disk under a key of the model's weights, the tokenizer and all ids, in parts,
so that one that was interrupted goes on where it stopped and one that is complete is only read.
"""

import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.config import TrainerConfig
from pipeline.durable import write_atomically
from pipeline.failures import StageError
from pipeline.preference.answer_logps import pieces, segment_counts, segment_logps
from pipeline.preference.examples import Example
from pipeline.reference import fingerprint

PART = 256  # examples of a part


class ReferenceLostError(StageError):
    """The log-probs that a resumed round was trained against are gone."""


def pass_key(model: Any, tokenizer: Any, examples: Sequence[Example]) -> str:
    """Hash of whose log-probs these are, and of what."""
    digest = sha256(fingerprint(model).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    for example in examples:
        for answer in example.answers:
            for ids in (answer.prompt, answer.completion, answer.segments):
                digest.update(struct.pack(f"<q{len(ids)}q", len(ids), *ids))
    return digest.hexdigest()[:16]


def reference_pass(
    model: Any,
    examples: Sequence[Example],
    trainer: TrainerConfig,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
) -> list[Tensor]:
    """Segment log-probs of both answers of each example, one [S] an example, from `folder` where
    they are and otherwise from the model; written there part by part."""
    found: list[Tensor] = []
    made = 0
    for number, first in enumerate(range(0, len(examples), PART)):
        part = examples[first : first + PART]
        path = folder / f"part_{number:05d}.pt"
        if not path.is_file():
            logps = log_probs(model, part, trainer)
            write_atomically(path, lambda fresh, kept=logps: torch.save(kept, fresh))
            made += len(part)
        found += torch.load(path, weights_only=True)
    say(
        f"reference: {len(examples)} examples, {made} scored now, the rest from {folder}"
        if made < len(examples)
        else f"reference: {made} examples scored, kept in {folder}"
    )
    return found


def read_pass(examples: Sequence[Example], folder: Path) -> list[Tensor]:
    """A complete pass. Raises ReferenceLostError when a part of it is missing."""
    found: list[Tensor] = []
    for number, _ in enumerate(range(0, len(examples), PART)):
        path = folder / f"part_{number:05d}.pt"
        if not path.is_file():
            raise ReferenceLostError(
                f"{path} is gone: the round cannot go on against the reference it began with; "
                "put it back, or start a new run"
            )
        found += torch.load(path, weights_only=True)
    return found


@torch.no_grad()
def log_probs(model: Any, examples: Sequence[Example], trainer: TrainerConfig) -> list[Tensor]:
    """Segment log-probs of both answers of each example, [S] each, nats."""
    found: list[Tensor] = []
    for group in pieces(examples, trainer.row * trainer.rows):
        answers = [answer for i in group for answer in examples[i].answers]
        logp_S = segment_logps(model, answers, trainer).cpu()
        sizes = [sum(segment_counts(examples[i].answers)) for i in group]
        found += [part.clone() for part in logp_S.split(sizes)]
    return found
