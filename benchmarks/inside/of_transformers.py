"""Inside transformers: a checkpoint of ours is loaded, prompted and continued without our code.

    python benchmarks/inside/of_transformers.py CHECKPOINT EXPECTED

EXPECTED holds messages and, from our own prompts and torch sampler, their ids and greedy answers.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from claims import Claims

PACKAGE = "veriloop"


def hide_veriloop() -> None:
    """Remove an editable installation: an import finder or an entry of the path."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if "__editable__" not in finder.__module__
    ]
    sys.path[:] = [entry for entry in sys.path if not (Path(entry) / PACKAGE).is_dir()]


def answers(checkpoint: str, rows: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Prompt ids by the saved chat template, and the ids that `generate` adds to our prompts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    prompts, added = [], []
    for row in rows:
        ids = tokenizer.apply_chat_template(row["messages"], add_generation_prompt=True)
        prompts.append(list(ids["input_ids"]))
        prompt = torch.tensor([row["prompt"]])
        generated = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
            max_new_tokens=row["max_tokens"],
        )  # fmt: skip
        added.append(generated[0, prompt.shape[1] :].tolist())
    return prompts, added


def main(checkpoint: str, expected: str) -> None:
    hide_veriloop()
    claims = Claims(
        "AutoModelForCausalLM, AutoTokenizer, generate", ("transformers", "tokenizers", "torch")
    )
    claims.holds("none of our code can be imported", find_spec(PACKAGE), None)
    with open(expected) as file:
        rows = json.load(file)
    prompts, added = answers(checkpoint, rows)
    claims.holds("the chat template gives our prompts", prompts, [row["prompt"] for row in rows])
    claims.holds("greedy answers are ours, ended alike", added, [row["answer"] for row in rows])
    claims.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
