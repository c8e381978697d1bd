"""Problems to prompts to rollouts; token ids and log-probs are kept exactly as sampled."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from veriloop.data.bos import check_bos, writes_bos
from veriloop.data.chat import chat_text
from veriloop.data.problem import Problem
from veriloop.data.template import R1_ZERO
from veriloop.pipeline.config.user_code import prompt_template
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import eos_ids
from veriloop.pipeline.sampling.sampler import Completion, Sampler, Sampling
from veriloop.pipeline.types import Rollout


class RolloutGenerator:
    """Builds prompts from problems and Rollouts from the sampler's completions.

    Raises RecipeError for a model without a token that ends a response.
    """

    def __init__(
        self,
        tokenizer: Any,
        generation_config: Any,
        template: str = "r1_zero",
        system: str = "",
    ) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._system = system
        self.eos_ids = eos_ids(generation_config, tokenizer)
        if not self.eos_ids:
            raise RecipeError(
                "no token ends a response: neither generation_config.json nor the tokenizer of the "
                "checkpoint has an EOS token; set eos_token_id in generation_config.json"
            )

    def prompt(self, problem: Problem) -> tuple[int, ...]:
        return prompt_ids(problem, self.tokenizer, self._template, self._system)

    def prompt_text(self, problem: Problem) -> str:
        """The text of `prompt` without the BOS token, if the tokenizer writes it itself."""
        text = prompt_text(problem, self.tokenizer, self._template, self._system)
        bos = self.tokenizer.bos_token if writes_bos(self.tokenizer) else ""
        return text.removeprefix(bos)

    def rollouts(
        self,
        sampler: Sampler,
        questions: Sequence[tuple[str, Problem]],
        sampling: Sampling,
        on_group: Callable[[Sequence[Rollout]], object] | None = None,
    ) -> list[Rollout]:
        """`per_prompt` rollouts for each (group id, problem); those of a group are adjacent.

        `on_group` is called with each group as soon as it is complete.
        """
        prompts = [self.prompt(problem) for _, problem in questions]
        groups: dict[int, list[Rollout]] = {}

        def add(index: int, completions: Sequence[Completion]) -> None:
            group, problem = questions[index]
            groups[index] = self.group(
                group, problem, prompts[index], completions, sampling.temperature, sampler.version
            )
            if on_group is not None:
                on_group(groups[index])

        sampled = sampler.sample(prompts, sampling, add)
        for index, completions in zip(range(len(questions)), sampled, strict=True):
            if index not in groups:  # from an engine that does not report single groups
                add(index, completions)
        return [rollout for index in range(len(questions)) for rollout in groups[index]]

    def group(
        self,
        group: str,
        problem: Problem,
        prompt: tuple[int, ...],
        completions: Sequence[Completion],
        temperature: float,
        version: int,
    ) -> list[Rollout]:
        """The rollouts of a group, sampled by the weights of `version`."""
        judged = self.judged_problem(problem, prompt)
        return [
            Rollout(
                group=group,
                problem=judged,
                prompt_ids=prompt,
                response_ids=completion.ids,
                logp=completion.logp,
                response=response_text(completion.ids, self.tokenizer, self.eos_ids),
                finish=completion.finish,
                temperature=temperature,
                policy_version=version,
            )
            for completion in completions
        ]

    def judged_problem(self, problem: Problem, prompt: tuple[int, ...]) -> Problem:
        """The problem with the fact "prefilled_think" if its prompt ends in "<think>"."""
        if self._template == "r1_zero":
            return problem
        if not self.tokenizer.decode(list(prompt)).rstrip().endswith("<think>"):
            return problem
        return replace(problem, facts={**problem.facts, "prefilled_think": True})


def prompt_ids(
    problem: Problem, tokenizer: Any, template: str = "r1_zero", system: str = ""
) -> tuple[int, ...]:
    """The prompt's ids, beginning with exactly one BOS id if the tokenizer adds one.

    `template` is "r1_zero", "chat" or a Jinja file with the variables `prompt`, `system` and
    `bos_token`; a file writes its BOS token itself. A non-empty `system` is the chat's first
    message. Raises ValueError for a missing or doubled BOS id, and for a template that fails.
    """
    text = prompt_text(problem, tokenizer, template, system)
    ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
    check_bos(ids[:2], tokenizer)  # a question may quote the BOS token
    return ids


def prompt_text(problem: Problem, tokenizer: Any, template: str, system: str) -> str:
    """The text of `prompt_ids`, with its BOS token."""
    if template == "chat":
        return _chat(problem.prompt, tokenizer, system)
    if template != "r1_zero":
        return _rendered(template, problem.prompt, tokenizer, system)
    text = R1_ZERO.format(prompt=problem.prompt)
    return tokenizer.bos_token + text if writes_bos(tokenizer) else text


def _chat(question: str, tokenizer: Any, system: str) -> str:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    try:
        text = chat_text(messages, tokenizer, invites=True)
    except ValueError as refusal:
        raise RecipeError(str(refusal)) from refusal
    if system.strip() not in text:
        raise RecipeError("the chat template leaves the system message out; set system to ''")
    return text


def _rendered(path: str, question: str, tokenizer: Any, system: str) -> str:
    bos = tokenizer.bos_token if writes_bos(tokenizer) else ""
    try:
        return prompt_template(path).render(prompt=question, system=system, bos_token=bos)
    except Exception as failure:  # a template is code of the user
        raise RecipeError(f"template {path!r}: {failure}") from failure


def response_text(ids: tuple[int, ...], tokenizer: Any, eos_ids: tuple[int, ...]) -> str:
    """The decoded response, special tokens included, without the final end-of-sequence token."""
    if ids and ids[-1] in eos_ids:
        ids = ids[:-1]
    return tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
