"""Inside transformers alone: a checkpoint of ours is loaded, asked and continued without our code.

    python benchmarks/inside/of_transformers.py CHECKPOINT EXPECTED

EXPECTED holds messages and, from our own prompts and torch sampler, their ids and greedy answers.
"""

import json
import sys
from importlib.util import find_spec
from typing import Any

from claims import Claims

OURS = ("data", "sandbox", "verifiers", "pipeline", "stages")


def forget_ours() -> None:
    """Where the project is installed in place, a finder brings it; from here on it does not."""
    sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in one.__module__]


def answers(checkpoint: str, rows: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Prompt ids by the saved chat template, and what `generate` adds to ours."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spelling = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    asked, added = [], []
    for row in rows:
        ids = spelling.apply_chat_template(row["messages"], add_generation_prompt=True)
        asked.append(list(ids["input_ids"]))
        prompt = torch.tensor([row["prompt"]])
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
            max_new_tokens=row["max_tokens"],
        )  # fmt: skip
        added.append(made[0, prompt.shape[1] :].tolist())
    return asked, added


def main(checkpoint: str, expected: str) -> None:
    forget_ours()
    claims = Claims(
        "AutoModelForCausalLM, AutoTokenizer, generate", ("transformers", "tokenizers", "torch")
    )
    claims.holds("none of our code can be imported", [n for n in OURS if find_spec(n)], [])
    with open(expected) as file:
        rows = json.load(file)
    asked, added = answers(checkpoint, rows)
    claims.holds("the chat template gives our prompts", asked, [row["prompt"] for row in rows])
    claims.holds("greedy answers are ours, ended alike", added, [row["answer"] for row in rows])
    claims.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
