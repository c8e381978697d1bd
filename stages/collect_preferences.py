"""Preference pairs: a checkpoint's answers to each question, ranked, as a data file.

Paper (DeepSeek-R1, arXiv 2501.12948v2, section 3.1): the 66,000 pairs of the helpful reward model.
DeepSeek-V3 judges each pair in 4 queries in which the answers are A or B at random; the scores are
averaged, and pairs whose scores differ by more than 1 and whose lengths are comparable stay.

Input: the checkpoint that answers. Output: data.jsonl with its card, which the stages reward_model
and preference read.

Differences: verifiers or a trained reward model can rank instead of a judge. Half of the judge's
queries have each order, instead of a random one. The paper does not state the scale of its scores;
here a query gives one of Arena-Hard's five grades, from -2 to 2. `recipes/tiny/
collect_preferences.yaml` ranks 4 answers to each of 256 sums by the verifiers.
"""

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from veriloop.data.card import card_of, hash_of, read_card, write_data
from veriloop.data.preference_ids import encode
from veriloop.data.preferences import parse_rows
from veriloop.data.problem import Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.config.preference import CollectPreferencesRecipe
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.preference.labelling import (
    VERIFIERS,
    Labeller,
    ranked_pairs,
    refusal,
)
from veriloop.pipeline.preference.reward_judge import summary_of, to_messages
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import check_failures, verdicts_of, verifier_names
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit
from veriloop.pipeline.rollouts.sources import sources_of
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.runs.json_file import read_object
from veriloop.pipeline.sampling.engine_cache import load_checkpoint
from veriloop.pipeline.sampling.open import open_sampler, open_servers
from veriloop.pipeline.sampling.prelaunch import served
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.types import Graded, Rollout
from veriloop.stages.preference import labeller
from veriloop.stages.stage_run import StageRun, open_verifiers, run_stage
from veriloop.stages.teacher_data import data_key, distinct_problems, is_current
from veriloop.verifiers.llm_judge import MODEL

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What samples and ranks answers; opened and closed by the stage."""

    problems: Sequence[Problem]
    generator: RolloutGenerator
    sampler: Sampler
    label: Labeller
    verifiers: Mapping[str, str]  # fingerprints of those that rank, by name


def run(recipe: CollectPreferencesRecipe, output: Path, *, resume: bool, name: str = "") -> Path:
    """Collect pairs in `output`/`name` (default: collect_preferences); returns the data file.

    A resumed run reads finished rounds from disk. Raises StageError if no pair is kept, and
    VerifierFailuresError for a round in which too many answers could not be ranked.
    """
    return run_stage(recipe, output, partial(_collect, recipe), resume=resume, name=name)


def _collect(recipe: CollectPreferencesRecipe, stage: StageRun) -> Path:
    path, asked = stage.directory / "data.jsonl", _asked(recipe, stage.start)
    card = read_card(path)
    if card is None or not is_current(card, asked, recipe):
        with ExitStack() as stack:
            ranking = _open(stack, recipe, stage)
            stage.note_sampler(ranking.sampler.name)
            card = _write_pairs(path, recipe, ranking, asked)
    outputs = {"data": str(path), "card": str(card_of(path)), "data_sha256": hash_of(path)}
    sampler = card["sampler"]
    stage.manifest.end_stage(stage.name, stage.seconds(), sampler, {}, card["after"], outputs)
    return path


def _asked(recipe: CollectPreferencesRecipe, start: Path) -> str:
    """Hash of all but the verifiers that the pairs depend on, whoever samples them."""
    reads = lineage.read_by(recipe.model_dump(mode="json", exclude={"cluster"}), start)
    inputs = {key: entry["sha256"] for key, entry in reads["inputs"].items()}
    text = json.dumps([reads["recipe"], inputs, *_judge(recipe).values()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _judge(recipe: CollectPreferencesRecipe) -> dict[str, str]:
    """The name of the model that ranks the answers, for the card of pairs that a judge ranks."""
    return {"judge": os.environ.get(MODEL, "")} if recipe.label.by == "judge" else {}


def _open(stack: ExitStack, recipe: CollectPreferencesRecipe, stage: StageRun) -> Ranking:
    rollout, tokenizer = recipe.rollout, load_tokenizer(stage.start)
    generator = RolloutGenerator(
        tokenizer, load_generation_config(stage.start), rollout.template, rollout.system
    )
    sources, _ = sources_of(
        recipe.problems,
        recipe.sets,
        PromptLimit(
            "rollout.max_prompt", rollout.max_prompt, lambda problem: len(generator.prompt(problem))
        ),
    )
    problems, pool, verifiers = distinct_problems(recipe, sources), None, dict[str, str]()
    if recipe.label.by == "verifiers":
        names = verifier_names(VERIFIERS, problems)
        pool = open_verifiers(stack, recipe, names, stage.directory)
        verifiers = dict(pool.fingerprint(names))
    label = labeller(recipe, pool, tokenizer)
    length = rollout.max_prompt + rollout.max_tokens
    start = str(stage.start)
    if served(recipe):
        sampler = open_servers(
            recipe.cluster, recipe.sampler, start, stage.directory, max_length=length, say=print
        )
        stack.callback(sampler.close)
        load_checkpoint(sampler, recipe.sampler, start)
    else:
        sampler = open_sampler(recipe.sampler, start, max_length=length, say=print)
        stack.callback(sampler.close)
    return Ranking(
        problems=problems, generator=generator, sampler=sampler, label=label, verifiers=verifiers
    )


def _write_pairs(path: Path, recipe: CollectPreferencesRecipe, ranking: Ranking, asked: str) -> Row:
    """Write the pairs of all rounds and their card; returns the card."""
    key = data_key(asked, ranking.verifiers)
    folder = path.with_name(f"samples-{key}")
    rows: list[Row] = []
    dropped, rewards = Counter[str](), list[float]()
    problems, size = ranking.problems, recipe.rollout.prompts
    with activity("ranking answers", len(problems)) as part:
        for number, first in enumerate(range(0, len(problems), size)):
            batch = problems[first : first + size]
            file = folder / f"round_{number:05d}.json"
            if not file.is_file():
                _write(file, _round(recipe, ranking, number, batch))
            result = read_object(file)
            rows += result["rows"]
            dropped.update(result["dropped"])
            rewards += [r for answer in result["answers"] if (r := answer["reward"]) is not None]
            part.advance(len(batch))
    counts = {reason: count for reason, count in sorted(dropped.items()) if count}
    if not rows:
        raise StageError(f"no pair was kept; dropped: {json.dumps(counts)}")
    gaps = [row["score_chosen"] - row["score_rejected"] for row in rows]
    after = {"pairs": len(rows), "gap": fmean(gaps), "reward": fmean(rewards)}
    facts = {
        "asked": key,
        "stage": recipe.stage,
        "sampler": ranking.sampler.name,
        "ranked_by": recipe.label.by,
        **_judge(recipe),
        "verifiers": dict(ranking.verifiers),
        "questions": len(problems),
        "sampled": len(problems) * recipe.rollout.per_prompt,
        "kept": len(rows),
        "dropped": counts,
        "sources": dict(Counter(row["group"] for row in rows)),
        "after": after,
    }
    write_data(path, rows, facts)
    print(f"data: {len(rows)} pairs in {path}; dropped {json.dumps(counts)}")
    return facts


def _write(path: Path, result: Row) -> None:
    text = json.dumps(result, ensure_ascii=False)
    # a model may write half a surrogate pair, which no UTF-8 file can hold
    write_atomically(path, lambda fresh: fresh.write_bytes(text.encode("utf-8", "replace")))


def _round(
    recipe: CollectPreferencesRecipe, ranking: Ranking, number: int, problems: Sequence[Problem]
) -> Row:
    """The kept pairs of a round, all its answers with their rewards, and counts of lost pairs."""
    rollout = recipe.rollout
    sampling = Sampling(
        per_prompt=rollout.per_prompt,
        temperature=rollout.temperature,
        max_tokens=rollout.max_tokens,
        stop=rollout.stop,
        seed=recipe.seed * 100_000 + number + 1,
    )
    prompts = [(str(i), problem) for i, problem in enumerate(problems)]
    rollouts = ranking.generator.rollouts(ranking.sampler, prompts, sampling)
    # A row cannot say that its answer was cut off: it would be learned as a complete one.
    complete = [r for r in rollouts if r.finish != "length"]
    graded = ranking.label(complete)
    check_failures(f"round {number + 1}", verdicts_of(graded), recipe.verifier_error_share)
    rewards = {id(g.rollout): g.reward for g in graded}
    answers = [
        {"problem": r.problem.id, "response": r.response, "tokens": len(r.response_ids),
         "finish": r.finish, "reward": rewards.get(id(r))}
        for r in rollouts
    ]  # fmt: skip
    pairs = list(_pairs(recipe, ranking.generator, [group for group, _ in prompts], graded))
    return {
        "rows": [row for _, row in pairs if row],
        "dropped": dict(Counter(reason for reason, _ in pairs if reason)),
        "answers": answers,
    }


def _pairs(
    recipe: CollectPreferencesRecipe,
    generator: RolloutGenerator,
    groups: Sequence[str],
    graded: Sequence[Graded],
) -> Iterator[tuple[str, Row | None]]:
    """For each possible pair why it is lost, or "" and its row."""
    label = recipe.label
    possible = min(label.pairs, recipe.rollout.per_prompt // 2)
    ranked = ranked_pairs(graded, label)
    failed = {g.rollout.group for g in graded if g.reward is None}
    for group in groups:
        pairs = ranked.get(group, [])
        missing = possible - len(pairs)
        yield from [("failed" if group in failed else "cut_off", None)] * missing
        for better, worse in pairs:
            reason = refusal(better, worse, label)
            row = None if reason else _row(recipe, generator, better, worse)
            yield (reason or ("" if row else "unreadable")), row


def _row(
    recipe: CollectPreferencesRecipe, generator: RolloutGenerator, better: Graded, worse: Graded
) -> Row | None:
    """A pair in TRL's layout; None for one that could not be learned from: with an empty text, two
    equal ones, or one that contains special tokens."""
    problem, tokenizer = better.rollout.problem, generator.tokenizer
    prompt, chosen = _texts(recipe, generator, better.rollout)
    _, rejected = _texts(recipe, generator, worse.rollout)
    if chosen == rejected:
        return None
    row: Row = {
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "score_chosen": better.reward,
        "score_rejected": worse.reward,
        "group": source_of(problem),
        "problem": problem.id,
    }
    try:
        parse_rows([row], "row")
        for text in (chosen, rejected):
            encode(prompt, text, tokenizer, generator.eos_ids)
    except ValueError:
        return None
    return row


def _texts(
    recipe: CollectPreferencesRecipe, generator: RolloutGenerator, rollout: Rollout
) -> tuple[Any, Any]:
    """Prompt and answer as `recipe.text` says."""
    if recipe.text == "response":
        return generator.prompt_text(rollout.problem), rollout.response
    texts = to_messages(rollout.problem.prompt, summary_of(rollout), generator.tokenizer)
    question, answer = (text if isinstance(text, str) else [*text] for text in texts)
    return question, answer


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("collect-preferences"))
