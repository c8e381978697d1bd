"""Problems to rollouts: ask the sampler and write down exactly what came back."""

from collections.abc import Sequence
from typing import Any

from data.problem import Problem
from pipeline.policy import eos_ids
from pipeline.prompt import prompt_ids, response_text
from pipeline.records import Rollout
from pipeline.sampling.sampler import Sampler, Sampling


class Scribe:
    """Knows the tokenizer, the template and the ids that end a response."""

    def __init__(self, tokenizer: Any, generation_config: Any) -> None:
        self.tokenizer = tokenizer
        self._ends = eos_ids(generation_config, tokenizer)

    def prompt(self, problem: Problem) -> tuple[int, ...]:
        return prompt_ids(problem, self.tokenizer)

    def rollouts(
        self, sampler: Sampler, asked: Sequence[tuple[str, Problem]], sampling: Sampling
    ) -> list[Rollout]:
        """`per_prompt` rollouts for each (group id, problem), those of one group together."""
        prompts = [self.prompt(problem) for _, problem in asked]
        completions = sampler.sample(prompts, sampling)
        return [
            Rollout(
                group=group,
                problem=problem,
                prompt_ids=prompt,
                response_ids=completion.ids,
                logp=completion.logp,
                response=response_text(completion.ids, self.tokenizer, self._ends),
                finish=completion.finish,
                temperature=sampling.temperature,
                policy_version=sampler.version,
            )
            for (group, problem), prompt, choices in zip(asked, prompts, completions, strict=True)
            for completion in choices
        ]
