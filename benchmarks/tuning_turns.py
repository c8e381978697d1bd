"""One contender of `tuning_speed.py`: takes an SFT or a DPO step for each line on standard input.

    python benchmarks/tuning_turns.py ours_sft|ours_dpo|trl_sft|trl_dpo MODEL SETTINGS

Every contender trains on the same token ids at every step; the first quarter of a sequence is a
prompt. The reference of DPO is the model in MODEL/reference. The setting `sequences` is their
number, two for each pair. Answers each line with one line of JSON: seconds, tokens without padding,
the loss and the norm of the gradient.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from grpo_turns import STEPS, reply, wait_for_turn

SHORTEST, LONGEST = 20, 400  # tokens of a sequence, prompt included
FIRST_ID, VOCABULARY = 16, 512  # ids before the first one are special
RATE = 1e-6
Sequenced = tuple[list[int], list[int]]  # prompt, answer


def answers(count: int) -> list[Sequenced]:
    """Lengths from the shortest to the longest, in equal steps."""
    random = Random(0)
    return [
        (_ids(random, n // 4), _ids(random, n - n // 4))
        for i in range(count)
        for n in [SHORTEST + (LONGEST - SHORTEST) * i // (count - 1)]
    ]


def pairs(count: int) -> list[tuple[list[int], list[int], list[int]]]:
    """(prompt, chosen, rejected): `count` answers in pairs of a whole and a cut one; either is
    chosen."""
    written, random = answers(count), Random(1)
    chosen_pairs = []
    for (prompt, answer), (_, other) in zip(written[::2], written[1::2], strict=True):
        other = other[: random.randrange(len(other) // 2, len(other))]
        chosen_pairs.append((prompt, *random.choice([(answer, other), (other, answer)])))
    return chosen_pairs


def _ids(random: Random, count: int) -> list[int]:
    return [random.randrange(FIRST_ID, VOCABULARY) for _ in range(count)]


def _tokens(examples: Sequence[Sequence[list[int]]]) -> int:
    """The tokens of all sequences, with the prompt counted for each of its answers."""
    return sum(len(prompt) + len(answer) for prompt, *both in examples for answer in both)


def ours_sft(model: Path, settings: Mapping[str, Any]) -> None:
    """The gradient and the step of `veriloop sft`."""
    written, policy, optimizer, trainer = _opened(model, settings, answers)

    from veriloop.data.sft_ids import EncodedExample
    from veriloop.pipeline.sft.step import gradient

    batch = [
        EncodedExample(ids=(*p, *a), learned=(False,) * len(p) + (True,) * len(a))
        for p, a in written
    ]
    while True:
        began = wait_for_turn()
        metrics = gradient(policy, batch, trainer)
        norm, _ = optimizer.step(0.0, 0)
        reply(began, _tokens(written), loss=metrics["loss"], grad_norm=norm)


def ours_dpo(model: Path, settings: Mapping[str, Any]) -> None:
    """The step of `veriloop preference`, with precomputed log-probs of the reference."""
    written, policy, optimizer, trainer = _opened(model, settings, pairs)

    from veriloop.data.preference_ids import EncodedAnswer
    from veriloop.pipeline.config.preference import PreferenceLossConfig
    from veriloop.pipeline.model.policy import load_policy
    from veriloop.pipeline.model.prepare import prepare
    from veriloop.pipeline.preference.examples import Example
    from veriloop.pipeline.preference.reference_pass import log_probs
    from veriloop.pipeline.preference.step import PreferenceObjective, learn

    def answer(prompt: list[int], ids: list[int]) -> EncodedAnswer:
        return EncodedAnswer(prompt=tuple(prompt), completion=tuple(ids), segments=(0,) * len(ids))

    examples = [
        Example(answers=(answer(prompt, chosen), answer(prompt, rejected)))
        for prompt, chosen, rejected in written
    ]
    frozen = prepare(load_policy(model / "reference"), trainer)
    reference = log_probs(frozen, examples, trainer)
    del frozen
    loss = PreferenceLossConfig()
    objective = PreferenceObjective(loss=loss, trainer=trainer, weights=(1.0, 1.0))
    while True:
        began = wait_for_turn()
        metrics = learn(policy, optimizer, examples, reference, objective, progress=0.0, done=0)
        reply(began, _tokens(written), loss=metrics["loss"], grad_norm=metrics["grad_norm"])


def _opened(
    model: Path, settings: Mapping[str, Any], make: Callable[[int], Any]
) -> tuple[Any, Any, Any, Any]:
    """The data, and policy, optimizer and trainer as the stages open them."""
    import publish  # noqa: F401  puts this checkout on the path
    import torch

    from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
    from veriloop.pipeline.model.policy import load_policy
    from veriloop.pipeline.model.prepare import prepare
    from veriloop.pipeline.training.optimizer import Optimizer

    torch.set_num_threads(1)
    settings = dict(settings)
    written = make(settings.pop("sequences"))
    trainer = TrainerConfig(**settings)
    policy = prepare(load_policy(model), trainer)
    return written, policy, Optimizer(policy, OptimizerConfig(learning_rate=RATE)), trainer


def trl_sft(model: Path, settings: Mapping[str, Any]) -> None:
    """`SFTTrainer`; with `packing` among the settings on rows of several sequences, `max_length`
    tokens at most."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer, pack_dataset

    settings = dict(settings)
    written = answers(settings.pop("sequences"))
    rows = [
        {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}
        for prompt, answer in written
    ]
    data, length = Dataset.from_list(rows), settings.get("max_length", 1024)
    if settings.get("packing"):
        data = pack_dataset(data, length, "bfd")
    SFTTrainer(
        model=str(model),
        args=SFTConfig(
            **_config(model, settings, len(data)),
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=data,
        processing_class=_tokenizer(model),
        callbacks=[_waiting(_tokens(written))],
    ).train()


def trl_dpo(model: Path, settings: Mapping[str, Any]) -> None:
    """`DPOTrainer` on token ids, as its own preparation would produce them."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    class UnpreparedDPOTrainer(DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    settings = dict(settings)
    written = pairs(settings.pop("sequences"))
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    ordered = sorted(written, key=lambda pair: len(pair[0]) + max(map(len, pair[1:])))
    data = Dataset.from_list([dict(zip(names, pair, strict=True)) for pair in ordered])
    UnpreparedDPOTrainer(
        model=str(model),
        ref_model=AutoModelForCausalLM.from_pretrained(model / "reference"),
        args=DPOConfig(**_config(model, settings, len(data))),
        train_dataset=data,
        processing_class=_tokenizer(model),
        callbacks=[_waiting(_tokens(written))],
    ).train()


def _config(model: Path, settings: dict[str, Any], rows: int) -> dict[str, Any]:
    """A step is an epoch. The setting `micro` is the number of rows of a micro-batch; by default
    all."""
    micro = settings.pop("micro", rows)
    if rows % micro:
        raise SystemExit(f"micro={micro} does not divide the {rows} rows of a step")
    return {
        "output_dir": str(model / "trl"),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // micro,
        "train_sampling_strategy": "sequential",
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "max_steps": STEPS,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        **settings,
    }


def _tokenizer(model: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def _waiting(tokens: int) -> Any:
    """A callback that waits for the parent before each step, and answers when the step is
    logged."""
    from transformers import TrainerCallback

    class Waiting(TrainerCallback):
        began = (0.0, 0.0)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = wait_for_turn()

        def on_log(self, *_: Any, logs: Mapping[str, Any], **__: Any) -> None:
            if "loss" in logs:
                numbers = {name: float(logs[name]) for name in ("loss", "grad_norm")}
                reply(self.began, tokens, **numbers)

    return Waiting()


if __name__ == "__main__":
    sides = {side.__name__: side for side in (ours_sft, ours_dpo, trl_sft, trl_dpo)}
    sides[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
