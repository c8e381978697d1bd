"""A sequence classifier with one output: the reward of an answer, read at its last token.

Axes: R rows, T positions, B answers, D width.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veriloop.data.preference_ids import EncodedAnswer
from veriloop.pipeline.config.checkpoints import positions_of
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import brought, choose_device
from veriloop.pipeline.model.loading import load_whole, require_files
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import (
    eos_ids,
    forward,
    hidden_states,
    load_tokenizer,
    without_dropout,
)
from veriloop.pipeline.model.shard_loading import load_empty, stored_shards
from veriloop.pipeline.model.sharded import is_sharded

ZERO_POINT = "reward_zero_point"  # in config.json: the mean raw reward of the anchors
HEAD = "score."  # prefix of the head's weights


def load_classifier(
    path: Path, tokenizer: Any, *, new_head: bool = True, empty: bool = False
) -> Any:
    """A transformers classifier with one output, ready to train.

    With `new_head` a causal LM gets a new head; one that is a classifier already brings its own.
    With `empty` its weights are not read before ranks have divided it; see `load_empty`.
    Raises RecipeError if `path` holds no whole model, or one without a `score` head.
    """
    from transformers import AutoModelForSequenceClassification

    new = (HEAD,) if new_head and not _is_classifier(path) else ()
    model = (load_empty if empty else load_whole)(
        AutoModelForSequenceClassification,
        path,
        new=new,
        unused=("lm_head.",) if new else (),
        num_labels=1,
        dtype=torch.float32,
    )
    if not hasattr(model, "score"):
        raise RecipeError(f"{path}: a {type(model).__name__} has no `score` head to read")
    model.config.pad_token_id = tokenizer.pad_token_id
    return without_dropout(model).train()


def saved_classifier(model: Any, folder: Path, tokenizer: Any) -> Mapping[str, Tensor]:
    """The weights of a classifier saved in `folder`, as a state of `model`. Of a sharded model each
    rank reads its rows."""
    if any(map(is_sharded, model.parameters())):
        shards = stored_shards(model, folder)
        if shards is not None:
            return shards
    return load_classifier(folder, tokenizer).state_dict()


def _is_classifier(path: Path) -> bool:
    """Whether the model in `path` was saved as a classifier."""
    require_files(path)
    names = json.loads((path / "config.json").read_bytes()).get("architectures") or ()
    return any("SequenceClassification" in name for name in names)


def answer_rewards(model: Any, answers: Sequence[EncodedAnswer], *, row: int) -> Tensor:
    """Reward of each answer after its prompt, [B].

    Read at the last token that is not the padding id, as transformers does, whether or not that
    token ends the answer.
    """
    return forward(model, _answer_rewards, answers, row)


def _answer_rewards(model: Any, answers: Sequence[EncodedAnswer], row: int) -> Tensor:
    pad = model.config.pad_token_id
    sequences = [(*a.prompt, *a.completion) for a in answers]
    last = [max((i for i, t in enumerate(s) if t != pad), default=len(s) - 1) for s in sequences]
    inputs = [(*s[: at + 1], 0) for s, at in zip(sequences, last, strict=True)]  # a target to drop
    lengths = [at + 1 for at in last]
    packed = lay_out(inputs, best_fit(lengths, max(row, *lengths)))
    hidden_RTD = hidden_states(model.base_model, packed.ids_RT, packed.positions_RT)
    end_RT = (packed.sequence_RT >= 0) & (
        packed.positions_RT == torch.tensor(last)[packed.sequence_RT]
    )
    rewards_B = model.score(hidden_RTD[end_RT].float()).squeeze(-1)
    answer_B = brought(packed.sequence_RT[end_RT], rewards_B.device)
    return torch.zeros_like(rewards_B).index_copy(0, answer_B, rewards_B)


class ScalarHead:
    """A trained reward model, loaded in this process or `empty`, for ranks to divide."""

    def __init__(self, folder: Path, *, empty: bool = False) -> None:
        require_files(folder)
        self.folder = folder
        self.tokenizer = load_tokenizer(folder)
        self.model = load_classifier(folder, self.tokenizer, new_head=False, empty=empty)
        self.model.eval()
        self.ends = eos_ids(self.model.config, self.tokenizer)
        self.positions = positions_of(self.model.config.to_dict())  # None: unlimited
        self.zero_point = float(json.loads((folder / "config.json").read_text()).get(ZERO_POINT, 0))

    def require_tokenizer(self, other: Any) -> None:
        """Raise RecipeError unless `other` has the same vocabulary: its ids must be scorable."""
        if self.tokenizer.get_vocab() != other.get_vocab():
            raise RecipeError(
                f"{self.folder} has another tokenizer than the policy and cannot score its ids"
            )

    def beyond_positions(self, answer: EncodedAnswer) -> str:
        """Says so of an answer that, with its prompt, has more tokens than the model has positions:
        a reward would mean nothing. "" of any other."""
        tokens = len(answer.prompt) + len(answer.completion)
        if self.positions is None or tokens <= self.positions:
            return ""
        return (
            f"prompt and response have {tokens:,} tokens, and the reward model has "
            f"{self.positions:,} positions"
        )

    @torch.no_grad()
    def rewards(self, answers: Sequence[EncodedAnswer], trainer: TrainerConfig) -> list[float]:
        """Centred, unbounded rewards in order, computed on the trainer's device. NaN for an answer
        `beyond_positions`."""
        values = [math.nan] * len(answers)
        fitting = [i for i, answer in enumerate(answers) if not self.beyond_positions(answer)]
        self.model.to(choose_device(trainer.device))
        for first in range(0, len(fitting), trainer.rows):
            part = fitting[first : first + trainer.rows]
            rewards_B = answer_rewards(self.model, [answers[i] for i in part], row=trainer.row)
            for i, value in zip(part, rewards_B.tolist(), strict=True):
                values[i] = value - self.zero_point
        return values
