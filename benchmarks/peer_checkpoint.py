"""A checkpoint written by a stage, and the greedy answers of our own code to it."""

import json
from pathlib import Path

from peer_homes import EXPECTED
from tiny_runs import run

from veriloop.data import arithmetic
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.torch_engine import TorchSampler

QUESTIONS, MAX_TOKENS = 16, 14  # some answers are longer


def checkpoint_of_a_run(folder: Path) -> Path:
    """The checkpoint of two steps of RL on the tiny base, with the expected outputs."""
    folder.mkdir()
    outputs = run(folder, "zero", (), 0, lambda ended: ended.stage["outputs"], quick=True)
    checkpoint = Path(outputs["checkpoint"])
    expect(checkpoint)
    return checkpoint


def expect(checkpoint: Path, max_tokens: int = MAX_TOKENS) -> None:
    """Write messages, the ids of our chat prompts, and the torch sampler's greedy answers."""
    scribe = RolloutGenerator(
        load_tokenizer(checkpoint), load_generation_config(checkpoint), "chat"
    )
    problems = [arithmetic.problem("rl", 0, index) for index in range(QUESTIONS)]
    prompts = [scribe.prompt(problem) for problem in problems]
    sampler = TorchSampler(str(checkpoint))
    greedy = Sampling(per_prompt=1, temperature=0.0, max_tokens=max_tokens, seed=0)
    rows = [
        {
            "messages": [{"role": "user", "content": problem.prompt}],
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "answer": list(answer.ids),
            "finish": answer.finish,
        }
        for problem, prompt, (answer,) in zip(
            problems, prompts, sampler.sample(prompts, greedy), strict=True
        )
    ]
    (checkpoint / EXPECTED).write_text(json.dumps(rows))
