"""Rows of supervised fine-tuning as token ids, and which of them are learned.

What is learned is tokenised apart from what is not, and laid end to end: learned are the tokens of
completions and the one EOS after each, and nothing of a prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data.preference_ids import begun, check_bos, encode, ended
from data.sft_rows import Conversation, Row, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A token sequence and which of its tokens are learned: predicted from those before them."""

    ids: tuple[int, ...]  # beginning with the BOS id, where the tokenizer has one
    learned: tuple[bool, ...]  # by token; never the first, which nothing comes before

    @property
    def targets(self) -> int:
        """How many tokens are learned."""
        return sum(self.learned)


def lesson(row: Row, tokenizer: Any, ends: Sequence[int], *, last_turn: bool = False) -> Lesson:
    """A row as ids. `ends` are the ids that end an answer; with `last_turn` only the last message
    of a conversation is learned, and otherwise every one by the assistant.

    Raises ValueError for a chat template that does not lay out the beginning of a conversation as
    it lays out the whole, for an answer with an EOS inside it, and for a BOS that is not alone.
    """
    if isinstance(row, Written):
        return _written(row, tokenizer, ends)
    turns = row.turns[-1:] if last_turn else row.turns
    if len(turns) == 1:
        at = turns[0]
        answered = encode(row.messages[:at], row.messages[at : at + 1], tokenizer, ends)
        return _joined([(answered.prompt, False), (answered.completion, True)])
    return _conversation(row, turns, tokenizer, ends)


def _written(row: Written, tokenizer: Any, ends: Sequence[int]) -> Lesson:
    if row.prompt:
        answered = encode(row.prompt, row.completion, tokenizer, ends)
        return _joined([(answered.prompt, False), (answered.completion, True)])
    ids = begun(tuple(tokenizer(row.completion, add_special_tokens=False).input_ids), tokenizer)
    if ids[-1] not in ends:
        ids = (*ids, tokenizer.eos_token_id)
    check_bos(ids, tokenizer)
    return _joined([(ids, True)])


def _conversation(
    row: Conversation, turns: Sequence[int], tokenizer: Any, ends: Sequence[int]
) -> Lesson:
    """Every turn of `turns` learned, what stands between them not."""
    pieces: list[tuple[tuple[int, ...], bool]] = []
    done = ""
    for at in turns:
        asked, said = (_text(row, stop, tokenizer) for stop in (at, at + 1))
        if not (asked.startswith(done) and said.startswith(asked)):
            raise ValueError(
                f"the chat template lays out what stands before message {at + 1} otherwise once "
                "that follows (some drop the thinking of earlier turns): only the last turn can "
                "be learned from such a conversation (data.turns: last)"
            )
        before, answer = (_ids(t, tokenizer) for t in (asked[len(done) :], said[len(asked) :]))
        learned = ended(answer, tokenizer, ends)
        pieces += [(before, False), (learned, True)]
        if at != turns[-1]:
            if learned[-1:] != answer[len(learned) - 1 : len(learned)]:
                raise ValueError(f"the chat template ends message {at + 1} by no end-of-sequence")
            pieces.append((answer[len(learned) :], False))
        done = said
    pieces[0] = (begun(pieces[0][0], tokenizer), False)
    found = _joined(pieces)
    check_bos(found.ids, tokenizer)
    return found


def _text(row: Conversation, stop: int, tokenizer: Any) -> str:
    """The first `stop` messages laid out; before an answer with what invites it."""
    if not tokenizer.chat_template:
        raise ValueError("the rows hold messages, and this tokenizer has no chat template")
    invites = row.messages[stop - 1]["role"] != "assistant"
    shown = [dict(m) for m in row.messages[:stop]]
    return tokenizer.apply_chat_template(shown, add_generation_prompt=invites, tokenize=False)


def _ids(text: str, tokenizer: Any) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def _joined(pieces: Sequence[tuple[tuple[int, ...], bool]]) -> Lesson:
    ids = tuple(i for piece, _ in pieces for i in piece)
    learned = tuple(flag for piece, flag in pieces for _ in piece)
    return Lesson(ids=ids, learned=(False, *learned[1:]))
