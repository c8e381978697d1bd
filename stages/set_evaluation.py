"""`veriloop evaluate CHECKPOINT --set NAME...`: a checkpoint on whole published sets.

The paper samples k answers to a question, k between 4 and 64 by the size of the set, at
temperature 0.6 and top-p 0.95 with at most 32,768 tokens. Its pass@1 is the share of right ones,
and cons@64 the majority vote of AIME's 64 answers (DeepSeek-R1, section 3). So are the defaults.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tyro

from data.problem import Problem
from pipeline.answer_file import AnswerFile
from pipeline.durable import write_atomically
from pipeline.equivalence import JUDGE, VOTED
from pipeline.failures import RecipeError
from pipeline.grade import Judges, open_judges
from pipeline.lineage import checkpoint_hash
from pipeline.policy import load_generation_config, load_tokenizer
from pipeline.sampling.choose import open_sampler
from pipeline.sampling.sampler import Sampler
from pipeline.scribe import Scribe
from pipeline.set_figures import SetFigures, figures, judged
from pipeline.set_sampling import fill
from stages.columns import columns
from stages.exam_plan import ExamPlan, Options, answers_path, exam_plans, positions_of
from verifiers.verdict import Verdict


class _Bench:
    """What all sets share: the engine, opened when it is first needed, and who judges."""

    def __init__(self, options: Options, plans: Sequence[ExamPlan], stack: ExitStack) -> None:
        names = {problem.verifier for plan in plans for problem in plan.exam.problems}
        names |= {JUDGE} if names & {*VOTED} else set()
        self.judges: Judges = stack.enter_context(
            open_judges(sorted(names), options.verifier_service, workers=options.verifier_workers)
        )
        self._options, self._stack = options, stack
        self._room = max(plan.room for plan in plans)
        self._engine: Sampler | None = None

    def engine(self) -> Sampler:
        if self._engine is None:
            checkpoint, config = self._options.checkpoint, self._options.sampler
            self._engine = open_sampler(config, checkpoint, max_length=self._room, say=print)
            self._stack.callback(self._engine.close)
        return self._engine


def run(options: Options) -> dict[str, SetFigures]:
    """The figures of each set, by its name. Raises RecipeError for what cannot be asked, before
    anything is sampled, and StageError where nothing could be judged."""
    checkpoint = Path(options.checkpoint)
    scribe = Scribe(
        load_tokenizer(checkpoint),
        load_generation_config(checkpoint),
        options.template,
        options.system,
    )
    plans = exam_plans(options, scribe, positions_of(checkpoint))
    weights = checkpoint_hash(checkpoint)
    found: dict[str, SetFigures] = {}
    told: dict[str, Any] = {}
    with ExitStack() as stack:
        bench = _Bench(options, plans, stack)
        for plan in plans:
            name, facts = plan.exam.name, plan.facts(options, weights)
            found[name] = _examined(plan, facts, options, scribe, bench)
            told[name] = {**facts, "dropped": dict(plan.exam.dropped), **found[name].flat()}
    if options.json:
        text = json.dumps({"checkpoint": options.checkpoint, "sets": told}, indent=1)
        write_atomically(Path(options.json), lambda fresh: fresh.write_text(text))
    return found


def _examined(
    plan: ExamPlan, facts: dict[str, Any], options: Options, scribe: Scribe, bench: _Bench
) -> SetFigures:
    problems, samples = plan.exam.problems, plan.sampling.per_prompt
    for reason, count in plan.exam.dropped.items():
        print(f"{plan.exam.name}: {count:,} rows left out: {reason}")
    with AnswerFile(answers_path(Path(options.output), facts), facts) as file:
        there = sum(min(samples, len(file.held(problem.id))) for problem in problems)
        print(
            f"{plan.exam.name}: {len(problems):,} questions, {samples} answers to each of up to "
            f"{plan.sampling.max_tokens:,} tokens; {there:,} answers are in {file.path}",
            flush=True,
        )
        fill(file, problems, plan.sampling, bench.engine, scribe, options.sampler.max_batch)
        answers = [file.held(problem.id)[:samples] for problem in problems]
    asked = [scribe.begun(problem, scribe.prompt(problem)) for problem in problems]
    verdicts = judged(asked, answers, bench.judges)
    _write_verdicts(file.path.with_suffix(".verdicts.jsonl"), asked, verdicts)
    return figures(asked, answers, verdicts, plan.ks, bench.judges)


def _write_verdicts(
    path: Path, problems: Sequence[Problem], verdicts: Sequence[Sequence[Verdict]]
) -> None:
    """A line for each answer, to be read beside the answers."""
    lines = [
        json.dumps({"question": problem.id, "number": number, **asdict(one)}) + "\n"
        for problem, some in zip(problems, verdicts, strict=True)
        for number, one in enumerate(some)
    ]
    write_atomically(path, lambda fresh: fresh.write_text("".join(lines)))


def table(found: Mapping[str, SetFigures]) -> str:
    """A row for each figure of each set, with its interval."""
    rows = [("set", "figure", "value", "95 %", "questions")]
    for name, made in found.items():
        for figure, e in made.estimates.items():
            bounds = f"{e.low:.3f} to {e.high:.3f}"
            rows.append((name, figure, f"{e.value:.3f}", bounds, f"{e.n:,}"))
        rows.append((name, "tokens", f"{made.mean_tokens:.1f}", "", f"{made.questions:,}"))
    return columns(rows)


def command(words: Sequence[str]) -> int:
    """`veriloop evaluate CHECKPOINT --set NAME...`: print the table, and write `--json`."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop evaluate")
    if not (Path(options.checkpoint) / "config.json").is_file():
        raise RecipeError(f"{options.checkpoint} holds no Hugging Face checkpoint")
    found = run(options)
    print(table(found))
    lost = sum(made.uncompared for made in found.values())
    if lost:
        print(f"{lost:,} pairs of wrong answers could not be compared, and count as different ones")
    return 0
