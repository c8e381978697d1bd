"""The model card: README.md next to a checkpoint's weights, with what its run has recorded.

Facts that the record lacks are left out. Every text from data, models or recipes is escaped.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from veriloop.pipeline.config.fields import Part
from veriloop.pipeline.config.load import flat
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.report import identity_facts, tables
from veriloop.pipeline.report.markdown import cell, table, with_interval
from veriloop.pipeline.report.outcome import OTHER_MODEL
from veriloop.pipeline.report.read_run import Row, Run, Stage
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.console import plain

CARD = "README.md"
TASKS = {"reward_model": "text-classification"}  # stages whose model is no causal LM
HUB_CACHE = "models--"  # prefix of a repository's folder in the hub's cache
SAMPLING = ("step", "problems", "samples", "temperature", "failed", "mean_length", "truncated")
CONTROLS = {"random": "random rewards", "shuffled_groups": "rewards shuffled between groups"}
TEMPLATE = """\
---
{{ card_data }}
---

# {{ title }}

{{ summary }}
{% for heading, blocks in sections if blocks %}
## {{ heading }}

{{ blocks | join("\\n\\n") }}
{% endfor %}"""


def write_card(name: str, read: Callable[[], Run]) -> None:
    """Write the card of a stage of the run that `read` returns into the stage's checkpoint.

    A failure is printed to stderr and does not stop the run.
    """
    try:
        run = read()
        stage = run.stage(name)
        assert stage is not None, f"no stage {name} in {run.folder}"
        text = card(run, stage)
        path = Path(stage.entry["outputs"]["checkpoint"]) / CARD
        write_atomically(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))
    except Exception as failure:  # noqa: BLE001  a trained model matters more than its card
        print(f"no model card of {name}: {type(failure).__name__}: {failure}", file=sys.stderr)


def card(run: Run, stage: Stage) -> str:
    """The text of the card."""
    from huggingface_hub import ModelCard, ModelCardData

    recipe, name = stage.recipe, str(stage.recipe.get("name") or stage.name)
    loss = recipe.get("loss")
    methods = (
        recipe.get("algorithm", {}).get("preset"),
        loss.get("name") if isinstance(loss, Mapping) else loss,  # of a reward model it is a name
        recipe.get("method"),
    )
    metadata = ModelCardData(
        base_model=_hub_name(run, stage) or None,
        datasets=_hub_sets(stage) or None,
        library_name="transformers",
        model_name=plain(name),
        pipeline_tag=TASKS.get(stage.kind, "text-generation"),
        tags=["veriloop", *(plain(str(tag)) for tag in (stage.kind, *methods) if tag)],
    )
    sections = (
        ("Evaluation", _evaluation(stage)),
        ("Recipe", _recipe(stage)),
        ("Lineage", _lineage(run, stage)),
        ("Data", _data(stage)),
        ("Verifiers", _verifiers(run, stage)),
        ("How it was made", _how_it_was_made(run, stage)),
        ("Limits", _limits(stage)),
    )
    rendered = ModelCard.from_template(
        metadata,
        template_str=TEMPLATE,
        title=cell(name),
        summary=_summary(run, stage),
        sections=[(heading, [block for block in blocks if block]) for heading, blocks in sections],
    )
    return str(rendered)


def _hub_name(run: Run, stage: Stage) -> str:
    """The hub repository from which training started; "" if it is in no hub cache."""
    sources = {key: source for key, source, _ in identity_facts.made_from(stage, run.stages)}
    start = sources.get("start", "")
    earlier = run.stage(start.removesuffix(".checkpoint"))
    if earlier is not None and earlier.name != stage.name:
        return _hub_name(run, earlier)
    folders = [part for part in Path(start).parts if part.startswith(HUB_CACHE)]
    return plain(folders[-1].removeprefix(HUB_CACHE).replace("--", "/")) if folders else ""


def _summary(run: Run, stage: Stage) -> str:
    kind = STAGES.get(stage.kind)
    about = (kind.__doc__ or "").splitlines()[0] if kind else ""
    steps = f", after {len(stage.metrics):,} steps" if stage.metrics else ""
    origin = f"Made by the stage {cell(stage.name)} of the run {cell(run.name)}{steps}."
    return f"{about} {origin}".strip()


def _table(head: tuple[str, ...], rows: Iterable[list[str]]) -> str:
    """A Markdown table; "" without rows."""
    rows = list(rows)
    return table(head, rows) if rows else ""


def _evaluation(stage: Stage) -> list[str]:
    """Held-out metrics before and after, the decoding settings, and goals."""
    shares = tables.figures(stage)
    sides = [stage.entry.get(side) or {} for side in ("before", "after")]
    shown = {*SAMPLING, *(share.name for share in shares)}
    others = dict.fromkeys(n for side in sides for n in side if _is_number(side[n]))
    rows = [
        [share.name, with_interval(share.before, share.before_95),
         with_interval(share.after, share.after_95), share.gain_text]
        for share in shares
    ] + [
        [name, *(f"{side[name]:.4g}" if _is_number(side.get(name)) else "–" for side in sides), "–"]
        for name in others if name not in shown
    ]  # fmt: skip
    goals = [
        [name, tables.bounds(goal),
         "not reported" if goal.get("value") is None else tables.number(goal["value"]),
         "met" if goal["met"] else "missed"]
        for name, goal in (stage.entry.get("goals") or {}).items()
    ]  # fmt: skip
    decoding = tables.decoding(stage)
    return [
        _table(("held out", "before (95 %)", "after (95 %)", "gain (95 %)"), rows),
        f"{decoding}." if decoding else "",
        _table(("goal", "target", "reached", ""), goals),
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _recipe(stage: Stage) -> list[str]:
    """Its name and hash, and the settings that differ from their defaults."""
    digest = stage.entry.get("lineage", {}).get("recipe")
    name = stage.recipe.get("name")
    changed = own_settings(stage.recipe)
    return [
        f"{cell(str(name))}{f', sha256 {digest}' if digest else ''}." if name else "",
        _table(("setting", "default", "this recipe"),
               ([key, _json(default), _json(value)] for key, default, value in changed)),
    ]  # fmt: skip


def _json(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def own_settings(recipe: Row) -> list[tuple[str, Any, Any]]:
    """(key, default, value) of a recorded recipe's settings that differ from their defaults. The
    default of a required setting is None."""
    kind = STAGES.get(str(recipe.get("stage")))
    if kind is None:
        return []
    keys = {key for key, _ in flat(dict(recipe))} - {"stage", "name"}
    return [row for row in identity_facts.differences(defaults(kind), recipe) if row[0] in keys]


def defaults(kind: type[Part]) -> dict[str, Any]:
    """Default values of a recipe class as JSON values, without required settings."""
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if not field.is_required():
            values[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Part):
            values[name] = defaults(field.annotation)
    return values


def _lineage(run: Run, stage: Stage) -> list[str]:
    """Inputs of the stage and of the stages before it, and the checkpoint's hash."""
    rows = (
        [ancestor.name, ancestor.kind, key, source, digest]
        for ancestor in _ancestry(run, stage)
        for key, source, digest in identity_facts.made_from(ancestor, run.stages)
    )
    outputs = stage.entry.get("lineage", {}).get("outputs", {})
    digest = outputs.get("checkpoint", {}).get("sha256")
    return [
        _table(("stage", "kind", "input", "from", "sha256 of it"), rows),
        f"sha256 of this checkpoint (weights, configs, tokenizer): {digest}" if digest else "",
    ]


def _ancestry(run: Run, stage: Stage) -> list[Stage]:
    """The stage and all stages of the run that it depends on, in the run's order."""
    names, todo = {stage.name}, [stage]
    while todo:
        for _, source, _ in identity_facts.made_from(todo.pop(), run.stages):
            earlier = run.stage(source.partition(".")[0])
            if earlier is not None and earlier.name not in names:
                names.add(earlier.name)
                todo.append(earlier)
    return [ancestor for ancestor in run.stages if ancestor.name in names]


def _data(stage: Stage) -> list[str]:
    """Counts of rows and questions, their sources, and why rows were dropped."""
    blocks = []
    if (rows := identity_facts.rows_of(stage)) is not None:
        total, kept, dropped = rows
        out = cell(_reasons(dropped)) or "none"
        blocks.append(f"Of {total:,} rows {kept:,} are learned from; left out: {out}.")
    if stage.learns_from_rewards:
        questions, failed = (sum(stage.column(name)) for name in ("questions", "unscored"))
        text = f"{questions:,.0f} questions were asked; {failed:,.0f} answers could not be judged"
        learned = stage.kind == OTHER_MODEL  # from the teacher's distributions, judged or not
        blocks.append(f"{text}." if learned else f"{text} and were left out of training.")
    for name in ("sources", "languages"):
        counts = (stage.card.get(name) or {}).items()
        parts = ", ".join(f"{cell(str(key))} {count:,}" for key, count in counts)
        blocks.append(f"{name}: {parts}" if parts else "")
    sets = (
        [name, str(facts.get("path", "")), f"{facts['learned']:,}", f"{facts['held_out']:,}",
         _reasons(facts["dropped"])]
        for name, facts in _sets(stage).items()
    )  # fmt: skip
    return [*blocks, _table(("set", "from", "to learn from", "held out", "dropped"), sets)]


def _reasons(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())


def _sets(stage: Stage) -> Mapping[str, Row]:
    """Facts about the rows of each published set, by its name."""
    path = stage.folder / "sets.json"
    return json.loads(path.read_text()) if path.is_file() else stage.card.get("sets") or {}


def _hub_sets(stage: Stage) -> list[str]:
    """Hub repositories of the published sets; sets that were read from a file are left out."""
    files = {config.get("path") for config in (stage.recipe.get("sets") or {}).values()}
    paths = {facts.get("path") for facts in _sets(stage).values()}
    return sorted(path for path in paths - files if path)


def _verifiers(run: Run, stage: Stage) -> list[str]:
    """The verifiers that judged for this stage, in training or for its data."""
    used = identity_facts.verifiers(replace(run, stages=[stage]))
    versions = {name: version for name, version, _ in used} | (stage.card.get("verifiers") or {})
    rows = ([str(name), str(version)] for name, version in sorted(versions.items()))
    return [_table(("verifier", "version and fingerprint"), rows)]


def _how_it_was_made(run: Run, stage: Stage) -> list[str]:
    """The commands of the run up to this stage, and facts about the one that finished it."""
    started = str(stage.entry.get("started", ""))
    resumed = [c for c in run.manifest.get("resumed", []) if c.get("started", "") <= started]
    commands = [run.manifest, *resumed]
    lines = dict.fromkeys(command.get("command") for command in commands)
    facts = _facts(run, stage, {**run.manifest, **commands[-1]})
    return [
        "\n".join(f"    {plain(str(line))}" for line in lines if line),
        "\n".join(f"- {name}: {cell(text)}" for name, text in facts.items() if text),
    ]


def _facts(run: Run, stage: Stage, manifest: dict[str, Any]) -> dict[str, str]:
    """Times, code, machine, versions, seeds and sampler; "" for what is not recorded."""
    entry = stage.entry
    manifest |= {key: entry[key] for key in ("started", "seconds") if entry.get(key)}
    manifest["git"] = entry.get("lineage", {}).get("code") or manifest.get("git") or {}
    texts = dict(identity_facts.facts(replace(run, manifest=manifest, stages=[stage])))
    recorded = {
        "started": manifest.get("started"),
        "wall clock": manifest.get("seconds"),
        "commit": manifest["git"].get("commit") not in (None, "unknown"),
        "machine": manifest.get("machine"),
        "system": manifest.get("machine"),
        "versions": manifest.get("versions"),
    }
    seeds = [f"{key} {value}" for key, value in flat(dict(stage.recipe)) if key.endswith("seed")]
    return {name: texts[name] if value else "" for name, value in recorded.items()} | {
        "seeds": ", ".join(seeds),
        "sampler": str(entry.get("sampler") or ""),
    }


def _limits(stage: Stage) -> list[str]:
    """Limits that follow from the record."""
    recipe, after = stage.recipe, stage.entry.get("after") or {}
    sources = ", ".join((recipe.get("evaluation") or {}).get("sources") or ())
    control = CONTROLS.get((recipe.get("reward") or {}).get("control", ""))
    missed = [name for name, goal in (stage.entry.get("goals") or {}).items() if not goal["met"]]
    limits = {
        f"A control experiment, trained on {control}: it is meant to learn nothing.": control,
        f"It misses goals of its run: {cell(', '.join(missed))}.": missed,
        "It was not evaluated on held-out data.": not after,
        f"Accuracy was measured on held-out questions of {cell(sources)} alone.": (
            sources and "pass@1" in after
        ),
        "One run from one seed: intervals are over questions, not over runs.": any(
            tables.INTERVAL in name for name in after
        ),
        "Made from a working tree with uncommitted changes.": (
            stage.entry.get("lineage", {}).get("code", {}).get("dirty") is True
        ),
    }
    return ["\n".join(f"- {limit}" for limit, applies in limits.items() if applies)]
