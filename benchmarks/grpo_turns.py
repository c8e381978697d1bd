"""One contender of `against_trl.py` and its like: takes a GRPO step for each line it is given.

    python benchmarks/grpo_turns.py ours|ours_math|ours_programs|trl MODEL SETTINGS

Answers each line on standard input with one of JSON: wall and CPU seconds of the step, its answer
tokens, what they were paid on average, and for ours the seconds of its parts. All ask the same
questions and pay by one rule, under which random answers differ; `ours_programs` asks for programs,
and runs one for each answer, and `ours_math` judges mathematics in place of each. With
`"learn": true` among the settings the rule is one that a random model can learn, and answers are
short.
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
AS_OURS = {"lr_scheduler_type": "constant", "loss_type": "grpo"}  # there too; else as it installs


def worth(text: str, ids: Sequence[int], *, learn: bool) -> float:
    """Something that every answer of a group has its own share of: of its letters, or where it is
    to be learned of tokens in the first half of the vocabulary."""
    return sum(i < HALF for i in ids) / len(ids) if learn else (len(text) % 10) / 10


def reply(began: tuple[float, float], tokens: int, **more: float) -> None:
    """Tell the parent what a step took, and whatever else there is to tell."""
    wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
    told = {"s": wall, "cpu_s": cpu, "tokens": tokens, "peak_gib": peak_gib(), **more}
    print(json.dumps(told), flush=True)


def peak_gib() -> float:
    """Resident memory of this process at its highest. Not getrusage's, which begins at that of the
    process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak_kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak_kib) / 2**20


def asked() -> tuple[float, float]:
    """Wait for the parent's next line; ends this process when there is none."""
    if not sys.stdin.readline():
        raise SystemExit(0)
    return time.monotonic(), time.process_time()


def ours(model: Path, settings: Mapping[str, Any]) -> None:
    """The loop of every RL stage, a turn at a time, on sums judged by a pool."""
    _ours(model, settings)


def ours_programs(model: Path, settings: Mapping[str, Any]) -> None:
    """The same on programs: every answer, whatever it says, is judged as a short program with the
    number of its letters in it, which the sandbox runs."""
    counted = f"for i in range({LOOPS}): x +="

    def written(problem: Any, text: str) -> tuple[Any, str]:
        return problem, f"<answer>def f(x):\n    {counted} {len(text)}\n    return x</answer>"

    _ours(model, settings, "programs", written)


def ours_math(model: Path, settings: Mapping[str, Any]) -> None:
    """The same on mathematics: every answer, whatever it says, is judged as the next pair of
    `verify_speed.py`, a new one as long as there are some."""
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
        best=2.0,
    )
    with ExitStack() as stack:
        loop = rl.open_loop(stack, recipe, task, Path(mkdtemp(dir=model)), model, None)
        if instead:
            _judge_instead(loop.deps.pool, instead)
        loop.begin()
        while True:
            began = asked()
            lengths.clear()
            payments.clear()
            loop.turn()
            told = read_metrics(loop.deps.record.metrics_path)[-1]
            parts = {name: told.get(f"time/{name}", 0.0) for name in PARTS}
            reply(began, sum(lengths), paid=fmean(payments), **parts)


def _judge_instead(pool: Any, instead: Callable[[Any, str], tuple[Any, str]]) -> None:
    """Let the pool read something else in place of each answer."""
    judge = pool.judge_all

    def judged(tasks: Sequence[tuple[Any, str]]) -> list[Any]:
        return judge([instead(problem, text) for problem, text in tasks])

    pool.judge_all = judged


def trl(model: Path, settings: Mapping[str, Any]) -> None:
    """`GRPOTrainer` in one process, its callbacks waiting for the parent before each step."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    prompts = json.loads((model / "prompts.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    settings = dict(settings)
    learn = settings.pop("learn", False)
    made = {"tokens": 0, "paid": 0.0}

    def paid(completions: Sequence[str], completion_ids: Any = None, **_: Any) -> list[float]:
        pairs = zip(completions, completion_ids, strict=True)
        found = [worth(text, ids, learn=learn) for text, ids in pairs]
        made.update(tokens=sum(map(len, completion_ids)), paid=fmean(found))
        return found

    class Waiting(TrainerCallback):
        began = (0.0, 0.0)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = asked()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            reply(self.began, made["tokens"], paid=made["paid"])

    config = GRPOConfig(
        output_dir=str(model / "trl"),
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=SHORT if learn else MAX_TOKENS,
        learning_rate=RATE if learn else 1e-6,
        max_steps=STEPS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        **(AS_OURS if learn else {}),
        **settings,
    )
    GRPOTrainer(
        model=str(model),
        reward_funcs=paid,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[Waiting()],
    ).train()


if __name__ == "__main__":
    sides = {
        "ours": ours, "ours_math": ours_math, "ours_programs": ours_programs, "trl": trl,
    }  # fmt: skip
    sides[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
