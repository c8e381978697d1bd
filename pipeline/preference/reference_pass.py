"""The reference's log-probs of a round's examples, computed once before training on it.

The pass is cached on disk in parts, keyed by the model's weights and precision, the tokenizer and
all ids, so that an interrupted pass continues and a complete one is only read. Axis: S segments.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.deal import counted, gathered_values
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.probe import compute_dtype
from veriloop.pipeline.model.reference import deciding_config, fingerprint
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.preference.logps import example_groups, segment_counts, segment_logps
from veriloop.pipeline.runs.atomic_write import write_atomically

PART = 256  # examples of a cached file


class ReferenceLostError(StageError):
    """The reference log-probs of a resumed round are missing."""


def pass_key(model: Any, tokenizer: Any, examples: Sequence[Example], ranks: Ranks = SINGLE) -> str:
    """Hash of the model's weights and config, what it computes in, the tokenizer and the examples'
    ids."""
    digest = sha256(ranks.together(_weights_key, model).encode())
    digest.update(deciding_config(model).encode())
    digest.update(str(compute_dtype(model)).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    digest.update(ids_key(examples).encode())
    return digest.hexdigest()[:16]


def ids_key(examples: Sequence[Example]) -> str:
    """Hash of the ids of the examples, in their order."""
    digest = sha256()
    for example in examples:
        for answer in example.answers:
            for ids in (answer.prompt, answer.completion, answer.segments):
                digest.update(struct.pack(f"<q{len(ids)}q", len(ids), *ids))
    return digest.hexdigest()[:16]


def _weights_key(model: Any, _: Ranks) -> str:
    return fingerprint(model)


def reference_pass(
    model: Any,
    examples: Sequence[Example],
    trainer: TrainerConfig,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    ranks: Ranks = SINGLE,
) -> list[Tensor]:
    """Segment log-probs of both answers of each example, [S] each, nats.

    Parts missing from `folder` are computed by all `ranks` and written.
    """
    computed = 0
    for number, first in enumerate(range(0, len(examples), PART)):
        part = examples[first : first + PART]
        path = folder / f"part_{number:05d}.pt"
        if not path.is_file():
            part_logps = ranks.together(log_probs, model, part, trainer)
            save = partial(torch.save, part_logps)
            write_atomically(path, save, shared=True)
            computed += len(part)
    say(f"reference: {computed} of {len(examples)} examples scored now; cached in {folder}")
    return read_pass(examples, folder)


def read_pass(examples: Sequence[Example], folder: Path) -> list[Tensor]:
    """Read a complete pass. Raises ReferenceLostError if a part is missing."""
    logps: list[Tensor] = []
    for number in range(-(-len(examples) // PART)):
        path = folder / f"part_{number:05d}.pt"
        if not path.is_file():
            raise ReferenceLostError(
                f"{path} is missing: the round cannot resume without the reference log-probs it "
                "began with; restore the file, or start a new run"
            )
        logps += torch.load(path, weights_only=True)
    return logps


def require_scored(examples: Sequence[Example], ids: str, name: str) -> None:
    """Raise ReferenceLostError if these examples are not those with the key `ids` ("": not known),
    whose log-probs would be taken for theirs."""
    if ids and ids_key(examples) != ids:
        raise ReferenceLostError(
            f"{name} are not those that the reference scored when this run began: restore the data "
            "it began with, or start a new run"
        )


def keep_pass(folder: Path, copy: Path) -> None:
    """A copy of a complete pass, for a run that goes on elsewhere or after the cache is emptied."""
    for part in sorted(folder.glob("part_*.pt")):
        logps = part.read_bytes()
        write_atomically(copy / part.name, lambda fresh, logps=logps: fresh.write_bytes(logps))


@torch.no_grad()
def log_probs(
    model: Any, examples: Sequence[Example], trainer: TrainerConfig, ranks: Ranks = SINGLE
) -> list[Tensor]:
    """Segment log-probs of both answers of each example, [S] each, nats."""
    groups = example_groups(examples, trainer, ranks.count)
    sizes = [[sum(segment_counts(examples[i].answers)) for i in group] for group in groups]
    mine: list[Tensor] = []
    for group, _ in counted(ranks, groups):
        answers = [answer for i in group for answer in examples[i].answers]
        mine.append(segment_logps(model, answers, trainer).cpu())
    by_group = zip(gathered_values(ranks, [*map(sum, sizes)], mine), sizes, strict=True)
    return [part.clone() for logp_S, counts in by_group for part in logp_S.split(counts)]
