"""Rejection sampling: a teacher's completions, verified, filtered and reformatted as SFT rows.

A round of prompts is sampled, graded by the problem's own verifier and a format check, filtered
(`data/filters.py`), rewritten into the recipe's layout, and verified again.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veriloop.data.decontaminate import Overlap
from veriloop.data.filters import Limits, Sample, SampleFilter, filters
from veriloop.data.jsonl import read_rows
from veriloop.data.problem import Problem
from veriloop.pipeline.config.sft import CollectConfig, FilterConfig, RewriteConfig
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import Judges, VerifierFailuresError, check_failures
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.sft.rewrite import rewrite_all, split_response
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.text.language import language_code, share
from veriloop.verifiers.text.length import with_tokens
from veriloop.verifiers.text.prose import prose
from veriloop.verifiers.text.repetition import distinct_share, pieces
from veriloop.verifiers.text.words import words
from veriloop.verifiers.verdict import Verdict

PREFILLED = "prefilled_think"  # fact of a problem whose prompt ended with <think>
LAYOUT = "think_format_lenient"  # the format verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """The model that is sampled and the verifiers that grade it; opened and closed by the stage."""

    generator: RolloutGenerator
    sampler: Sampler
    pool: Judges
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedRows:
    """The rows of a data file and the counts behind them."""

    rows: tuple[dict[str, Any], ...]
    questions: int
    sampled: int  # completions
    dropped: Mapping[str, int]  # completions, by reason


def collect(
    teacher: Teacher,
    problems: Sequence[Problem],
    config: CollectConfig,
    filter_config: FilterConfig,
    rewrite: RewriteConfig,
    held_out: Overlap,
    folder: Path,
    say: Callable[[str], None],
    on_question: Callable[[int], object] = lambda _: None,
) -> CollectedRows:
    """Sample round by round until the problems are used up or `config.rows` rows are accepted.

    Each round's graded completions are written to `folder`; a resumed run reads them from there.
    `on_question` is called with the number of questions whenever some have been sampled or read.

    Raises VerifierFailuresError if more than `config.verifier_error_share` of a round's completions
    could not be judged; a resumed run judges them again.
    """
    limits = Limits(
        min_words=filter_config.min_words,
        consistency=filter_config.consistency,
        max_paragraph=filter_config.max_paragraph,
        code_blocks=filter_config.code_blocks,
        distinct=filter_config.distinct,
        max_tokens=filter_config.max_tokens,
    )
    sample_filter = SampleFilter(filters(limits, held_out), config.keep)
    problems = [_without_prefill(problem) for problem in problems]
    rows: list[dict[str, Any]] = []
    questions = sampled = 0
    for number, first in enumerate(range(0, len(problems), config.at_once)):
        batch = problems[first : first + config.at_once]
        path = folder / f"round_{number:05d}.jsonl"
        if path.is_file():
            on_question(len(batch))
            _unjudged(path).unlink(missing_ok=True)
        else:
            _judge_round(path, teacher, batch, config, number, on_question)
        samples = [_sample(batch, answer, filter_config.ngram) for answer in read_rows(path)]
        questions, sampled = questions + len(batch), sampled + len(samples)
        kept = sample_filter(samples)
        responses = _rewritten(path.with_name(f"rewritten_{path.name}"), kept, rewrite)
        accepted = _complete(kept, responses, batch, sample_filter.dropped)
        verdicts = _verdicts(_counted(accepted, teacher), teacher.pool)
        check_failures(
            f"round {number + 1}, answers as they will be learned",
            _named(accepted, verdicts),
            config.verifier_error_share,
        )
        rows += _rows(accepted, verdicts, sample_filter.dropped)
        say(
            f"{questions} of {len(problems)} questions sampled, {len(rows)} of {sampled} responses "
            "accepted"
        )
        if config.rows and len(rows) >= config.rows:
            break
    wanted = rows[: config.rows or None]
    sample_filter.dropped["surplus"] += len(rows) - len(wanted)
    return CollectedRows(
        rows=tuple(wanted),
        questions=questions,
        sampled=sampled,
        dropped={reason: count for reason, count in sorted(sample_filter.dropped.items()) if count},
    )


def _judge_round(
    path: Path,
    teacher: Teacher,
    problems: Sequence[Problem],
    config: CollectConfig,
    number: int,
    on_question: Callable[[int], object],
) -> None:
    """Write every completion of a round to `path`, with its accuracy and format scores.

    Until all are judged they are in a file of their own, so that none is sampled twice.
    """
    unjudged = _unjudged(path)
    if unjudged.is_file():
        on_question(len(problems))
    else:
        _write(unjudged, _sampled(teacher, problems, config, number, on_question))
    answers = list(read_rows(unjudged))
    pairs = [
        (with_tokens(problems[answer["problem"]], lambda n=answer["tokens"]: n), answer["response"])
        for answer in answers
    ]
    verdicts = _verdicts(pairs, teacher.pool)
    try:
        check_failures(f"round {number + 1}", _named(pairs, verdicts), config.verifier_error_share)
    except VerifierFailuresError as failure:
        raise VerifierFailuresError(
            f"{failure}. The answers are kept in {unjudged}; --resume judges them again"
        ) from failure
    scores = [{"accuracy": own.score, "format": layout.score} for own, layout in verdicts]
    _write(path, [answer | of for answer, of in zip(answers, scores, strict=True)])
    unjudged.unlink()


def _unjudged(path: Path) -> Path:
    return path.with_name(f"unjudged_{path.name}")


def _sampled(
    teacher: Teacher,
    problems: Sequence[Problem],
    config: CollectConfig,
    number: int,
    on_question: Callable[[int], object],
) -> list[dict[str, Any]]:
    sampling = Sampling(
        per_prompt=config.per_prompt,
        temperature=config.temperature,
        max_tokens=teacher.max_tokens,
        stop=config.stop,
        seed=teacher.seed * 100_000 + number + 1,
    )
    prompts = [(str(index), problem) for index, problem in enumerate(problems)]
    rollouts = teacher.generator.rollouts(
        teacher.sampler, prompts, sampling, lambda _: on_question(1)
    )
    return [
        {
            "problem": int(rollout.group),
            "response": _whole(rollout),
            "tokens": len(rollout.response_ids),
            "finish": rollout.finish,
        }
        for rollout in rollouts
    ]


def _whole(rollout: Rollout) -> str:
    """The response with the tag that the teacher's prompt ended with: a row is learned after
    another prompt."""
    return ("<think>" if rollout.problem.facts.get(PREFILLED) else "") + rollout.response


def _without_prefill(problem: Problem) -> Problem:
    """The problem whose responses have every tag of their own."""
    facts = {name: value for name, value in problem.facts.items() if name != PREFILLED}
    return replace(problem, facts=facts)


def _verdicts(pairs: Sequence[tuple[Problem, str]], pool: Judges) -> list[tuple[Verdict, Verdict]]:
    """The verdicts of accuracy and format on each response."""
    verdicts = pool.judge_all([task for pair in pairs for task in _tasks(*pair)])
    return list(zip(verdicts[::2], verdicts[1::2], strict=True))


def _counted(pairs: Sequence[tuple[Problem, str]], teacher: Teacher) -> list[tuple[Problem, str]]:
    """The problems with the tokens of their responses, where they set a length in tokens."""

    def count(text: str) -> int:
        return len(teacher.generator.tokenizer(text, add_special_tokens=False).input_ids)

    return [(with_tokens(problem, lambda t=text: count(t)), text) for problem, text in pairs]


def _named(
    pairs: Sequence[tuple[Problem, str]], verdicts: Sequence[tuple[Verdict, Verdict]]
) -> list[dict[str, Verdict]]:
    """The verdicts by the names of the verifiers."""
    return [
        {problem.verifier: own, LAYOUT: layout}
        for (problem, _), (own, layout) in zip(pairs, verdicts, strict=True)
    ]


def _tasks(problem: Problem, response: str) -> list[tuple[Problem, str]]:
    """The two verifications of a response: accuracy and format."""
    return [(problem, response), (replace(problem, verifier=LAYOUT, reference={}), response)]


def _write(path: Path, answers: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    # a model may write half a surrogate pair, which no UTF-8 file can hold
    write_atomically(path, lambda fresh: fresh.write_bytes(text.encode("utf-8", "replace")))


def _sample(batch: Sequence[Problem], answer: Mapping[str, Any], ngram: int) -> Sample:
    problem, response = batch[answer["problem"]], str(answer["response"])
    thinking = split_response(response).thinking
    tag = problem.facts.get("language")
    failed = answer["accuracy"] is None or answer["format"] is None
    return Sample(
        question=problem.prompt,
        response=response,
        thinking=thinking,
        tokens=answer["tokens"],
        cut_off=answer["finish"] == "length",
        right=None if failed else answer["accuracy"] == 1.0,
        readable=answer["format"] == 1.0,
        words=len(words(prose(thinking))),
        consistency=None if tag is None else share(thinking, language_code(tag))[0],
        distinct=distinct_share(pieces(response), ngram),
        facts={"problem": answer["problem"]},
    )


def _rewritten(path: Path, samples: Sequence[Sample], rewrite: RewriteConfig) -> list[str | None]:
    """Each sample in the recipe's layout; None where the rewriter failed. What a rewriter writes is
    kept at `path`: a resumed run asks it for what failed, and for nothing else."""
    if not rewrite.rewriter:
        return rewrite_all(samples, rewrite)
    rows = list(read_rows(path)) if path.is_file() else []
    if [row["response"] for row in rows] != [sample.response for sample in samples]:
        rows = [{"response": sample.response, "rewritten": None} for sample in samples]
    failed = [i for i, row in enumerate(rows) if row["rewritten"] is None]
    renewed = rewrite_all([samples[i] for i in failed], rewrite)
    for i, response in zip(failed, renewed, strict=True):
        rows[i] |= {"rewritten": response}
    _write(path, rows)
    return [row["rewritten"] for row in rows]


def _complete(
    samples: Sequence[Sample],
    responses: Sequence[str | None],
    batch: Sequence[Problem],
    dropped: Counter[str],
) -> list[tuple[Problem, str]]:
    """The responses that there are, with their problems; the others are counted."""
    complete: list[tuple[Problem, str]] = []
    for sample, response in zip(samples, responses, strict=True):
        if response is None:
            dropped["rewrite_failed"] += 1
        else:
            complete.append((batch[sample.facts["problem"]], response))
    return complete


def _rows(
    responses: Sequence[tuple[Problem, str]],
    verdicts: Sequence[tuple[Verdict, Verdict]],
    dropped: Counter[str],
) -> list[dict[str, Any]]:
    """The rows; a response that the rewriter broke is dropped."""
    rows: list[dict[str, Any]] = []
    for (problem, response), judged in zip(responses, verdicts, strict=True):
        scores = tuple(verdict.score for verdict in judged)
        if scores == (1.0, 1.0):
            rows.append(
                {
                    "prompt": [{"role": "user", "content": problem.prompt}],
                    "completion": [{"role": "assistant", "content": response}],
                    "source": problem.facts.get("source", problem.id.partition("/")[0]),
                    "language": problem.facts.get("language", ""),
                    "problem": problem.id,
                }
            )
        else:
            dropped["unjudged" if None in scores else "rewrite_spoiled"] += 1
    return rows
