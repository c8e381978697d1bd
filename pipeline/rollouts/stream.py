"""Sampling several turns ahead: answers are continued under the weights of each update.

The weights change between two calls, and the new ones read an answer's tokens before they continue
it: each token's log-prob is that of the weights that sampled it. All answers that are open are
sampled in one call of the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from veriloop.data.problem import Problem
from veriloop.pipeline.rollouts.collect import CollectedStep, RolloutCollector
from veriloop.pipeline.rollouts.ledger import (
    OpenResponse,
    OpenTurn,
    admitted,
    digest,
    longest,
    pause_at,
)
from veriloop.pipeline.runs.console import say
from veriloop.pipeline.sampling.sampler import Completion, Unfinished
from veriloop.pipeline.training.measurements import Clock
from veriloop.pipeline.types import Rollout

OnGroup = Callable[[Sequence[Rollout]], object]


class RolloutStream:
    """Collects turns as `collector` does, and begins those up to `ahead` turns later on the way."""

    def __init__(self, collector: RolloutCollector, ahead: int) -> None:
        self._collector, self._ahead = collector, ahead
        self.open: tuple[OpenTurn, ...] = ()  # the turns after the one collected last

    @property
    def next_question(self) -> int:
        return self._collector.next_question

    def __call__(self, step: int, random: Random, clock: Clock) -> CollectedStep:
        """The rollouts of turn `step`, which end now; those of later turns are sampled on."""
        # without an ended turn any length is possible
        turns = self._admitted(self.open, step, self._collector.recipe.rollout.max_tokens)

        def sample(on_group: OnGroup) -> list[Rollout]:
            part = _Part(self._collector, turns, on_group)
            ended, *later = part.sampled()
            self.open = tuple(self._admitted(later, step + 1, longest(ended)))
            return part.rollouts()

        return self._collector(step, random, clock, sample)

    def _admitted(self, turns: Sequence[OpenTurn], step: int, expected: int) -> list[OpenTurn]:
        recipe = self._collector.recipe
        return admitted(
            turns,
            step,
            ahead=self._ahead,
            steps=recipe.steps,
            responses=recipe.rollout.prompts * recipe.rollout.per_prompt,
            expected=expected,
        )


class _Part:
    """One call of the engine for the open responses of several turns, the first of which ends."""

    def __init__(
        self, collector: RolloutCollector, turns: Sequence[OpenTurn], on_group: OnGroup
    ) -> None:
        self._collector, self._on_group = collector, on_group
        self._questions = [
            collector.questions(turn.step, skipped=later) for later, turn in enumerate(turns)
        ]
        generator = collector.generator
        self._prompts = [[generator.prompt(p) for _, p in asked] for asked in self._questions]
        digests = [tuple(map(digest, prompts)) for prompts in self._prompts]
        self._responses = [*map(self._begun, turns, digests)]
        self._turns = [replace(t, prompts=d) for t, d in zip(turns, digests, strict=True)]
        self._groups: dict[int, list[Rollout]] = {}  # of the first turn

    def _begun(self, turn: OpenTurn, digests: Sequence[str]) -> list[OpenResponse]:
        """The responses of a turn so far. A resumed run may have other data or another template:
        responses to a prompt that is another one now begin anew."""
        count = self._collector.recipe.rollout.per_prompt
        responses = list(turn.responses)
        pairs = zip(turn.prompts, digests, strict=False)  # of a turn that begins here there is none
        changed = [group for group, (before, now) in enumerate(pairs) if before != now]
        for group in changed:
            responses[group * count : (group + 1) * count] = [OpenResponse()] * count
        if changed:
            say(
                f"step {turn.step + 1}: {len(changed)} of {len(digests)} prompts have changed "
                "since their responses were begun; these begin anew"
            )
        return responses

    def sampled(self) -> list[OpenTurn]:
        """Continue the responses; returns the turns, of which the first is complete."""
        collector, rollout = self._collector, self._collector.recipe.rollout
        places = [
            (turn, index)
            for turn, responses in enumerate(self._responses)
            for index, response in enumerate(responses)
            if response.finish is None
        ]
        unfinished = [self._unfinished(*place) for place in places]
        self._end_groups(range(rollout.prompts))

        def on_continued(number: int, whole: Completion) -> None:
            turn, index = places[number]
            response = self._responses[turn][index]
            version = collector.sampler.version
            self._responses[turn][index] = response.after(whole, version, rollout.max_tokens)
            if not turn:
                self._end_groups([index // rollout.per_prompt])

        sampling = collector.sampling(self._turns[0].step)
        collector.sampler.extend(unfinished, sampling, on_continued)
        both = zip(self._turns, self._responses, strict=True)
        return [replace(turn, responses=tuple(responses)) for turn, responses in both]

    def rollouts(self) -> list[Rollout]:
        """The rollouts of the first turn; those of a group are adjacent."""
        groups = range(self._collector.recipe.rollout.prompts)
        return [rollout for group in groups for rollout in self._groups[group]]

    def _unfinished(self, turn: int, index: int) -> Unfinished:
        rollout, response = self._collector.recipe.rollout, self._responses[turn][index]
        return Unfinished(
            prompt=self._prompts[turn][index // rollout.per_prompt],
            ids=response.ids,
            logp=response.logp,
            until=pause_at(
                len(response.ids), turn + 1, self._turns[turn].expected, rollout.max_tokens
            ),
        )

    def _end_groups(self, groups: Sequence[int]) -> None:
        """Report those of these groups of the first turn that are complete."""
        count = self._collector.recipe.rollout.per_prompt
        for group in groups:
            responses = self._responses[0][group * count : (group + 1) * count]
            if all(response.finish is not None for response in responses):
                self._groups[group] = self._group(group, responses)
                self._on_group(self._groups[group])

    def _group(self, group: int, responses: Sequence[OpenResponse]) -> list[Rollout]:
        name, problem = self._questions[0][group]
        return _rollouts(self._collector, name, problem, self._prompts[0][group], responses)


def _rollouts(
    collector: RolloutCollector,
    group: str,
    problem: Problem,
    prompt: tuple[int, ...],
    responses: Sequence[OpenResponse],
) -> list[Rollout]:
    completions = [
        Completion(ids=r.ids, logp=r.logp, finish=r.finish or "length") for r in responses
    ]
    temperature = collector.recipe.rollout.temperature
    rollouts = collector.generator.group(group, problem, prompt, completions, temperature, 0)
    return [
        replace(
            rollout,
            policy_version=response.versions[0],
            versions=response.versions if len(set(response.versions)) > 1 else None,
        )
        for rollout, response in zip(rollouts, responses, strict=True)
    ]
