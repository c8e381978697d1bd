"""Requests to vLLM servers, one for each response, and the end of a response at a stop string."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from veriloop.pipeline.model.policy import eos_ids, load_generation_config, load_tokenizer
from veriloop.pipeline.sampling.sampler import Completion, Sampling, require_room


class ServedRequests:
    """Those for the model of a checkpoint."""

    def __init__(self, checkpoint: str, max_length: int) -> None:
        """`max_length` counts prompt and response tokens."""
        self._max_length = max_length
        self._tokenizer = load_tokenizer(checkpoint)
        self._stop_ids = list(eos_ids(load_generation_config(checkpoint), self._tokenizer))

    def of_prompts(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, label: str
    ) -> Iterator[dict[str, Any]]:
        """The requests of each prompt's responses, prompt by prompt, each with a seed of its own;
        made as they are taken.

        Raises RecipeError for a prompt that leaves no room for `max_tokens`.
        """
        require_room(prompts, sampling.max_tokens, self._max_length)
        numbered = enumerate(prompt for prompt in prompts for _ in range(sampling.per_prompt))
        return (self.of_response(prompt, sampling, number, label) for number, prompt in numbered)

    def of_response(
        self, ids: Sequence[int], sampling: Sampling, number: int, label: str
    ) -> dict[str, Any]:
        """The request for response `number` of a call. `label`: of the weights that have to
        answer."""
        seed = sampling.seed_of(number)
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop_token_ids": self._stop_ids,
            "logprobs": 0,  # of the sampled token only
            "detokenize": False,
            "skip_special_tokens": False,
        }
        return {
            "request_id": f"{label}-{seed}",
            "token_ids": list(ids),
            "sampling_params": {**parameters, "seed": seed if sampling.temperature > 0 else None},
        }

    def cut(self, completion: Completion, stop: Sequence[str]) -> Completion:
        """The completion up to the token that completes a stop string.

        The servers have no tokenizer and write on. What precedes is as if they had stopped.
        """
        if not stop:
            return completion

        def stopped(count: int) -> bool:
            text = self._tokenizer.decode(completion.ids[:count], skip_special_tokens=False)
            return any(string in text for string in stop)

        count = 1 + bisect_left(range(1, len(completion.ids)), True, key=stopped)
        if not completion.ids or not stopped(count):
            return completion
        return Completion(ids=completion.ids[:count], logp=completion.logp[:count], finish="stop")
