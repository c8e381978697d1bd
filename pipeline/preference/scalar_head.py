"""A sequence classifier with one output: the reward of an answer, read off its last token.

Axes: R rows, T positions, B answers, D width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.preference_ids import Ids
from pipeline.config import TrainerConfig
from pipeline.device import brought, chosen
from pipeline.failures import RecipeError
from pipeline.packing import best_fit, lay_out
from pipeline.policy import eos_ids, hidden_states, load_tokenizer, without_dropout

ZERO_POINT = "reward_zero_point"  # in config.json: subtract it, and the anchors score 0 on average


def load_classifier(path: Path, tokenizer: Any) -> Any:
    """A classifier of transformers with one output, ready to train; from a causal LM its head is
    new. Raises RecipeError where there is no model, or one without a `score` head."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    _require_model(path)
    logging.disable_progress_bar()
    told = logging.get_verbosity()
    logging.set_verbosity_error()  # it would warn of a new head, which is what is asked for
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            str(path), num_labels=1, dtype=torch.float32
        )
    finally:
        logging.set_verbosity(told)
    if not hasattr(model, "score"):
        raise RecipeError(f"{path}: a {type(model).__name__} has no `score` head to read")
    model.config.pad_token_id = tokenizer.pad_token_id
    return without_dropout(model).train()


def _require_model(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise RecipeError(f"{path} holds no Hugging Face checkpoint: no config.json in it")


def answer_rewards(model: Any, answers: Sequence[Ids], *, row: int) -> Tensor:
    """Reward of each answer after its prompt, [B], where transformers reads it too: at the last
    token that is not the padding id, be it the end of the answer or not."""
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
    whose_B = brought(packed.sequence_RT[end_RT], rewards_B.device)
    return torch.zeros_like(rewards_B).index_copy(0, whose_B, rewards_B)


class ScalarHead:
    """A trained reward model in this process."""

    def __init__(self, folder: Path) -> None:
        _require_model(folder)
        self.folder = folder
        self.tokenizer = load_tokenizer(folder)
        self.model = load_classifier(folder, self.tokenizer).eval()
        self.ends = eos_ids(self.model.config, self.tokenizer)
        self.zero_point = float(json.loads((folder / "config.json").read_text()).get(ZERO_POINT, 0))

    def require_tokenizer(self, other: Any) -> None:
        """Raise RecipeError unless both spell alike: ids are read as they were sampled."""
        if self.tokenizer.get_vocab() != other.get_vocab():
            raise RecipeError(
                f"{self.folder} has another tokenizer than the policy: it cannot read its ids"
            )

    @torch.no_grad()
    def rewards(self, answers: Sequence[Ids], trainer: TrainerConfig) -> list[float]:
        """Centred rewards, unbounded, in order; computed where the trainer computes."""
        found: list[float] = []
        self.model.to(chosen(trainer.device))
        for first in range(0, len(answers), trainer.rows):
            part = answers[first : first + trainer.rows]
            found += answer_rewards(self.model, part, row=trainer.row).tolist()
        return [value - self.zero_point for value in found]
