"""SFT data sampled from a teacher, with a data card, for cold start and rejection sampling."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from veriloop.data.card import card_of, hash_of, read_card, write_data
from veriloop.data.columns import raw_rows
from veriloop.data.counts import counted
from veriloop.data.decontaminate import Overlap, texts_of
from veriloop.data.problem import Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.preference import CollectPreferencesRecipe
from veriloop.pipeline.config.sft import (
    ColdStartRecipe,
    CollectConfig,
    RejectionRecipe,
    RewriteConfig,
)
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.prompt_limit import PromptLimit
from veriloop.pipeline.rollouts.sources import Sources, held_out_problems, sources_of
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.checkpoint_files import MANIFEST
from veriloop.pipeline.runs.console import activity, say
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sft.rejection_sampling import LAYOUT, CollectedRows, Teacher, collect
from veriloop.stages.stage_run import StageRun, open_verifiers, sandbox_facts, starting_point
from veriloop.stages.staleness import current_fingerprints
from veriloop.verifiers.text.language import language_code

CollectRecipe = ColdStartRecipe | RejectionRecipe
Rows = Sequence[dict[str, Any]]
# adds rows without texts of the evaluation; returns all rows, facts for the card
Mixer = Callable[[Rows, Overlap], tuple[Rows, Mapping[str, Any]]]


def collect_data(
    recipe: CollectRecipe,
    stage: StageRun,
    *,
    rewrite: RewriteConfig | None = None,
    mix: Mixer = lambda rows, _: (rows, {}),
) -> dict[str, str]:
    """Write data.jsonl and its card; returns them as outputs of the stage.

    Complete data of the same recipe, teacher and files are reused. Raises StageError if no
    completion was accepted.
    """
    teacher = starting_point(recipe.teacher, stage.manifest, "teacher_base")
    path = stage.directory / "data.jsonl"
    asked = _asked(recipe, teacher)
    card = read_card(path)
    # A stage that has begun to train goes on with its data; `evaluation` may have changed since.
    if card is not None and (stage.saved is not None or is_current(card, asked, recipe)):
        print(f"data: {counted(card['rows'], 'row')} from an earlier run")
        return _outputs(path)
    held_out = _held_out(recipe)
    collected, facts = _sample(
        recipe, stage.directory, teacher, rewrite or RewriteConfig(), asked, held_out
    )
    rows, more = mix(collected.rows, held_out)
    facts |= {
        "stage": recipe.stage,
        "questions": collected.questions,
        "sampled": collected.sampled,
        "kept": len(collected.rows),
        "dropped": dict(collected.dropped),
        "sources": dict(Counter(row["source"] for row in rows)),
        "languages": dict(Counter(row.get("language") or "unknown" for row in rows)),
        **more,
    }
    write_data(path, rows, facts)
    print(
        f"data: {counted(len(rows), 'row')} in {path}; "
        f"dropped {json.dumps(dict(collected.dropped))}"
    )
    return _outputs(path)


def _outputs(path: Path) -> dict[str, str]:
    return {"data": str(path), "card": str(card_of(path)), "data_sha256": hash_of(path)}


def require_teacher(teacher: str) -> None:
    """Raise RecipeError unless the teacher is a Hugging Face checkpoint or a base recipe."""
    if not teacher.endswith((".yaml", ".yml")):
        find_checkpoint(teacher, "teacher")


def _sample(
    recipe: CollectRecipe,
    directory: Path,
    teacher: Path,
    rewrite: RewriteConfig,
    asked: str,
    held_out: Overlap,
) -> tuple[CollectedRows, dict[str, Any]]:
    """The accepted rows and, for the card, how they were sampled."""
    tokenizer = load_tokenizer(teacher)
    config = recipe.collect
    generator = RolloutGenerator(
        tokenizer, load_generation_config(teacher), config.template, config.system
    )
    sources, sets = sources_of(
        config.problems,
        recipe.sets,
        PromptLimit(
            "collect.max_prompt", config.max_prompt, lambda problem: len(generator.prompt(problem))
        ),
    )
    problems = distinct_problems(config, sources)
    _require_languages(problems)
    names = sorted({LAYOUT, *(problem.verifier for problem in problems)})
    with ExitStack() as stack:
        pool = open_verifiers(stack, config, names, directory)
        verifiers = dict(pool.fingerprint(names))
        key = data_key(asked, verifiers)
        folder = directory / f"samples-{key}"
        sampler = open_sampler(
            recipe.sampler,
            str(teacher),
            max_length=config.max_prompt + recipe.max_tokens,
            say=say,
        )
        stack.callback(sampler.close)
        model = Teacher(
            generator=generator,
            sampler=sampler,
            pool=pool,
            max_tokens=recipe.max_tokens,
            seed=recipe.seed,
        )
        with activity("sampling the teacher", len(problems)) as part:
            collected = collect(
                *(model, problems, config, recipe.filters, rewrite, held_out, folder, say),
                on_question=part.advance,
            )
        sandbox = sandbox_facts(config, names)
    if not collected.rows:
        dropped = json.dumps(dict(collected.dropped))
        raise StageError(
            f"of {collected.sampled} answers none was good enough to learn from; dropped: {dropped}"
        )
    return collected, {
        "asked": key,
        "teacher": str(teacher),
        "teacher_weights": weights_hash(teacher),
        "seed": recipe.seed,
        "problem_seed": config.problem_seed,
        "temperature": config.temperature,
        "filters": recipe.filters.model_dump(mode="json"),
        "evaluation_texts": held_out.texts,
        "sets": sets,
        "verifiers": verifiers,
        **({"sandbox": sandbox} if sandbox else {}),
    }


def apportioned(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """`total` in proportion to the weights, by the largest remainders; of equal ones the first by
    name."""
    shares = {name: total * weights[name] / sum(weights.values()) for name in sorted(weights)}
    counts = {name: int(share) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: counts[name] - shares[name])
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def distinct_problems(
    config: CollectConfig | CollectPreferencesRecipe, sources: Sources
) -> list[Problem]:
    """Distinct problems of the RL split, in proportion to the sources' weights, shuffled. A source
    with fewer, or without any for its weight, is named on the console."""
    problems: list[Problem] = []
    for name, count in apportioned(config.questions, config.problems).items():
        if not count:
            weight = config.problems[name]
            say(f"{name}: none of {config.questions} questions at a weight of {weight:g}")
        distinct = list(sources[name].distinct("rl", config.problem_seed, count))
        if len(distinct) < count:
            say(f"{name} has {len(distinct)} distinct questions, not {count}: all are asked")
        problems += distinct
    Random(f"collect/{config.problem_seed}").shuffle(problems)
    return problems


def _require_languages(problems: Iterable[Problem]) -> None:
    """Raise RecipeError for a question in a language whose words cannot be counted."""
    asked = {(source_of(p), p.facts["language"]) for p in problems if "language" in p.facts}
    for source, tag in sorted(asked):
        try:
            language_code(tag)
        except ValueError as mistake:
            raise RecipeError(f"questions of {source}: {mistake}") from mistake


def _held_out(recipe: CollectRecipe) -> Overlap:
    """The texts to decontaminate against: evaluation questions of any length, and those of
    `filters.against`."""
    filters = recipe.filters
    exam, _ = sources_of(recipe.evaluation.sources, recipe.sets)
    questions = [problem.prompt for problem in held_out_problems(recipe.evaluation, exam)]
    texts: list[str] = []
    if filters.against:
        try:
            texts = list(_texts_in(Path(filters.against)))
        except (ValueError, AttributeError) as mistake:
            raise RecipeError(f"filters.against: {mistake}") from mistake
        if not texts:
            raise RecipeError(f"filters.against: {filters.against} holds no text")
    if not filters.overlap:
        return Overlap(())
    return Overlap(texts, filters.overlap, questions=questions)


def _texts_in(path: Path) -> Iterator[str]:
    for row in raw_rows(path):
        for column, value in row.items():
            if column not in ("label", "id"):
                yield from texts_of(value)


def data_key(asked: str, verifiers: Mapping[str, str]) -> str:
    """Hash of everything that collected data depend on: `asked`, which is all that is known before
    the problems are read, and the fingerprints of the verifiers, by name."""
    text = json.dumps([asked, dict(verifiers)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_current(card: Mapping[str, Any], asked: str, recipe: object) -> bool:
    """Whether data with this card depend on `asked` and on the verifiers as they are now."""
    judged_by = card.get("verifiers", {})
    try:
        now = current_fingerprints(list(judged_by), recipe)
    except KeyError:  # one of them is gone
        return False
    return card["asked"] == data_key(asked, now)


def _asked(recipe: CollectRecipe, teacher: Path) -> str:
    """Hash of the settings, the content of files and the teacher's checkpoint."""
    values = recipe.model_dump(
        mode="json",
        include={
            "stage", "seed", "collect", "sets", "filters", "rewrite", "general", "max_tokens",
            "evaluation", "plugins", "sampler",
        },
    )  # fmt: skip
    values["evaluation"] = {key: values["evaluation"][key] for key in ("sources", "problems")}
    reads = lineage.read_by(values)
    files = {key: entry["sha256"] for key, entry in reads["inputs"].items()}
    text = json.dumps([reads["recipe"], files, lineage.checkpoint_hash(teacher)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def weights_hash(folder: Path) -> str:
    """Hash of a checkpoint's manifest, or of its safetensors files if it has none."""
    manifest = folder / MANIFEST
    if manifest.is_file():
        return hash_of(manifest)
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256("".join(map(hash_of, files)).encode()).hexdigest()
