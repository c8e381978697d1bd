"""Token ids of prompts and answers: tokenised separately, concatenated, with one BOS and one EOS.

Tokenising the joined text could merge the end of a prompt with the beginning of its answer, so
that no token boundary separates them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from veriloop.data.bos import check_bos, with_bos
from veriloop.data.columns import Text, answer_text
from veriloop.data.preferences import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedAnswer:
    """One answer after its prompt."""

    prompt: tuple[int, ...]  # begins with the BOS id if the tokenizer has one
    completion: tuple[int, ...]  # ends with one end-of-sequence id unless it was cut off
    segments: tuple[int, ...]  # for each completion token the index of its segment, from 0


def encode(
    prompt: Text,
    answer: Text,
    tokenizer: Any,
    ends: Sequence[int],
    segments: Sequence[Segment] = (),
) -> EncodedAnswer:
    """Ids of an answer. `ends` are the ids that end one; the tokenizer's EOS is appended if none
    is present. A token belongs to the segment that it begins in, the EOS to the last one.

    Raises ValueError for a chat template that does not begin with the prompt, for a BOS that is
    missing or doubled or in an answer, and for an EOS inside the answer.
    """
    prompt_text, completion_text = _as_text(prompt, answer, tokenizer)
    prompt_ids = tuple(tokenizer(prompt_text, add_special_tokens=False).input_ids)
    prompt_ids = with_bos(prompt_ids, tokenizer)
    encoded = tokenizer(completion_text, add_special_tokens=False, return_offsets_mapping=True)
    ids = with_eos(tuple(encoded.input_ids), tokenizer, ends)
    messages = () if isinstance(prompt, str) or isinstance(answer, str) else (*prompt, *answer)
    bos = tokenizer.bos_token_id
    if not messages and bos in ids and bos not in ends:
        raise ValueError(f"the answer has a BOS id ({bos}) inside it")
    check_bos((*prompt_ids, *ids), tokenizer, messages)
    start = completion_text.find(answer_text(answer))
    starts = [first - start for first, _ in encoded.offset_mapping]
    return EncodedAnswer(
        prompt=prompt_ids, completion=ids, segments=_segment_ids(starts, len(ids), segments)
    )


def _as_text(prompt: Text, answer: Text, tokenizer: Any) -> tuple[str, str]:
    """Both as text; messages are rendered by the model's chat template."""
    if isinstance(prompt, str) and isinstance(answer, str):
        return prompt, answer
    if not tokenizer.chat_template:
        raise ValueError("the rows hold messages, and this tokenizer has no chat template")
    messages, reply = [dict(m) for m in prompt], [dict(m) for m in answer]  # type: ignore[arg-type]
    before = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([*messages, *reply], tokenize=False)
    if not whole.startswith(before):
        raise ValueError(
            f"the chat template renders the conversation as {whole!r:.80}, which does not begin "
            f"with the prompt {before!r:.80}: the start of the answer is unknown"
        )
    return before, whole[len(before) :]


def with_eos(ids: tuple[int, ...], tokenizer: Any, ends: Sequence[int]) -> tuple[int, ...]:
    """`ids` up to their only end, which is appended if missing; whitespace that a template writes
    after it is cut. Raises ValueError for an end inside the answer."""
    positions = [position for position, i in enumerate(ids) if i in ends]
    if not positions:
        return (*ids, tokenizer.eos_token_id)
    end = positions[0]
    if len(positions) > 1 or tokenizer.decode(list(ids[end + 1 :])).strip():
        raise ValueError(f"the answer has an end-of-sequence id ({ids[end]}) inside it")
    return ids[: end + 1]


def _segment_ids(starts: Sequence[int], count: int, segments: Sequence[Segment]) -> tuple[int, ...]:
    """The segment of each of `count` tokens; `starts` are character offsets in the answer."""
    if not segments:
        return (0,) * count
    edges = list(accumulate(len(s.text) for s in segments[:-1]))
    indices = [bisect_right(edges, max(start, 0)) for start in starts[:count]]
    return (*indices, *[len(segments) - 1] * (count - len(indices)))
