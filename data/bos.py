"""BOS ids of encoded texts: one at the beginning, or those that a chat template writes per turn."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from veriloop.data.chat import chat_text

Message = Mapping[str, Any]
_TURNS: tuple[Message, ...] = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "a"},
)


def writes_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer adds a BOS id before a text."""
    bos = tokenizer.bos_token_id
    return bos is not None and list(tokenizer("a").input_ids[:1]) == [bos]


def with_bos(ids: tuple[int, ...], tokenizer: Any) -> tuple[int, ...]:
    """`ids` with the BOS id prepended if the tokenizer writes one and it is missing."""
    bos = tokenizer.bos_token_id
    return (bos, *ids) if ids[:1] != (bos,) and writes_bos(tokenizer) else ids


def bos_count(ids: Sequence[int], tokenizer: Any) -> int:
    """Number of BOS ids. An id that is EOS too may end a turn: only the first two ids count."""
    bos = tokenizer.bos_token_id
    counted = ids[:2] if bos == tokenizer.eos_token_id else ids
    return 0 if bos is None else list(counted).count(bos)


def bos_fault(
    ids: Sequence[int], tokenizer: Any, messages: Sequence[Message] = ()
) -> Literal["", "doubled", "misplaced", "missing"]:
    """What is wrong with the BOS ids of a text, or of these messages in the chat template.

    Doubled: two ids at the beginning, or more than one in all. A chat template that writes the
    BOS id in every turn (SmolLM2, Llama 2) may write as many as it does for messages without
    special tokens, and a text that begins with one may be written by it. Misplaced: the only one
    is not the first id. Missing: none, though the tokenizer adds one.
    """
    count = bos_count(ids, tokenizer)
    if not count:
        return "missing" if writes_bos(tokenizer) else ""
    bos = tokenizer.bos_token_id
    if list(ids[:2]) == [bos, bos]:
        return "doubled"
    if count > 1 and count > bos_in_turns(messages, tokenizer):
        rendered = not messages and ids[0] == bos and _marks_turns(tokenizer)
        return "" if rendered else "doubled"
    return "misplaced" if count == 1 and ids[0] != bos else ""


def check_bos(ids: Sequence[int], tokenizer: Any, messages: Sequence[Message] = ()) -> None:
    """Raise ValueError for a text with one of the faults of `bos_fault`."""
    bos = tokenizer.bos_token_id
    match bos_fault(ids, tokenizer, messages):
        case "missing":
            raise ValueError(f"the text lacks the BOS id ({bos}) that the model was trained with")
        case "doubled" | "misplaced":
            if list(ids[:2]) == [bos, bos]:
                raise ValueError(f"the text begins with 2 BOS ids ({bos}); remove one")
            allowed = max(bos_in_turns(messages, tokenizer), int(writes_bos(tokenizer)))
            raise ValueError(
                f"the text holds {bos_count(ids, tokenizer)} BOS ids ({bos}), allowed {allowed}, "
                "at the beginning or as the chat template writes them"
            )
        case _:
            pass


def bos_in_turns(messages: Sequence[Message], tokenizer: Any) -> int:
    """Number of BOS ids that the chat template writes for messages of these roles.

    0 without messages, and for a template that does not write more of them for more turns.
    """
    if not messages or not _marks_turns(tokenizer):
        return 0
    return _rendered([{**m, "content": "a"} for m in messages], tokenizer)


def _marks_turns(tokenizer: Any) -> bool:
    """Whether the chat template writes the BOS id in every turn."""
    if not tokenizer.chat_template:
        return False
    return _rendered(_TURNS, tokenizer) > _rendered(_TURNS[:1], tokenizer)


def _rendered(messages: Sequence[Message], tokenizer: Any) -> int:
    invites = messages[-1]["role"] != "assistant"
    text = chat_text(messages, tokenizer, invites=invites)
    return bos_count(tokenizer(text, add_special_tokens=False).input_ids, tokenizer)
