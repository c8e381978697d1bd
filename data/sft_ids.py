"""Token ids of supervised fine-tuning rows, and which of them are trained on.

Trained are the tokens of completions and the one EOS after each, never those of a prompt. Both
parts are tokenised separately and concatenated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veriloop.data.bos import check_bos, with_bos
from veriloop.data.chat import chat_text
from veriloop.data.preference_ids import encode, keeps, with_eos
from veriloop.data.sft_rows import Conversation, PlainText, Row

Piece = tuple[tuple[int, ...], bool]  # ids, whether they are trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedExample:
    """A token sequence and its loss mask."""

    ids: tuple[int, ...]  # begins with the BOS id if the tokenizer has one
    learned: tuple[bool, ...]  # by token; never the first, which has no context

    @property
    def targets(self) -> int:
        """Number of tokens trained on."""
        return sum(self.learned)


def encode_example(
    row: Row, tokenizer: Any, ends: Sequence[int], *, last_turn: bool = False
) -> EncodedExample:
    """Encode a row. `ends` are the ids that end an answer. Every turn of the assistant is trained
    on, or with `last_turn` only the last message of a conversation.

    Raises ValueError for a chat template that renders the beginning of a conversation differently
    once it continues, or leaves out a part of a trained message, for an answer with an EOS inside
    it, and for a missing or doubled BOS.
    """
    if isinstance(row, PlainText):
        return _plain_text(row, tokenizer, ends)
    turns = row.turns[-1:] if last_turn else row.turns
    if len(turns) == 1:
        turn = turns[0]
        encoded = encode(row.messages[:turn], row.messages[turn:], tokenizer, ends)
        return _joined([(encoded.prompt, False), (encoded.completion, True)])
    return _conversation(row, turns, tokenizer, ends)


def _plain_text(row: PlainText, tokenizer: Any, ends: Sequence[int]) -> EncodedExample:
    if row.prompt:
        encoded = encode(row.prompt, row.completion, tokenizer, ends)
        return _joined([(encoded.prompt, False), (encoded.completion, True)])
    ids = with_bos(_ids(row.completion, tokenizer), tokenizer)
    if ids[-1] not in ends:
        ids = (*ids, tokenizer.eos_token_id)
    check_bos(ids, tokenizer)
    return _joined([(ids, True)])


def _conversation(
    row: Conversation, turns: Sequence[int], tokenizer: Any, ends: Sequence[int]
) -> EncodedExample:
    """Train on the messages with the indices `turns` and on nothing between them."""
    pieces: list[Piece] = []
    previous = ""  # the conversation up to the previous turn
    for turn in turns:
        prompt, whole = (_rendered(row, stop, tokenizer) for stop in (turn, turn + 1))
        if not (prompt.startswith(previous) and whole.startswith(prompt)):
            raise ValueError(
                f"the chat template renders the messages before message {turn + 1} differently "
                "once more follow (some drop the thinking of earlier turns): only the last turn "
                "of such a conversation can be trained on (data.turns: last)"
            )
        if not keeps(whole[len(prompt) :], row.messages[turn]["content"]):
            raise ValueError(
                f"the chat template leaves out a part of message {turn + 1} (some drop the "
                "thinking): only the last turn can be trained on (data.turns: last)"
            )
        context = _ids(prompt[len(previous) :], tokenizer)
        answer = _ids(whole[len(prompt) :], tokenizer)
        learned = with_eos(answer, tokenizer, ends)
        pieces += [(context, False), (learned, True)]
        if turn != turns[-1]:
            # An appended EOS would be missing from the context of the next turn.
            if learned[-1:] != answer[len(learned) - 1 : len(learned)]:
                raise ValueError(
                    f"the chat template writes no end-of-sequence after message {turn + 1}"
                )
            pieces.append((answer[len(learned) :], False))
        previous = whole
    pieces[0] = (with_bos(pieces[0][0], tokenizer), False)
    example = _joined(pieces)
    check_bos(example.ids, tokenizer, row.messages)
    return example


def _rendered(row: Conversation, stop: int, tokenizer: Any) -> str:
    """The first `stop` messages as text, with the generation prompt before an answer."""
    if not tokenizer.chat_template:
        raise ValueError("the rows hold messages, and this tokenizer has no chat template")
    invites = row.messages[stop - 1]["role"] != "assistant"
    return chat_text(row.messages[:stop], tokenizer, invites=invites)


def _ids(text: str, tokenizer: Any) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def _joined(pieces: Sequence[Piece]) -> EncodedExample:
    ids = tuple(i for piece, _ in pieces for i in piece)
    learned = tuple(flag for piece, flag in pieces for _ in piece)
    return EncodedExample(ids=ids, learned=(False, *learned[1:]))
