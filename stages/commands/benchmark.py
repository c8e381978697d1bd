"""`veriloop evaluate CHECKPOINT --set NAME...`: evaluate a checkpoint on whole published sets.

The defaults are the paper's: k answers per question, k between 4 and 64 by the size of the set, at
temperature 0.6 and top-p 0.95 with at most 32,768 tokens. pass@1 is the share of right answers and
cons@64 the majority vote of AIME's 64 answers (DeepSeek-R1, section 3).
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from veriloop.data.counts import counted
from veriloop.data.problem import Problem
from veriloop.pipeline.config.checkpoints import find_checkpoint, positions_at
from veriloop.pipeline.evaluation.answer_store import AnswerFile, sample_missing
from veriloop.pipeline.evaluation.benchmark_metrics import (
    JUDGE,
    VOTED,
    SetMetrics,
    judge_answers,
    set_metrics,
)
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import Judges, check_failures, open_judges
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.lineage import checkpoint_hash
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampler
from veriloop.stages.commands.benchmark_options import (
    ExamPlan,
    Options,
    answers_path,
    exam_plans,
)
from veriloop.stages.commands.parse import parse_options, require_outside, system_message
from veriloop.stages.summary import text_table
from veriloop.verifiers.verdict import Verdict


class _Bench:
    """Shared by all sets: the verifiers, and the engine, opened on first use."""

    def __init__(self, options: Options, plans: Sequence[ExamPlan], stack: ExitStack) -> None:
        names = {problem.verifier for plan in plans for problem in plan.exam.problems}
        names |= {JUDGE} if names & {*VOTED} else set()
        self.judges: Judges = stack.enter_context(
            open_judges(
                sorted(names),
                options.verifier_service,
                workers=options.verifier_workers,
                **options.judging(options.verifier_service),
            )
        )
        self._options, self._stack = options, stack
        self._room = max(plan.room for plan in plans)
        self._engine: Sampler | None = None

    def engine(self) -> Sampler:
        if self._engine is None:
            checkpoint = str(find_checkpoint(self._options.checkpoint, "CHECKPOINT"))
            config = self._options.sampler
            self._engine = open_sampler(config, checkpoint, max_length=self._room, say=print)
            self._stack.callback(self._engine.close)
        return self._engine


def run(options: Options) -> dict[str, SetMetrics]:
    """Metrics by set. Raises RecipeError for invalid options before anything is sampled, and
    StageError if too little could be verified; the answers are stored all the same."""
    options = replace(options, system=system_message(options.system, options.template))
    options.require_error_share()
    checkpoint = find_checkpoint(options.checkpoint, "CHECKPOINT")
    require_outside(checkpoint, "--json", options.json)
    scribe = RolloutGenerator(
        load_tokenizer(checkpoint),
        load_generation_config(checkpoint),
        options.template,
        options.system,
    )
    plans = exam_plans(options, scribe, positions_at(str(checkpoint)))
    weights = checkpoint_hash(checkpoint)
    metrics: dict[str, SetMetrics] = {}
    rows: dict[str, Any] = {}
    with ExitStack() as stack:
        bench = _Bench(options, plans, stack)
        for plan in plans:
            name, facts = plan.exam.name, plan.facts(options, weights)
            metrics[name] = _evaluate_set(plan, facts, options, scribe, bench)
            rows[name] = {**facts, "dropped": dict(plan.exam.dropped), **metrics[name].flat()}
    if options.json:
        text = json.dumps({"checkpoint": options.checkpoint, "sets": rows}, indent=1)
        write_atomically(Path(options.json), lambda fresh: fresh.write_text(text))
    return metrics


def _evaluate_set(
    plan: ExamPlan, facts: dict[str, Any], options: Options, scribe: RolloutGenerator, bench: _Bench
) -> SetMetrics:
    problems, samples = plan.exam.problems, plan.sampling.per_prompt
    for reason, count in plan.exam.dropped.items():
        print(f"{plan.exam.name}: {counted(count, 'row')} left out: {reason}")
    with AnswerFile(answers_path(Path(options.output), facts), facts) as file:
        stored = sum(min(samples, len(file.answers_to(problem.id))) for problem in problems)
        print(
            f"{plan.exam.name}: {counted(len(problems), 'question')}, {counted(samples, 'answer')} "
            "to each of up to "
            f"{plan.sampling.max_tokens:,} tokens; {stored:,} answers are in {file.path}",
            flush=True,
        )
        sample_missing(
            file, problems, plan.sampling, bench.engine, scribe, options.sampler.max_batch
        )
        answers = [file.answers_to(problem.id)[:samples] for problem in problems]
    problems = [scribe.judged_problem(problem, scribe.prompt(problem)) for problem in problems]
    verdicts = judge_answers(problems, answers, bench.judges)
    _write_verdicts(file.path.with_suffix(".verdicts.jsonl"), problems, verdicts)
    check_failures(
        plan.exam.name,
        [
            {problem.verifier: verdict}
            for problem, group in zip(problems, verdicts, strict=True)
            for verdict in group
        ],
        options.verifier_error_share,
    )
    return set_metrics(problems, answers, verdicts, plan.ks, bench.judges)


def _write_verdicts(
    path: Path, problems: Sequence[Problem], verdicts: Sequence[Sequence[Verdict]]
) -> None:
    """Write a line for each answer, in the order of the answer file."""
    lines = [
        json.dumps({"question": problem.id, "number": number, **asdict(verdict)}) + "\n"
        for problem, group in zip(problems, verdicts, strict=True)
        for number, verdict in enumerate(group)
    ]
    write_atomically(path, lambda fresh: fresh.write_text("".join(lines)))


def table(by_set: Mapping[str, SetMetrics]) -> str:
    """A row for each metric of each set, with its 95 % interval."""
    rows: list[tuple[str, ...]] = []
    for name, metrics in by_set.items():
        for metric, e in metrics.estimates.items():
            bounds = f"{e.low:.3f} to {e.high:.3f}"
            rows.append((name, metric, f"{e.value:.3f}", bounds, f"{e.n:,}"))
        rows.append((name, "tokens", f"{metrics.mean_tokens:.1f}", "", f"{metrics.questions:,}"))
    return text_table(("set", "metric", "value", "95 %", "questions"), rows, text=2)


def command(words: Sequence[str]) -> int:
    """`veriloop evaluate CHECKPOINT --set NAME...`: print the table and write `--json`."""
    options = parse_options(Options, words)
    by_set = run(options)
    print(table(by_set))
    uncompared = sum(metrics.uncompared for metrics in by_set.values())
    if uncompared:
        print(f"{uncompared:,} pairs of wrong answers could not be compared and count as different")
    return 0
