"""Inside verl: its reward loop scores a batch with `compute_score`, as in its trainer.

    python benchmarks/inside/of_verl.py ADAPTER

`RewardLoopManager` starts its workers as Ray actors under verl's own default configuration; they
load the file ADAPTER by its path, decode the responses with a tokenizer and score each, and the
manager gathers tensors and extra values. There is no policy and no training in it.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from answering import FORMULAS, model
from claims import Claims

RIGHT, WRONG, NONE = "<think> 1 + 1 </think> <answer>2</answer>", "<answer>1</answer>", "1 + 1"
NAMED = {"verifier": "think_format", "reference": {}}
ROOT = {"verifier": "math_answer", "reference": {"answer": "2\\sqrt{2}"}}  # by computer algebra
ROWS = (  # (response, ground truth, score, no_answer, error)
    (RIGHT, "2", 1.0, 0.0, 0.0),
    (WRONG, "2", 0.0, 0.0, 0.0),
    (NONE, "2", 0.0, 1.0, 0.0),
    (RIGHT, "twelve", 0.0, 0.0, 1.0),  # no number: ours to answer for
    (RIGHT, NAMED, 1.0, 0.0, 0.0),
    (FORMULAS[1], ROOT, 1.0, 0.0, 0.0),
    (FORMULAS[0], ROOT, 0.0, 0.0, 0.0),
    (RIGHT, {"verifier": "numbr", "reference": {}}, 0.0, 0.0, 1.0),
)


def configuration(folder: Path, adapter: str, verifier: str) -> Any:
    """verl's own defaults of rewards, with our function in it."""
    import verl
    from omegaconf import OmegaConf

    defaults = Path(verl.__file__).parent / "trainer/config/reward/reward.yaml"
    return OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(folder), "tokenizer_path": None}},
            "reward": OmegaConf.merge(
                OmegaConf.load(defaults),
                {
                    "num_workers": 2,
                    "custom_reward_function": {
                        "path": adapter, "name": "compute_score",
                        "reward_kwargs": {"verifier": verifier},
                    },
                },
            ),
        }
    )  # fmt: skip


def batch(tokenizer: Any, rows: Any) -> Any:
    """Prompts and responses in the format of rollouts, responses padded on the right."""
    import numpy
    import torch
    from verl import DataProto

    responses = [tokenizer(text, add_special_tokens=False).input_ids for text, *_ in rows]
    ids = [[*response, tokenizer.eos_token_id] for response in responses]
    longest = max(map(len, ids))
    padded = torch.full((len(ids), longest), tokenizer.pad_token_id)
    seen = torch.zeros(len(ids), longest, dtype=torch.int64)
    for n, response in enumerate(ids):
        padded[n, : len(response)] = torch.tensor(response)
        seen[n, : len(response)] = 1
    prompts = torch.full((len(ids), 3), tokenizer.bos_token_id)
    columns = {
        "data_source": ["sums"] * len(ids),
        "reward_model": [{"style": "rule", "ground_truth": truth} for _, truth, *_ in rows],
        "extra_info": [{"split": "train", "index": n} for n in range(len(ids))],
    }
    tensors = {
        "prompts": prompts, "responses": padded,
        "attention_mask": torch.cat([torch.ones_like(prompts), seen], dim=1),
    }  # fmt: skip
    return DataProto.from_dict(
        tensors=tensors, non_tensors={k: numpy.array(v, dtype=object) for k, v in columns.items()}
    )


def scored(folder: Path, adapter: str, verifier: str, rows: Any) -> Any:
    """The batch after verl's reward loop."""
    from transformers import AutoTokenizer
    from verl.experimental.reward_loop import RewardLoopManager

    manager = RewardLoopManager(configuration(folder, adapter, verifier))
    return manager.compute_rm_score(batch(AutoTokenizer.from_pretrained(folder), rows))


def claim(claims: Claims, scored: Any) -> None:
    from verl.trainer.ppo.reward import extract_reward

    rewards, extra = extract_reward(scored)
    claims.holds("rewards are ours", rewards.sum(1).tolist(), [row[2] for row in ROWS])
    last = [len(row[0].split()) for row in ROWS]  # where the end of the response stands
    nowhere = [n for n, at in enumerate(last) if rewards[n].sum() != rewards[n, at]]
    claims.holds("each lies on the last token of its response", nowhere, [])
    claims.holds("no answer is told apart", extra["no_answer"].tolist(), [r[3] for r in ROWS])
    claims.holds("a failure of ours is told apart", extra["error"].tolist(), [r[4] for r in ROWS])
    kinds = {key: values.dtype.kind for key, values in extra.items()}
    wanted = dict.fromkeys(("score", "no_answer", "timeout", "error"), "f")
    claims.holds("extra values are numbers under the same names everywhere", kinds, wanted)


def main(adapter: str) -> None:
    import ray

    claims = Claims(
        "RewardLoopManager.compute_rm_score", ("verl", "transformers", "ray", "tensordict")
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = model(Path(temporary))
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        claim(claims, scored(folder, adapter, "number", ROWS))
        ray.shutdown()
    claims.tell()


if __name__ == "__main__":
    main(sys.argv[1])
