"""Problems to rollouts: ask the sampler and write down exactly what came back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from data.problem import Problem
from pipeline.policy import eos_ids
from pipeline.prompt import Template, prompt_ids, response_text
from pipeline.records import Rollout
from pipeline.sampling.sampler import Completion, Sampler, Sampling


class Scribe:
    """Knows the tokenizer, the template and the ids that end a response."""

    def __init__(
        self,
        tokenizer: Any,
        generation_config: Any,
        template: Template = "r1_zero",
        system: str = "",
    ) -> None:
        self.tokenizer = tokenizer
        self._template: Template = template
        self._system = system
        self._ends = eos_ids(generation_config, tokenizer)

    def prompt(self, problem: Problem) -> tuple[int, ...]:
        return prompt_ids(problem, self.tokenizer, self._template, self._system)

    def rollouts(
        self,
        sampler: Sampler,
        asked: Sequence[tuple[str, Problem]],
        sampling: Sampling,
        take: Callable[[Sequence[Rollout]], None] | None = None,
    ) -> list[Rollout]:
        """`per_prompt` rollouts for each (group id, problem), those of one group together.

        `take` is given each group as soon as it is complete.
        """
        prompts = [self.prompt(problem) for _, problem in asked]
        made: dict[int, list[Rollout]] = {}

        def told(place: int, choices: Sequence[Completion]) -> None:
            made[place] = self._group(*asked[place], prompts[place], choices, sampling, sampler)
            if take is not None:
                take(made[place])

        groups = sampler.sample(prompts, sampling, told)
        for place, choices in zip(range(len(asked)), groups, strict=True):
            if place not in made:  # by an engine that tells of nothing before its end
                told(place, choices)
        return [rollout for place in range(len(asked)) for rollout in made[place]]

    def _group(
        self,
        group: str,
        problem: Problem,
        prompt: tuple[int, ...],
        choices: Sequence[Completion],
        sampling: Sampling,
        sampler: Sampler,
    ) -> list[Rollout]:
        return [
            Rollout(
                group=group,
                problem=self.begun(problem, prompt),
                prompt_ids=prompt,
                response_ids=completion.ids,
                logp=completion.logp,
                response=response_text(completion.ids, self.tokenizer, self._ends),
                finish=completion.finish,
                temperature=sampling.temperature,
                policy_version=sampler.version,
            )
            for completion in choices
        ]

    def begun(self, problem: Problem, prompt: tuple[int, ...]) -> Problem:
        """The problem as it is judged: where the chat template has opened the thinking in its
        prompt, it says so."""
        if self._template != "chat":
            return problem
        if not self.tokenizer.decode(list(prompt[-8:])).rstrip().endswith("<think>"):
            return problem
        return replace(problem, facts={**problem.facts, "prefilled_think": True})
