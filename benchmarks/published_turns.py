"""One contender of `published_trl.py`: takes a GRPO step on sums for each input line.

    python benchmarks/published_turns.py ours|trl FOLDER SETTINGS

FOLDER is a checkpoint with questions.json beside its weights: prompts in the model's template, each
with its answer. Both sides have the same questions in the same order, and rewards, rate,
temperature and loss of `recipes/real/smollm2/reasoning_rl.yaml`, with one optimizer step each. See
`grpo_turns.py` for the lines.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp
from typing import Any

from grpo_turns import UNATTENDED, reply, wait_for_turn, waiting

RECIPE = "real/smollm2/reasoning_rl"
PROMPTS, GROUP, MAX_TOKENS, STEPS = 16, 8, 64, 1_000_000
RATE, WARM_UP, TEMPERATURE = 3e-5, 3, 1.5
TAGGED = re.compile(r"<think>.*</think>\s*<answer>.*\S.*</answer>\s*", re.S)
ANSWER = re.compile(r"<answer>\s*(-?\d+)\s*</answer>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORMAT = 0.2  # reward of the tags
PARTS = ("sample", "verify", "update", "sync")
SETTINGS: Mapping[str, Any] = {  # of ours
    "problems": {"chain_sum": 1.0},
    "steps": STEPS,
    "rollout.prompts": PROMPTS,
    "rollout.per_prompt": GROUP,
    "rollout.max_tokens": MAX_TOKENS,
    "rollout.temperature": TEMPERATURE,
    "algorithm.minibatches": 1,
    "algorithm.aggregation": "constant",
    "algorithm.kl_coefficient": 0.0,
    "optimizer.learning_rate": RATE,
    "optimizer.warmup_steps": WARM_UP,
    "optimizer.betas": [0.9, 0.999],  # TRL's
    "evaluation.sources": ["chain_sum"],
    "trainer.compute": "bfloat16",
    "sampler.max_batch": PROMPTS * GROUP,
    "tensorboard": False,
}


def worth(text: str, answer: str) -> tuple[float, float]:
    """(accuracy, format) of a response, as the recipe's verifiers judge sums of whole numbers."""
    tagged = TAGGED.fullmatch(text) is not None and all(text.count(tag) == 1 for tag in TAGS)
    answers = ANSWER.findall(text)
    return float(answers[-1:] == [answer]), float(tagged)


def ours(folder: Path, settings: Mapping[str, Any]) -> None:
    """The loop of reasoning RL, one turn at a time."""
    import publish  # noqa: F401  puts this checkout on the path

    from veriloop.pipeline.config.load import read_values, validate, with_flags
    from veriloop.pipeline.runs.record import read_metrics
    from veriloop.stages import reasoning_rl, rl

    values = with_flags(read_values(RECIPE), {**SETTINGS, "start": str(folder), **settings})
    recipe: Any = validate(values, RECIPE)
    directory = Path(mkdtemp(dir=folder.parent))
    task = reasoning_rl.task(recipe, rl.open_sources(recipe, folder, directory))
    with ExitStack() as stack:
        loop = rl.open_loop(stack, recipe, task, directory, folder, None)
        loop.begin()
        while True:
            began = wait_for_turn()
            loop.turn()
            row = read_metrics(loop.deps.record.metrics_path)[-1]
            parts = {name: row.get(f"time/{name}", 0.0) for name in PARTS}
            tokens = round(row["completions/mean_length"] * PROMPTS * GROUP)
            accuracy = row["rewards/accuracy/mean"]
            reply(began, tokens, paid=row["reward"], accuracy=accuracy, **parts)


def trl(folder: Path, settings: Mapping[str, Any]) -> None:
    """`GRPOTrainer`; its callbacks wait for the parent before each step."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    asked = json.loads((folder / "questions.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = dict(settings)
    micro_batch = settings.pop("micro_batch", PROMPTS * GROUP)
    totals = dict[str, float]()

    def paid(
        completions: Sequence[str], answer: Sequence[str], completion_ids: Any = None, **_: Any
    ) -> list[float]:
        judged = [worth(text, gold) for text, gold in zip(completions, answer, strict=True)]
        rewards = [accuracy + FORMAT * tagged for accuracy, tagged in judged]
        totals.update(
            tokens=sum(map(len, completion_ids)),
            paid=fmean(rewards),
            accuracy=fmean(accuracy for accuracy, _ in judged),
        )
        return rewards

    config = GRPOConfig(
        output_dir=mkdtemp(dir=folder.parent),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=PROMPTS * GROUP // micro_batch,
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS,
        learning_rate=RATE,
        warmup_steps=WARM_UP,
        lr_scheduler_type="constant_with_warmup",
        temperature=TEMPERATURE,
        loss_type="dr_grpo",  # divides by the tokens that all answers could have
        beta=0.0,
        max_steps=STEPS,
        shuffle_dataset=False,
        **UNATTENDED,
        **settings,
    )
    GRPOTrainer(
        model=str(folder),
        reward_funcs=paid,
        args=config,
        train_dataset=Dataset.from_list(asked),
        processing_class=tokenizer,
        callbacks=[waiting(totals)],
    ).train()


if __name__ == "__main__":
    {"ours": ours, "trl": trl}[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
