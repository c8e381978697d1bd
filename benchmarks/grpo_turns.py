"""One contender of `against_trl.py` and similar scripts: takes a GRPO step for each input line.

    python benchmarks/grpo_turns.py ours|ours_math|ours_programs|trl MODEL SETTINGS

Answers each line on standard input with one line of JSON: wall and CPU seconds of the step, its
answer tokens, the mean reward, and for veriloop the seconds of its parts. All contenders have the
same questions and the same rule for rewards, under which random answers differ; `ours_programs`
runs a program for each answer, and `ours_math` judges a mathematical answer in place of each. With
the setting `"learn": true` a random model can learn the rule, and answers are short.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp
from typing import Any

PROMPTS, GROUP, MAX_TOKENS, STEPS = 16, 8, 80, 1_000_000
QUESTIONS = 4096
PARTS = ("sample", "verify", "update", "sync")  # of a turn, as metrics name them
LOOPS = 400_000  # of a program: some 20 milliseconds
PAIRS = 8192  # of mathematical answers, more than 60 steps of them
HALF = 256  # of the vocabulary
SHORT, RATE = 24, 1e-3  # where it is to be learned: answer tokens, learning rate
UNATTENDED: Mapping[str, Any] = {  # settings of TRL
    "use_cpu": True, "report_to": [], "save_strategy": "no", "logging_strategy": "no",
    "disable_tqdm": True,
}  # fmt: skip
AS_OURS = {"lr_scheduler_type": "constant", "loss_type": "grpo"}  # there too; else as it installs


def worth(text: str, ids: Sequence[int], *, learn: bool) -> float:
    """A reward that differs within a group: the number of letters modulo 10, or with `learn` the
    share of tokens from the first half of the vocabulary."""
    return sum(i < HALF for i in ids) / len(ids) if learn else (len(text) % 10) / 10


def reply(began: tuple[float, float], tokens: float, **more: Any) -> None:
    """Report the cost of a step, and further values, to the parent."""
    wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
    answer = {"s": wall, "cpu_s": cpu, "tokens": tokens, "peak_gib": peak_gib(), **more}
    print(json.dumps(answer), flush=True)


def peak_gib() -> float:
    """Peak resident memory of this process. (That of getrusage starts at the value of the
    parent.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak_kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak_kib) / 2**20


def wait_for_turn() -> tuple[float, float]:
    """Wait for the parent's next line; ends this process at the end of input."""
    if not sys.stdin.readline():
        raise SystemExit(0)
    return time.monotonic(), time.process_time()


def waiting(totals: Mapping[str, float]) -> Any:
    """TRL's callback that waits for the parent before each step and reports `totals` after it."""
    from transformers import TrainerCallback

    class Waiting(TrainerCallback):
        began = (0.0, 0.0)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = wait_for_turn()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            reply(self.began, **totals)

    return Waiting()


def ours(model: Path, settings: Mapping[str, Any]) -> None:
    """The loop of the RL stages, one turn at a time, on sums judged by a pool."""
    _ours(model, settings)


def ours_programs(model: Path, settings: Mapping[str, Any]) -> None:
    """The same on programs: in place of every answer the sandbox runs a short program that contains
    the number of its letters."""
    counted = f"for i in range({LOOPS}): x +="

    def written(problem: Any, text: str) -> tuple[Any, str]:
        return problem, f"<answer>def f(x):\n    {counted} {len(text)}\n    return x</answer>"

    _ours(model, settings, "programs", written)


def ours_math(model: Path, settings: Mapping[str, Any]) -> None:
    """The same on mathematics: in place of every answer the next pair of `verify_speed.py` is
    judged; pairs repeat only after all were used."""
    import verify_speed

    pairs = cycle(verify_speed.pairs(verify_speed.mixed, PAIRS, seed=0))

    def other(problem: Any, text: str) -> tuple[Any, str]:
        gold, answer = next(pairs)
        return verify_speed.problem_of(gold), answer

    _ours(model, settings, "arithmetic", other)


def _ours(
    model: Path,
    settings: Mapping[str, Any],
    questions: str = "arithmetic",
    instead: Callable[[Any, str], tuple[Any, str]] | None = None,
) -> None:
    import publish  # noqa: F401  puts this checkout on the path
    import torch

    from veriloop.data.sources import SOURCES
    from veriloop.pipeline.config.load import validate, with_flags
    from veriloop.pipeline.rollouts.grade import Task, score_of
    from veriloop.pipeline.runs.record import read_metrics
    from veriloop.stages import rl

    settings = dict(settings)
    learn = settings.pop("learn", False)
    values = {
        "stage": "zero",
        "name": "speed",
        "start": str(model),
        "steps": STEPS,
        "rollout": {
            "prompts": PROMPTS,
            "per_prompt": GROUP,
            "max_tokens": SHORT if learn else MAX_TOKENS,
        },
        "algorithm": {"kl_coefficient": 0.0, "minibatches": 1},
        "optimizer": {"learning_rate": RATE if learn else 1e-6, "betas": [0.9, 0.999]},
        "trainer": {"threads": 1},
        "tensorboard": False,
    }
    recipe: Any = validate(with_flags(values, settings), "speed")
    torch.set_num_threads(recipe.trainer.threads)
    source = SOURCES[questions]
    lengths, payments = list[int](), list[float]()

    def reward(rollout: Any, verdicts: Mapping[str, Any]) -> float:
        lengths.append(len(rollout.response_ids))
        payments.append(worth(rollout.response, rollout.response_ids, learn=learn))
        return payments[-1] if learn else score_of(verdicts, "accuracy") + payments[-1]

    task = Task(
        problem=lambda index: source.problem("rl", 0, index % QUESTIONS),
        held_out=(),
        verifiers={"accuracy": None},
        reward=reward,
    )
    with ExitStack() as stack:
        loop = rl.open_loop(stack, recipe, task, Path(mkdtemp(dir=model)), model, None)
        if instead:
            _judge_instead(loop.deps.pool, instead)
        loop.begin()
        while True:
            began = wait_for_turn()
            lengths.clear()
            payments.clear()
            loop.turn()
            row = read_metrics(loop.deps.record.metrics_path)[-1]
            parts = {name: row.get(f"time/{name}", 0.0) for name in PARTS}
            reply(began, sum(lengths), paid=fmean(payments), **parts)


def _judge_instead(pool: Any, instead: Callable[[Any, str], tuple[Any, str]]) -> None:
    """Let the pool judge something else in place of each answer."""
    judge = pool.judge_all

    def judged(tasks: Sequence[tuple[Any, str]]) -> list[Any]:
        return judge([instead(problem, text) for problem, text in tasks])

    pool.judge_all = judged


def trl(model: Path, settings: Mapping[str, Any]) -> None:
    """`GRPOTrainer` in one process; its callbacks wait for the parent before each step."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    prompts = json.loads((model / "prompts.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    settings = dict(settings)
    learn = settings.pop("learn", False)
    # Of the same optimizer step: generation is of all answers at once in either case.
    micro_batch = settings.pop("micro_batch", PROMPTS * GROUP)
    totals = {"tokens": 0, "paid": 0.0}

    def paid(completions: Sequence[str], completion_ids: Any = None, **_: Any) -> list[float]:
        pairs = zip(completions, completion_ids, strict=True)
        rewards = [worth(text, ids, learn=learn) for text, ids in pairs]
        totals.update(tokens=sum(map(len, completion_ids)), paid=fmean(rewards))
        return rewards

    config = GRPOConfig(
        output_dir=str(model / "trl"),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=PROMPTS * GROUP // micro_batch,
        num_generations=GROUP,
        max_completion_length=SHORT if learn else MAX_TOKENS,
        learning_rate=RATE if learn else 1e-6,
        max_steps=STEPS,
        **UNATTENDED,
        **(AS_OURS if learn else {}),
        **settings,
    )
    GRPOTrainer(
        model=str(model),
        reward_funcs=paid,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[waiting(totals)],
    ).train()


if __name__ == "__main__":
    sides = {
        "ours": ours, "ours_math": ours_math, "ours_programs": ours_programs, "trl": trl,
    }  # fmt: skip
    sides[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
