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
from veriloop.data.chat import chat_text
from veriloop.data.columns import Text, answer_text
from veriloop.data.preferences import Segment

THINK = "<think>"
MARK = "\N{LEFT WHITE SQUARE BRACKET}answer\N{RIGHT WHITE SQUARE BRACKET}"  # no template writes it


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

    The prompt of messages is the one that the chat template asks the model with, and the answer
    follows it whole. What the template writes of it counts if it begins with that prompt and leaves
    nothing out; many drop the thinking. Otherwise it is put there as it is, without the <think>
    that the prompt ends with.

    Raises ValueError for a BOS that is missing or doubled or in an answer, for an EOS inside the
    answer, and for an answer without <think> to a prompt that ends with it.
    """
    prompt_text, completion_text, start = _as_text(prompt, answer, tokenizer, exact=bool(segments))
    prompt_ids = tuple(tokenizer(prompt_text, add_special_tokens=False).input_ids)
    prompt_ids = with_bos(prompt_ids, tokenizer)
    encoded = tokenizer(completion_text, add_special_tokens=False, return_offsets_mapping=True)
    ids = with_eos(tuple(encoded.input_ids), tokenizer, ends)
    messages = () if isinstance(prompt, str) or isinstance(answer, str) else (*prompt, *answer)
    bos = tokenizer.bos_token_id
    if not messages and bos in ids and bos not in ends:
        raise ValueError(f"the answer has a BOS id ({bos}) inside it")
    check_bos((*prompt_ids, *ids), tokenizer, messages)
    starts = [first - start for first, _ in encoded.offset_mapping]
    return EncodedAnswer(
        prompt=prompt_ids, completion=ids, segments=_segment_ids(starts, len(ids), segments)
    )


def keeps(written: str, text: str) -> bool:
    """Whether `text` is in what a template has written, up to whitespace."""
    return "".join(text.split()) in "".join(written.split())


def _as_text(prompt: Text, answer: Text, tokenizer: Any, *, exact: bool) -> tuple[str, str, int]:
    """Both as text, and where in the second the answer begins: below 0 where the prompt ends with
    the answer's first tag. `exact`: with the answer's own whitespace."""
    text = answer_text(answer)
    if isinstance(prompt, str) and isinstance(answer, str):
        return prompt, text, 0
    if not tokenizer.chat_template:
        raise ValueError("the rows hold messages, and this tokenizer has no chat template")
    messages: list[Any] = [*prompt]
    reply: list[Any] = [*answer]
    before = chat_text(messages, tokenizer, invites=True)
    whole = chat_text([*messages, *reply], tokenizer)
    written = whole.removeprefix(before)
    rest = _without_opening(text, before)
    known = len(text) - len(rest)
    if whole.startswith(before) and (rest in written or (keeps(written, rest) and not exact)):
        return before, written, written.find(rest) - known
    if before.rstrip().endswith(THINK) and not known:
        raise ValueError(
            f"the chat template ends the prompt with {THINK}, and the answer does not begin with "
            f"it: {text!r:.60}"
        )
    with_mark = [*messages, *reply[:-1], {**reply[-1], "content": MARK}]
    marked = chat_text(with_mark, tokenizer)
    if len(reply) != 1 or marked.count(MARK) != 1:
        raise ValueError(
            f"the chat template renders the conversation as {whole!r:.80}, which does not begin "
            f"with the prompt {before!r:.80}: the start of the answer is unknown"
        )
    return before, rest + marked.partition(MARK)[2], -known


def _without_opening(text: str, prompt: str) -> str:
    """An answer without the <think> that its prompt ends with, and the whitespace after both."""
    if not prompt.rstrip().endswith(THINK) or not text.lstrip().startswith(THINK):
        return text
    blank = prompt[len(prompt.rstrip()) :]
    return text.lstrip().removeprefix(THINK).removeprefix(blank)


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
