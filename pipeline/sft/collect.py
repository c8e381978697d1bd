"""Answers sampled from a teacher, judged, sifted and written anew: the rows of a data file."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.decontaminate import Overlap
from data.filters import Limits, Sample, Sieve, filters
from data.problem import Problem
from pipeline.durable import write_atomically
from pipeline.grade import Judges
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.scribe import Scribe
from pipeline.sft.rewrite import rewritten, taken_apart
from pipeline.sft_config import CollectConfig, FilterConfig, RewriteConfig
from verifiers.language import share
from verifiers.repetition import distinct_share, pieces
from verifiers.words import prose, words

LAYOUT = "think_format_lenient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """Who is asked and who judges; opened and closed by the stage."""

    scribe: Scribe
    sampler: Sampler
    pool: Judges
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The rows of a data file and how they came about."""

    rows: tuple[dict[str, Any], ...]
    asked: int  # questions
    sampled: int
    dropped: Mapping[str, int]  # samples, by reason


def collect(
    teacher: Teacher,
    problems: Sequence[Problem],
    config: CollectConfig,
    asked: FilterConfig,
    rewrite: RewriteConfig,
    held_out: Overlap,
    folder: Path,
    say: Callable[[str], None],
) -> Collected:
    """Ask round by round until all problems are asked or `config.rows` are kept.

    Each round's judged answers stay in `folder`; a round that is there is not sampled again.
    """
    limits = Limits(
        min_words=asked.min_words,
        consistency=asked.consistency,
        max_paragraph=asked.max_paragraph,
        code_blocks=asked.code_blocks,
        distinct=asked.distinct,
        max_tokens=asked.max_tokens,
    )
    sieve = Sieve(filters(limits, held_out), config.keep)
    kept: list[dict[str, Any]] = []
    count = sampled = 0
    for number, here in enumerate(_rounds(problems, config.at_once)):
        path = folder / f"round_{number:05d}.jsonl"
        if not path.is_file():
            _write(path, _judged(teacher, here, config, number))
        answers = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        samples = [_sample(here[one["problem"]], one, asked.ngram) for one in answers]
        count, sampled = count + len(here), sampled + len(samples)
        kept += _rows(sieve(samples), {p.id: p for p in here}, rewrite, teacher.pool, sieve.dropped)
        say(f"asked {count} of {len(problems)} questions, kept {len(kept)} of {sampled} answers")
        if config.rows and len(kept) >= config.rows:
            break
    if config.rows and len(kept) > config.rows:
        sieve.dropped["surplus"] += len(kept) - config.rows
        kept = kept[: config.rows]
    return Collected(rows=tuple(kept), asked=count, sampled=sampled, dropped=_counts(sieve.dropped))


def _rounds(problems: Sequence[Problem], size: int) -> Iterator[Sequence[Problem]]:
    for first in range(0, len(problems), size):
        yield problems[first : first + size]


def _judged(
    teacher: Teacher, problems: Sequence[Problem], config: CollectConfig, number: int
) -> list[dict[str, Any]]:
    """Every answer of a round, and what the verifiers say of it."""
    sampling = Sampling(
        per_prompt=config.per_prompt,
        temperature=config.temperature,
        max_tokens=teacher.max_tokens,
        seed=teacher.seed * 100_000 + number + 1,
    )
    asked = [(str(at), problem) for at, problem in enumerate(problems)]
    rollouts = teacher.scribe.rollouts(teacher.sampler, asked, sampling)
    tasks = [task for one in rollouts for task in _tasks(one.problem, one.response)]
    verdicts = iter(teacher.pool.judge_all(tasks))
    return [
        {
            "problem": int(one.group),
            "response": one.response,
            "tokens": len(one.response_ids),
            "finish": one.finish,
            "accuracy": next(verdicts).score,
            "format": next(verdicts).score,
        }
        for one in rollouts
    ]


def _tasks(problem: Problem, response: str) -> list[tuple[Problem, str]]:
    return [(problem, response), (replace(problem, verifier=LAYOUT, reference={}), response)]


def _write(path: Path, answers: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in answers)
    # a model may write half a surrogate pair, which no UTF-8 file can hold
    write_atomically(path, lambda fresh: fresh.write_bytes(text.encode("utf-8", "replace")))


def _sample(problem: Problem, answer: Mapping[str, Any], ngram: int) -> Sample:
    response: str = answer["response"]
    thinking = taken_apart(response).thinking
    language = problem.facts.get("language")
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
        consistency=None if language is None else share(thinking, language)[0],
        distinct=distinct_share(pieces(response), ngram),
        facts={"problem": problem.id},
    )


def _rows(
    samples: Sequence[Sample],
    problems: Mapping[str, Problem],
    rewrite: RewriteConfig,
    pool: Judges,
    dropped: Counter[str],
) -> list[dict[str, Any]]:
    """The samples written anew and judged again: what a rewriter spoils is dropped."""
    asked = [problems[sample.facts["problem"]] for sample in samples]
    made: list[tuple[Problem, str]] = []
    for problem, response in zip(asked, rewritten(samples, rewrite), strict=True):
        if response is None:
            dropped["rewrite_failed"] += 1
        else:
            made.append((problem, response))
    verdicts = iter(pool.judge_all([task for pair in made for task in _tasks(*pair)]))
    rows: list[dict[str, Any]] = []
    for problem, response in made:
        if (next(verdicts).score, next(verdicts).score) == (1.0, 1.0):
            rows.append(_row(problem, response))
        else:
            dropped["rewrite_spoiled"] += 1
    return rows


def _row(problem: Problem, response: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": problem.prompt}],
        "completion": [{"role": "assistant", "content": response}],
        "source": problem.facts.get("source", problem.id.partition("/")[0]),
        "language": problem.facts.get("language", ""),
        "problem": problem.id,
    }


def _counts(dropped: Counter[str]) -> dict[str, int]:
    return {reason: count for reason, count in sorted(dropped.items()) if count}
