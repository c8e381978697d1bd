"""Pre-training loss mixed into RL: PPO-ptx (arXiv 2203.02155)."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.data import corpus
from veriloop.data.jsonl import read_rows
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.ptx import pretraining_loss
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.sharded import SINGLE, Ranks


def pretraining(
    recipe: RLRecipe, policy: Any, tokenizer: Any, ranks: Ranks = SINGLE
) -> Callable[[int], Tensor]:
    """The weighted loss on text as a function of the optimizer step; text depends on step and seed.
    Each of `ranks` gets its share of the loss.

    Raises RecipeError for a file without text.
    """
    algorithm, row = recipe.algorithm, recipe.trainer.row
    documents = _documents(algorithm.ptx_text, tokenizer)

    def loss(done: int) -> Tensor:
        random = Random(f"pretraining/{recipe.seed}/{done}")
        pieces = list(_pieces(tokenizer, documents(random), row, algorithm.ptx_tokens))
        sizes = [len(piece) - 1 for piece in pieces]
        rows = best_fit(sizes, row)
        # A rank without a row repeats the first one under a mask that leaves it out.
        share = ranks.deal([(row, True) for row in rows], lambda: (rows[0], False))
        packed = lay_out(pieces, [row for row, _ in share])
        kept_R = torch.tensor([kept for _, kept in share])
        mask_RT = (packed.sequence_RT >= 0) & kept_R[:, None]
        logp_M, _ = score(
            policy,
            packed.ids_RT,
            packed.positions_RT,
            packed.targets_RT,
            mask_RT,
            temperature=1.0,
            chunk=recipe.trainer.logits_chunk,
        )
        return pretraining_loss(logp_M, tokens=sum(sizes), weight=algorithm.ptx_coefficient)

    return loss


def _documents(source: str, tokenizer: Any) -> Callable[[Random], Iterator[str]]:
    """A function that returns an endless stream of texts from a random start."""
    if source == "corpus":
        mix = corpus.Mix()

        def generated(random: Random) -> Iterator[str]:
            while True:
                yield corpus.document(random, mix)

        return generated
    texts = _texts(Path(source))
    if not any(len(_ids(tokenizer, text)) > 1 for text in texts):
        raise RecipeError(f"algorithm.ptx_text: no text in {source} has two tokens or more")

    def read(random: Random) -> Iterator[str]:
        return islice(cycle(texts), random.randrange(len(texts)), None)

    return read


def _texts(path: Path) -> list[str]:
    if not path.is_file():
        raise RecipeError(f"algorithm.ptx_text: no file {path}; 'corpus', or JSONL with a `text`")
    texts: list[str] = []
    try:
        for number, row in enumerate(read_rows(path), 1):
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise ValueError(f"{path}, line {number}: no JSON object with a `text`")
            texts.append(row["text"])
    except ValueError as mistake:
        raise RecipeError(f"algorithm.ptx_text: {mistake}") from mistake
    if not texts:
        raise RecipeError(f"{path} holds no line of text")
    return texts


def _pieces(tokenizer: Any, texts: Iterator[str], row: int, tokens: int) -> Iterator[list[int]]:
    """Token ids of documents, each cut to a row, with `tokens` targets in total."""
    while tokens > 0:
        ids = _ids(tokenizer, next(texts))[: row + 1]
        ids = ids[: tokens + 1]
        if len(ids) > 1:
            tokens -= len(ids) - 1
            yield ids


def _ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]
