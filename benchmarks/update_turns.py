"""One contender of `grpo_memory.py`: takes a GRPO update for each line on standard input.

    python benchmarks/update_turns.py ours|trl MODEL SETTINGS

The answers are random ids with random rewards and nothing is sampled, so that the memory is that of
the update; the setting `vocabulary` bounds the ids. Answers each line with one line of JSON:
seconds, answer tokens, the peak resident memory of this process, and that before the first update.
"""

import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from grpo_turns import STEPS, UNATTENDED, peak_gib, reply, wait_for_turn

ANSWERS, GROUP, PROMPT, ANSWER = 16, 8, 16, 512  # the last two in tokens
FIRST_ID = 16  # ids before it are special


def ours(model: Path, settings: Mapping[str, Any]) -> None:
    """Rows, advantages, both passes and the optimizer, as in the RL loop."""
    import torch
    from grpo_steps import answers, stepper

    from veriloop.pipeline.config.sections import TrainerConfig
    from veriloop.pipeline.model.policy import load_policy

    torch.set_num_threads(1)
    settings = dict(settings)
    graded = answers(ANSWERS, PROMPT, ANSWER, settings.pop("vocabulary"))
    step = stepper(load_policy(model), graded, TrainerConfig(**settings))
    loaded = peak_gib()
    while True:
        began = wait_for_turn()
        step()
        reply(began, ANSWERS * ANSWER, loaded_gib=loaded)


def trl(model: Path, settings: Mapping[str, Any]) -> None:
    """`GRPOTrainer`, its answers by a `rollout_func`; `at_once` in the settings is the answers of a
    micro-batch."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    warnings.simplefilter("ignore")
    settings, random = dict(settings), Random(0)
    at_once, vocabulary = settings.pop("at_once"), settings.pop("vocabulary")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token

    def ids(count: int) -> list[int]:
        return [random.randrange(FIRST_ID, vocabulary) for _ in range(count)]

    def given(prompts: list[str], _: Any) -> dict[str, Any]:
        groups = [ids(PROMPT) for _ in range(len(prompts) // GROUP)]
        return {
            "prompt_ids": [group for group in groups for _ in range(GROUP)],
            "completion_ids": [ids(ANSWER) for _ in prompts],
            "logprobs": None,
        }

    class Waiting(TrainerCallback):
        began = (0.0, 0.0)
        loaded = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.loaded = self.loaded or peak_gib()
            self.began = wait_for_turn()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            reply(self.began, ANSWERS * ANSWER, loaded_gib=self.loaded)

    config = GRPOConfig(
        output_dir=str(model / "trl"),
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=ANSWERS // at_once,
        num_generations=GROUP,
        max_completion_length=ANSWER,
        learning_rate=1e-6,
        max_steps=STEPS,
        **UNATTENDED,
        **settings,
    )
    GRPOTrainer(
        model=str(model),
        reward_funcs=lambda completions, **_: [random.random() for _ in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["?"] * 64}),
        processing_class=tokenizer,
        callbacks=[Waiting()],
        rollout_func=given,
    ).train()


if __name__ == "__main__":
    {"ours": ours, "trl": trl}[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
