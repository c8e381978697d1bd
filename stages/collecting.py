"""A data file of a teacher's good answers, with its card, made once: what two stages share."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from data.card import card_of, hash_of, read_card, write_data
from data.columns import raw_rows
from data.decontaminate import Overlap
from data.problem import Problem
from pipeline.checkpoint_files import MANIFEST
from pipeline.failures import RecipeError, StageError
from pipeline.grade import open_judges
from pipeline.policy import load_generation_config, load_tokenizer
from pipeline.prompt import prompt_ids
from pipeline.questions import Sources, sources_of
from pipeline.sampling.choose import open_sampler
from pipeline.scribe import Scribe
from pipeline.sft.collect import LAYOUT, Collected, Teacher, collect
from pipeline.sft_config import (
    ColdStartRecipe,
    CollectConfig,
    FilterConfig,
    RejectionRecipe,
    RewriteConfig,
)
from stages.entry import Entry

Collecting = ColdStartRecipe | RejectionRecipe
Rows = Sequence[dict[str, Any]]
Mixed = Callable[[Rows], tuple[Rows, Mapping[str, Any]]]  # all rows, and facts for the card


def data_of(
    recipe: Collecting,
    entry: Entry,
    teacher: Path,
    say: Callable[[str], None],
    *,
    rewrite: RewriteConfig | None = None,
    mixed: Mixed = lambda rows: (rows, {}),
) -> Path:
    """data.jsonl of the stage; one that is complete and was asked for alike is not made again.

    Raises StageError where no answer was good enough.
    """
    data = entry.directory / "data.jsonl"
    asked = _asked(recipe, teacher)
    card = read_card(data)
    if card is not None and card["asked"] == asked:
        say(f"data: {card['rows']} rows are there")
        return data
    rewrite = rewrite or RewriteConfig()
    folder = entry.directory / f"samples-{asked}"
    with entry.failures_noted():
        found, facts = _sampled(recipe, folder, teacher, rewrite, say)
    rows, more = mixed(found.rows)
    facts |= {
        "asked": asked,
        "stage": recipe.stage,
        "questions": found.asked,
        "sampled": found.sampled,
        "kept": len(found.rows),
        "dropped": dict(found.dropped),
        "sources": dict(Counter(row["source"] for row in rows)),
        "languages": dict(Counter(row.get("language") or "unknown" for row in rows)),
        **more,
    }
    write_data(data, rows, facts)
    say(f"data: {len(rows)} rows in {data}; dropped {json.dumps(dict(found.dropped))}")
    return data


def made(data: Path) -> dict[str, str]:
    """The data file among the outputs of a stage."""
    return {"data": str(data), "card": str(card_of(data)), "data_sha256": hash_of(data)}


def require_teacher(teacher: str) -> None:
    """Raise RecipeError unless the teacher is a Hugging Face checkpoint, or a recipe of one."""
    if teacher.endswith((".yaml", ".yml")) or (Path(teacher) / "config.json").is_file():
        return
    raise RecipeError(f"teacher: {teacher} holds no Hugging Face checkpoint: no config.json in it")


def _sampled(
    recipe: Collecting,
    folder: Path,
    teacher: Path,
    rewrite: RewriteConfig,
    say: Callable[[str], None],
) -> tuple[Collected, dict[str, Any]]:
    spelling = load_tokenizer(teacher)
    sources, sets = sources_of(
        recipe.collect.problems,
        recipe.sets,
        lambda problem: len(prompt_ids(problem, spelling)) <= recipe.collect.max_prompt,
    )
    problems = _problems(recipe.collect, sources)
    held_out = _held_out(recipe, sources)
    names = sorted({LAYOUT, *(problem.verifier for problem in problems)})
    with ExitStack() as stack:
        pool = open_judges(
            names,
            recipe.collect.verifier_service,
            workers=recipe.collect.verifier_workers,
            limit_s=recipe.collect.verifier_limit_s,
        )
        stack.enter_context(pool)
        sampler = open_sampler(
            recipe.sampler,
            str(teacher),
            max_length=recipe.collect.max_prompt + recipe.max_tokens,
            say=say,
        )
        stack.callback(sampler.close)
        asked = Teacher(
            scribe=Scribe(spelling, load_generation_config(teacher)),
            sampler=sampler,
            pool=pool,
            max_tokens=recipe.max_tokens,
            seed=recipe.seed,
        )
        found = collect(
            asked, problems, recipe.collect, recipe.filters, rewrite, held_out, folder, say
        )
        verifiers = dict(pool.fingerprint(names))
    if not found.rows:
        dropped = json.dumps(dict(found.dropped))
        raise StageError(
            f"of {found.sampled} answers none was good enough to learn from; dropped: {dropped}"
        )
    told = {"evaluation_texts": held_out.texts, "sets": sets, "verifiers": verifiers}
    return found, _how(recipe, teacher) | told


def _how(recipe: Collecting, teacher: Path) -> dict[str, Any]:
    """What the samples were asked for with, for the card."""
    return {
        "teacher": str(teacher),
        "teacher_weights": weights_hash(teacher),
        "seed": recipe.seed,
        "problem_seed": recipe.collect.problem_seed,
        "temperature": recipe.collect.temperature,
        "filters": recipe.filters.model_dump(mode="json"),
    }


def _problems(config: CollectConfig, sources: Sources) -> list[Problem]:
    """Questions of the RL split, each asked once, the sources by their weights."""
    whole = sum(config.problems.values())
    found = [
        problem
        for name, weight in sorted(config.problems.items())
        for problem in sources[name].distinct(
            "rl", config.problem_seed, round(config.questions * weight / whole)
        )
    ]
    Random(f"collect/{config.problem_seed}").shuffle(found)
    return found


def _held_out(recipe: Collecting, sources: Sources) -> Overlap:
    """The evaluation questions of the sources, and the texts of a file."""
    asked: FilterConfig = recipe.filters
    texts = [
        problem.prompt
        for name in recipe.collect.problems
        for problem in sources[name].distinct("test", 0, recipe.evaluation.problems)
    ]
    if asked.against:
        try:
            for row in raw_rows(Path(asked.against)):
                texts += [v for v in row.values() if isinstance(v, str)]
        except (ValueError, AttributeError) as mistake:
            raise RecipeError(f"filters.against: {mistake}") from mistake
    return Overlap(texts if asked.overlap else (), asked.overlap or 1)


def _asked(recipe: Collecting, teacher: Path) -> str:
    """Hash of everything that the data depend on."""
    parts = recipe.model_dump(
        mode="json",
        include={
            "stage", "seed", "collect", "sets", "filters", "rewrite", "general", "max_tokens",
            "evaluation",
        },
    )  # fmt: skip
    for how in ("verifier_workers", "verifier_service"):
        parts["collect"].pop(how)
    if not parts["sets"]:
        parts.pop("sets")
    parts["evaluation"] = parts["evaluation"]["problems"]
    text = json.dumps([parts, weights_hash(teacher)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights_hash(folder: Path) -> str:
    """Hash of a checkpoint's weights: its manifest's, or that of the files themselves."""
    manifest = folder / MANIFEST
    if manifest.is_file():
        return hash_of(manifest)
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256("".join(map(hash_of, files)).encode()).hexdigest()
