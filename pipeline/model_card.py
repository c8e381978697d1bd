"""README.md beside the weights: what a checkpoint is, as its run has recorded it and nothing else.

Hugging Face's layout: YAML, then Markdown. What the record does not know is left out.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline import card_sections
from pipeline.console import plain
from pipeline.durable import write_atomically
from pipeline.recipe_kinds import STAGES
from pipeline.report import identity_facts
from pipeline.report.cells import cell
from pipeline.report.reading import Run, Stage

CARD = "README.md"
TASKS = {"reward_model": "text-classification"}  # of stages that make no causal LM
CACHED = "models--"  # begins a folder of the hub's cache, which is called after its repository


def note(name: str, read: Callable[[], Run]) -> None:
    """Write the card of a stage of the run that `read` gives, into the checkpoint it has made.

    One that cannot be written is told of on stderr: what was trained counts, not its card.
    """
    try:
        run = read()
        stage = run.stage(name)
        assert stage is not None, f"no stage {name} in {run.folder}"
        text = card(run, stage)
        path = Path(stage.entry["outputs"]["checkpoint"]) / CARD
        write_atomically(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))
    except Exception as failure:  # noqa: BLE001  whatever it is, the run goes on
        print(f"no model card of {name}: {type(failure).__name__}: {failure}", file=sys.stderr)


def card(run: Run, stage: Stage) -> str:
    """The whole card. Text of data, models and names is escaped."""
    parts = [
        f"# {cell(_title(stage))}",
        _what(run, stage),
        *_headed("Evaluation", card_sections.evaluation(stage)),
        *_headed("Recipe", card_sections.recipe(stage)),
        *_headed("Lineage", card_sections.lineage(run, stage)),
        *_headed("Data", card_sections.data(stage)),
        *_headed("Verifiers", card_sections.verifiers(run, stage)),
        *_headed("How it was made", card_sections.made(run, stage)),
        *_headed("Limits", card_sections.limits(stage)),
    ]
    front = yaml.safe_dump(front_matter(run, stage), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"


def front_matter(run: Run, stage: Stage) -> dict[str, Any]:
    """What the hub reads. Of a start that is on no hub there is no `base_model`: a path would name
    nothing there."""
    recipe = stage.recipe
    how = [
        recipe.get("algorithm", {}).get("preset"),
        recipe.get("loss", {}).get("name"),
        recipe.get("method"),
    ]
    told: dict[str, Any] = {
        "base_model": _hub_name(run, stage),
        "library_name": "transformers",
        "model_name": plain(_title(stage)),
        "pipeline_tag": TASKS.get(stage.kind, "text-generation"),
        "tags": ["veriloop", *(plain(str(one)) for one in (stage.kind, *how) if one)],
        "datasets": card_sections.hub_sets(stage),
    }
    return {key: value for key, value in told.items() if value}


def _title(stage: Stage) -> str:
    return str(stage.recipe.get("name") or stage.name)


def _hub_name(run: Run, stage: Stage) -> str:
    """The repository at the root of what was trained; "" where it lies in no cache of the hub."""
    sources = {key: source for key, source, _ in identity_facts.made_from(stage, run.stages)}
    start = sources.get("start", "")
    earlier = run.stage(start.removesuffix(".checkpoint"))
    if earlier is not None and earlier.name != stage.name:
        return _hub_name(run, earlier)
    cached = [part for part in Path(start).parts if part.startswith(CACHED)]
    return plain(cached[-1].removeprefix(CACHED).replace("--", "/")) if cached else ""


def _headed(title: str, blocks: Sequence[str]) -> list[str]:
    """The section; nothing where the record says nothing about it."""
    return [f"## {title}", *blocks] if blocks else []


def _what(run: Run, stage: Stage) -> str:
    kind = STAGES.get(stage.kind)
    about = (kind.__doc__ or "").splitlines()[0] if kind else ""
    steps = f", after {len(stage.metrics):,} steps" if stage.metrics else ""
    where = f"Made by the stage {cell(stage.name)} of the run {cell(run.name)}{steps}."
    return f"{about} {where}".strip()
