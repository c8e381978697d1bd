"""Inside TRL: `GRPOTrainer` trains with our reward functions; its logs are compared with our
scores.

Two short runs of its trainer on a CPU, with plain and with conversational prompts. The references
of one question in three are invalid, so that our verifier returns an error: TRL must leave them
out.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

from answering import model, never_said, word_tokenizer
from claims import Claims

from veriloop.data.problem import Problem
from veriloop.verifiers.adapters.trl import reward
from veriloop.verifiers.registry import judge

STEPS, PROMPTS, GROUP = 3, 2, 8
UNUSABLE = "twelve"  # no number
QUESTIONS = {"What is 1 + 1 ?": "2", "What is 2 - 1 ?": "1", "What is 0 - 0 ?": UNUSABLE}


def train(
    folder: Path, rows: Sequence[Mapping[str, Any]], rewards: Sequence[Callable[..., Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The table of completions that TRL writes, and its metrics of each step."""
    import pandas
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = word_tokenizer()
    config = GRPOConfig(
        output_dir=str(folder / "run"), max_steps=STEPS, num_generations=GROUP,
        per_device_train_batch_size=PROMPTS * GROUP, max_completion_length=2, learning_rate=1e-3,
        generation_kwargs={"suppress_tokens": never_said(tokenizer)}, log_completions=True,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False, seed=1,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(model(folder)), reward_funcs=list(rewards), args=config,
        train_dataset=Dataset.from_list(list(rows)), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    tables = sorted((folder / "run" / "completions").glob("*.parquet"))
    rows = [row for table in tables for row in pandas.read_parquet(table).to_dict("records")]
    return rows, [row for row in trainer.state.log_history if "reward" in row]


def content(message: Any) -> str:
    return message if isinstance(message, str) else message[-1]["content"]


def ours(row: Mapping[str, Any], verifier: str) -> tuple[float | None, str]:
    """Score and status of a logged completion, judged here without an adapter."""
    reference = {"value": QUESTIONS[content(row["prompt"])]} if verifier == "number" else {}
    problem = Problem(id="", prompt="", verifier=verifier, reference=reference)
    verdict = judge(problem, content(row["completion"]))
    return verdict.score, verdict.status


def known(value: float) -> float | None:
    return None if isnan(value) else value


def mean_of(rows: Sequence[Mapping[str, Any]], verifier: str) -> float | None:
    """The mean of our scores that exist."""
    scores = [score for row in rows if (score := ours(row, verifier)[0]) is not None]
    return round(mean(scores), 5) if scores else None


def claim(claims: Claims, form: str, rows: Any, metrics: Any, verifiers: Sequence[str]) -> None:
    """Claims about a run's table and metrics, for both forms of prompts."""
    claims.holds(f"{form}: completions logged", len(rows), STEPS * PROMPTS * GROUP)
    for verifier in verifiers:
        logged_scores = [known(row[verifier]) for row in rows]
        wanted = [ours(row, verifier) for row in rows]
        claims.holds(
            f"{form}: logged {verifier} is ours", logged_scores, [score for score, _ in wanted]
        )
        status = [row[f"{verifier}/status"] for row in rows]
        claims.holds(f"{form}: {verifier} statuses logged", status, [s for _, s in wanted])
        means = [logged[f"rewards/{verifier}/mean"] for logged in metrics]
        claims.holds(
            f"{form}: {verifier} means of each step leave out what has no score",
            [come if come is None else round(come, 5) for come in means],
            [mean_of([row for row in rows if row["step"] == step + 1], verifier)
             for step in range(STEPS)],
        )  # fmt: skip
    seen = {known(row["number"]) for row in rows}
    claims.holds(f"{form}: some right, some wrong, some without a score", seen, {0.0, 1.0, None})


def main() -> None:
    claims = Claims("GRPOTrainer.train", ("trl", "transformers", "torch"))
    with tempfile.TemporaryDirectory() as folder:
        plain = [{"prompt": question, "answer": answer} for question, answer in QUESTIONS.items()]
        rows, metrics = train(Path(folder), plain, [reward("number")])
        claim(claims, "plain", rows, metrics, ["number"])
        lost = {row["advantage"] for row in rows if isnan(row["number"])}
        claims.holds("plain: no advantage where there is no score", lost, {0.0})
    with tempfile.TemporaryDirectory() as folder:
        talk = [
            {"prompt": [{"role": "user", "content": question}], "answer": "7", "mine": answer}
            for question, answer in QUESTIONS.items()
        ]
        functions = [reward("number", column="mine"), reward("think_format")]
        rows, metrics = train(Path(folder), talk, functions)
        claim(claims, "conversational", rows, metrics, ["number", "think_format"])
    claims.tell()


if __name__ == "__main__":
    main()
