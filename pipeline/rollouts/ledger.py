"""The rollouts that are being sampled for later turns: which are begun when, how far, and by whom.

With `rollout.ahead: S` the answers of a turn are begun S turns before it. So all tokens that turn t
learns from were sampled by weights of turn t - S or later: no more groups are begun than
(v + S + 1) turns need at weights that v turns have updated, the rule of AReaL (arXiv 2505.24298,
section 5.1), and they are learned in the order in which they were begun. Every group is learned
once. None is dropped for its age, which would favour short answers: answers are sampled in S parts,
one beside each update, and the last part completes them. The parts are equal for an answer as long
as the longest of the turn that ended before its own was begun.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from veriloop.pipeline.rollouts.columns import concatenated, split
from veriloop.pipeline.sampling.sampler import Completion

COLUMNS = {"ids": torch.int32, "logp": torch.float64, "versions": torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenResponse:
    """A response so far."""

    ids: tuple[int, ...] = ()
    logp: tuple[float, ...] = ()  # nats, one per id, under the weights that sampled it
    versions: tuple[int, ...] = ()  # optimizer steps of these weights, one per id
    finish: Literal["stop", "length"] | None = None  # None: it is sampled on

    def after(self, whole: Completion, version: int, max_tokens: int) -> "OpenResponse":
        """The response with the tokens that the weights of `version` added to it."""
        added = len(whole.ids) - len(self.ids)
        return OpenResponse(
            ids=whole.ids,
            logp=whole.logp,
            versions=(*self.versions, *[version] * added),
            finish=whole.finish if whole.finish == "stop" or len(whole.ids) == max_tokens else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """The responses of a turn that has not been learned from, group after group."""

    step: int
    responses: tuple[OpenResponse, ...]
    expected: int  # tokens of its longest response, for equal parts
    prompts: tuple[str, ...] = ()  # a digest of each group's prompt, once the engine has read it


def admitted(
    open_turns: Sequence[OpenTurn],
    step: int,
    *,
    ahead: int,
    steps: int,
    responses: int,
    expected: int,
) -> list[OpenTurn]:
    """The turns to sample beside the update before turn `step`, in order, with those that begin.

    `steps` is the number of turns of the run, `responses` that of a turn, `expected` the tokens of
    the longest response in those that begin. Raises ValueError unless the first open turn is `step`
    and none is further ahead than the bound allows.
    """
    last = min(step + ahead, steps)  # the first that is not begun
    known = [turn.step for turn in open_turns]
    if known != list(range(step, min(step + len(known), last))):
        raise ValueError(f"turns {known} are open before turn {step}, with rollout.ahead={ahead}")
    new = range(step + len(known), last)
    empty = (OpenResponse(),) * responses
    return [*open_turns, *(OpenTurn(step=n, responses=empty, expected=expected) for n in new)]


def pause_at(tokens: int, parts: int, expected: int, max_tokens: int) -> int:
    """Tokens at which a response of `tokens` pauses, if it is sampled in so many more parts."""
    if parts == 1:
        return max_tokens
    end = expected if tokens < expected else max_tokens
    return tokens + -(-(end - tokens) // parts)


def digest(prompt: Sequence[int]) -> str:
    """What tells a prompt from others, by its ids."""
    return hashlib.sha256(json.dumps([*prompt]).encode()).hexdigest()[:16]


def longest(turn: OpenTurn) -> int:
    """Tokens of the longest response."""
    return max(len(response.ids) for response in turn.responses)


def pack(turns: Sequence[OpenTurn]) -> dict[str, Any]:
    """The turns as tensors and strings; `unpack` restores them to the bit."""
    responses = [response for turn in turns for response in turn.responses]
    columns = {
        name: concatenated([getattr(response, name) for response in responses], dtype)
        for name, dtype in COLUMNS.items()
    }
    sizes = [(turn.step, len(turn.responses), turn.expected, turn.prompts) for turn in turns]
    finish = [response.finish for response in responses]
    return {"tensors": columns, "turns": json.dumps(sizes), "finish": json.dumps(finish)}


def unpack(state: Mapping[str, Any]) -> tuple[OpenTurn, ...]:
    """Inverse of `pack`."""
    columns = zip(*(split(*state["tensors"][name]) for name in COLUMNS), strict=True)
    responses = (
        OpenResponse(**dict(zip(COLUMNS, values, strict=True)), finish=finish)
        for values, finish in zip(columns, json.loads(state["finish"]), strict=True)
    )
    return tuple(
        OpenTurn(
            step=step,
            responses=tuple(next(responses) for _ in range(count)),
            expected=expected,
            prompts=tuple(*prompts),  # of earlier versions there are none
        )
        for step, count, expected, *prompts in json.loads(state["turns"])
    )
