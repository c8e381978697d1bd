"""Converts preference and conversation rows of published sets to TRL's layout."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from veriloop.data.hub.layout import Row, UnusableRow, require_json, text, value

Message = dict[str, str]
Converter = Callable[[Row], dict[str, Any]]

_TURN = re.compile(r"\n\n(Human|Assistant):[ ]?")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def pair(row: Row) -> dict[str, Any]:
    """`chosen` and `rejected` are conversations that differ in their last turn; scores optional."""
    converted = _split_prompt(messages_in(row, "chosen"), messages_in(row, "rejected"))
    scores: list[Any] = [row.get(f"score_{side}") for side in ("chosen", "rejected")]
    if None not in scores:
        if not all(isinstance(score, int | float) for score in scores):
            raise UnusableRow("a score is not a number")
        converted |= {"score_chosen": float(scores[0]), "score_rejected": float(scores[1])}
    return converted


def dialogues(row: Row) -> dict[str, Any]:
    """HH-RLHF: each conversation is one text with turns that begin with Human: or Assistant:."""
    return _split_prompt(_turns(text(row, "chosen")), _turns(text(row, "rejected")))


def ranking(row: Row) -> dict[str, Any]:
    """UltraFeedback: completions with scores; of those with equal scores the first is kept."""
    prompt = text(row, "instruction")
    by_score: dict[float, str] = {}
    completions = value(row, "completions") or []
    if not isinstance(completions, list) or not all(isinstance(c, Mapping) for c in completions):
        raise UnusableRow("completions are not objects")
    for completion in completions:
        score, answer = completion.get("fine-grained_score"), completion.get("response")
        if isinstance(score, int | float) and isinstance(answer, str) and answer.strip():
            by_score.setdefault(float(score), answer)
    if len(by_score) < 2:
        raise UnusableRow("fewer than two answers with different scores")
    ranked = [by_score[score] for score in sorted(by_score, reverse=True)]
    return {"prompt": prompt, "ranked": ranked}


def conversation(row: Row) -> dict[str, Any]:
    """Messages that begin with a question and end with the assistant's answer."""
    messages = messages_in(row, "messages")
    if messages[0]["role"] == "assistant" or messages[-1]["role"] != "assistant":
        raise UnusableRow("does not end with an answer to a question")
    extra = {key: row[key] for key in ("source", "num_tokens") if key in row}
    require_json(extra, "source or num_tokens")
    return {"messages": messages, **extra}


def messages_in(row: Row, column: str) -> list[Message]:
    """The role and content of each message in a column. Raises UnusableRow for anything else."""
    messages = value(row, column)
    if not isinstance(messages, list) or not messages:
        raise UnusableRow(f"no {column}")
    if not all(isinstance(message, Mapping) for message in messages):
        raise UnusableRow(f"{column} holds no messages")
    plain = [{key: message.get(key) for key in ("role", "content")} for message in messages]
    parts = [part for message in plain for part in message.values()]
    if not all(isinstance(part, str) and part.strip() for part in parts):
        raise UnusableRow(f"an empty message in {column}")
    return plain


def _turns(dialogue: str) -> list[Message]:
    preamble, *parts = _TURN.split(f"\n\n{dialogue.lstrip()}")
    if preamble.strip():
        raise UnusableRow("text before the first turn")
    turns = [
        {"role": _ROLES[speaker], "content": content.strip()}
        for speaker, content in zip(parts[::2], parts[1::2], strict=True)
    ]
    if not turns or not all(turn["content"] for turn in turns):
        raise UnusableRow("an empty turn")
    return turns


def _split_prompt(chosen: list[Message], rejected: list[Message]) -> dict[str, Any]:
    """The turns that both conversations share as the prompt, the last ones as the answers."""
    if chosen[:-1] != rejected[:-1] or not chosen[:-1]:
        raise UnusableRow("chosen and rejected answer different conversations")
    if {chosen[-1]["role"], rejected[-1]["role"]} != {"assistant"}:
        raise UnusableRow("the last turn is not an answer")
    if chosen[-2]["role"] != "user":
        raise UnusableRow("the answer does not follow a user's turn")
    if chosen[-1] == rejected[-1]:
        raise UnusableRow("chosen and rejected are equal")
    return {"prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:]}


CONVERTERS: Mapping[str, Converter] = {
    "pair": pair,
    "dialogues": dialogues,
    "ranking": ranking,
    "messages": conversation,
}
