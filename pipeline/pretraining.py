"""Text to go on imitating while a policy is trained by rewards: PPO-ptx (arXiv 2203.02155)."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from torch import Tensor

from data import corpus
from pipeline.failures import RecipeError
from pipeline.losses.mixing import pretraining_loss
from pipeline.packing import best_fit, lay_out
from pipeline.policy import score
from pipeline.rl_config import RLRecipe


def pretraining(recipe: RLRecipe, policy: Any, tokenizer: Any) -> Callable[[int], Tensor]:
    """The weighted loss on text, by optimizer step: the same text for the same step and seed.

    Raises RecipeError for a file without text.
    """
    algorithm, row = recipe.algorithm, recipe.trainer.row
    documents = _documents(algorithm.ptx_text)

    def loss(done: int) -> Tensor:
        random = Random(f"pretraining/{recipe.seed}/{done}")
        pieces = list(_pieces(tokenizer, documents(random), row, algorithm.ptx_tokens))
        rows = best_fit([len(piece) - 1 for piece in pieces], row)
        packed = lay_out(pieces, rows)
        mask_RT = packed.sequence_RT >= 0
        logp_M, _ = score(
            policy,
            packed.ids_RT,
            packed.positions_RT,
            packed.targets_RT,
            mask_RT,
            temperature=1.0,
            chunk=recipe.trainer.logits_chunk,
        )
        return pretraining_loss(logp_M, tokens=len(logp_M), weight=algorithm.ptx_coefficient)

    return loss


def _documents(source: str) -> Callable[[Random], Iterator[str]]:
    """An endless stream of texts from where a random place in them."""
    if source == "corpus":
        mix = corpus.Mix()

        def generated(random: Random) -> Iterator[str]:
            while True:
                yield corpus.document(random, mix)

        return generated
    texts = _texts(Path(source))

    def read(random: Random) -> Iterator[str]:
        return islice(cycle(texts), random.randrange(len(texts)), None)

    return read


def _texts(path: Path) -> list[str]:
    if not path.is_file():
        raise RecipeError(f"algorithm.ptx_text: no file {path}; 'corpus', or JSONL with a `text`")
    found: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(json.loads(line)["text"])
        except (ValueError, KeyError, TypeError) as failure:
            raise RecipeError(f"{path}, line {number}: no JSON object with a `text`") from failure
    if not found:
        raise RecipeError(f"{path} holds no line of text")
    return found


def _pieces(tokenizer: Any, texts: Iterator[str], row: int, tokens: int) -> Iterator[list[int]]:
    """Documents as ids, cut to a row, until they have as many targets as wanted."""
    while tokens > 0:
        ids = tokenizer(next(texts), add_special_tokens=False)["input_ids"][: row + 1]
        ids = ids[: tokens + 1]
        if len(ids) > 1:
            tokens -= len(ids) - 1
            yield ids
