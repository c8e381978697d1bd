"""Prompts and answers as token ids: tokenised apart, laid end to end, one BOS and one EOS each.

Tokenising the joined text could merge the end of a prompt with the beginning of its answer, and
then no id would say where the answer begins.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from data.columns import Text, content
from data.preferences import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """One answer after its prompt."""

    prompt: tuple[int, ...]  # beginning with the BOS id, where the tokenizer has one
    completion: tuple[int, ...]  # with one end-of-sequence id, its last, unless it was cut off
    segments: tuple[int, ...]  # by completion token: the segment it belongs to, from 0


def encode(
    prompt: Text,
    answer: Text,
    tokenizer: Any,
    ends: Sequence[int],
    segments: Sequence[Segment] = (),
) -> Ids:
    """Ids of an answer. `ends` are the ids that end one; the tokenizer's own is added when none is
    there. A token belongs to the segment that it begins in, the EOS to the last one.

    Raises ValueError for a chat template that does not begin with the prompt, for a BOS that is
    missing or not alone, and for an EOS inside the answer.
    """
    prompt_text, answer_text = _laid_out(prompt, answer, tokenizer)
    prompt_ids = begun(tuple(tokenizer(prompt_text, add_special_tokens=False).input_ids), tokenizer)
    encoded = tokenizer(answer_text, add_special_tokens=False, return_offsets_mapping=True)
    ids = ended(tuple(encoded.input_ids), tokenizer, ends)
    check_bos((*prompt_ids, *ids), tokenizer)
    start = answer_text.find(content(answer))
    starts = [first - start for first, _ in encoded.offset_mapping]
    return Ids(prompt=prompt_ids, completion=ids, segments=_belonging(starts, len(ids), segments))


def _laid_out(prompt: Text, answer: Text, tokenizer: Any) -> tuple[str, str]:
    """Both as text; messages by the model's own chat template."""
    if isinstance(prompt, str) and isinstance(answer, str):
        return prompt, answer
    if not tokenizer.chat_template:
        raise ValueError("the rows hold messages, and this tokenizer has no chat template")
    asked, said = [dict(m) for m in prompt], [dict(m) for m in answer]  # type: ignore[arg-type]
    before = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([*asked, *said], tokenize=False)
    if not whole.startswith(before):
        raise ValueError(
            f"the chat template lays the conversation out as {whole!r:.80}, which does not begin "
            f"with the prompt {before!r:.80}: what the answer begins with cannot be told"
        )
    return before, whole[len(before) :]


def ended(ids: tuple[int, ...], tokenizer: Any, ends: Sequence[int]) -> tuple[int, ...]:
    """`ids` up to their one end, added where it is missing; what a template writes after it is
    only layout. Raises ValueError for an end inside the answer."""
    found = [place for place, i in enumerate(ids) if i in ends]
    if not found:
        return (*ids, tokenizer.eos_token_id)
    if len(found) > 1 or tokenizer.decode(list(ids[found[0] + 1 :])).strip():
        raise ValueError(f"the answer has an end-of-sequence id ({ids[found[0]]}) inside it")
    return ids[: found[0] + 1]


def begun(ids: tuple[int, ...], tokenizer: Any) -> tuple[int, ...]:
    """`ids` with the BOS id before them, where the tokenizer writes one and it is not there."""
    bos = tokenizer.bos_token_id
    return (bos, *ids) if _writes_bos(tokenizer) and ids[:1] != (bos,) else ids


def check_bos(ids: Sequence[int], tokenizer: Any) -> None:
    """Raise ValueError for a BOS id anywhere but once at the beginning."""
    bos, wanted = tokenizer.bos_token_id, int(_writes_bos(tokenizer))
    found = sum(1 for i in ids if i == bos) if bos is not None else 0
    if found != wanted and not (found == 1 and ids[0] == bos):
        raise ValueError(
            f"prompt and answer hold {found} BOS ids ({bos}), allowed {wanted}, at the beginning"
        )


def _writes_bos(tokenizer: Any) -> bool:
    bos = tokenizer.bos_token_id
    return bos is not None and list(tokenizer("a").input_ids[:1]) == [bos]


def _belonging(starts: Sequence[int], count: int, segments: Sequence[Segment]) -> tuple[int, ...]:
    if not segments:
        return (0,) * count
    edges = list(accumulate(len(s.text) for s in segments[:-1]))
    found = [bisect_right(edges, max(start, 0)) for start in starts[:count]]
    return (*found, *[len(segments) - 1] * (count - len(found)))
