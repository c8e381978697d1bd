"""GRPO in TRL with veriloop's verifiers as reward functions.

python examples/trl_grpo.py --model MODEL [--steps 2]
"""

import argparse
import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from veriloop.verifiers.adapters.trl import reward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder or name of a causal language model")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    rows = [{"prompt": f"What is {n} + {n}?", "solution": str(2 * n)} for n in range(1, 17)]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=options.steps,
            num_generations=4,
            per_device_train_batch_size=8,
            max_completion_length=16,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=options.model,
            # "solution" is the column with the reference of math_answer
            reward_funcs=[reward("math_answer"), reward("think_format")],
            args=config,
            train_dataset=Dataset.from_list(rows),
        )
        trainer.train()
        rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
        print(f"{len(rewards)} steps, mean rewards {rewards}")


if __name__ == "__main__":  # the verifiers judge in processes that import this file
    main()
