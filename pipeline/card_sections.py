"""The sections of a model card: blocks of Markdown, none where the record says nothing."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.console import plain
from pipeline.own_settings import own_settings
from pipeline.recipes import flat
from pipeline.report import identity_facts, tables
from pipeline.report.cells import cell, table, with_interval
from pipeline.report.reading import Row, Run, Stage

SAMPLING = ("step", "problems", "samples", "temperature", "failed", "mean_length", "truncated")
CONTROLS = {"random": "random rewards", "shuffled_groups": "rewards dealt out at random"}


def evaluation(stage: Stage) -> list[str]:
    """Figures of held-out data before and after, how they were taken, and goals."""
    goals = [_goal(name, one) for name, one in (stage.entry.get("goals") or {}).items()]
    rows, decoding = _figures(stage), tables.decoding(stage)
    blocks = [
        table(("held out", "before (95 %)", "after (95 %)"), rows) if rows else "",
        f"{decoding}." if decoding else "",
        table(("goal", "asked", "reached", ""), goals) if goals else "",
    ]
    return [block for block in blocks if block]


def _figures(stage: Stage) -> list[list[str]]:
    """Shares with their intervals, then every other number that was measured."""
    shares = tables.figures(stage)
    sides = [stage.entry.get(side) or {} for side in ("before", "after")]
    known = {*SAMPLING, *(figure.name for figure in shares)}
    others = dict.fromkeys(name for side in sides for name, v in side.items() if _number(v))
    return [
        [f.name, with_interval(f.before, f.before_95), with_interval(f.after, f.after_95)]
        for f in shares
    ] + [
        [name, *(f"{side[name]:.4g}" if _number(side.get(name)) else "–" for side in sides)]
        for name in others
        if name not in known
    ]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _goal(name: str, one: Row) -> list[str]:
    reached = "not reported" if one.get("value") is None else tables.number(one["value"])
    return [name, tables.bounds(one), reached, "met" if one["met"] else "missed"]


def recipe(stage: Stage) -> list[str]:
    """Its name and hash, and the settings that somebody chose."""
    recipe, told = stage.recipe, stage.entry.get("lineage", {}).get("recipe")
    rows = [[key, _json(there), _json(here)] for key, there, here in own_settings(recipe)]
    hashed = f", sha256 {told}" if told else ""
    named = f"{cell(str(recipe['name']))}{hashed}." if recipe.get("name") else ""
    settings = table(("set", "by default", "here"), rows) if rows else ""
    return [one for one in (named, settings) if one]


def _json(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def lineage(run: Run, stage: Stage) -> list[str]:
    """What the stage and those before it read, and the hash of what came of it."""
    rows = [
        [one.name, one.kind, key, source, digits]
        for one in _ancestry(run, stage)
        for key, source, digits in identity_facts.made_from(one, run.stages)
    ]
    made = stage.entry.get("lineage", {}).get("outputs", {}).get("checkpoint", {}).get("sha256")
    own = f"sha256 of this checkpoint, weights, configs and tokenizer: {made}" if made else ""
    head = ("stage", "kind", "read", "from", "sha256 of it")
    return [one for one in (table(head, rows) if rows else "", own) if one]


def _ancestry(run: Run, stage: Stage) -> list[Stage]:
    """The stage, and those of the run that it has read from, and so on; in the run's order."""
    wanted, todo = {stage.name}, [stage]
    while todo:
        for _, source, _ in identity_facts.made_from(todo.pop(), run.stages):
            earlier = run.stage(source.partition(".")[0])
            if earlier is not None and earlier.name not in wanted:
                wanted.add(earlier.name)
                todo.append(earlier)
    return [one for one in run.stages if one.name in wanted]


def data(stage: Stage) -> list[str]:
    """Rows and questions: how many, from where, and why others were left out."""
    blocks = [*_rows(stage), *_asked(stage)]
    counts = [(name, stage.card.get(name) or {}) for name in ("sources", "languages")]
    blocks += [
        f"{name}: " + ", ".join(f"{cell(str(key))} {count:,}" for key, count in found.items())
        for name, found in counts
        if found
    ]
    sets = [
        [
            name,
            str(one.get("path", "")),
            f"{one['learned']:,}",
            f"{one['held_out']:,}",
            _reasons(one["dropped"]),
        ]
        for name, one in sets_of(stage).items()
    ]
    head = ("set", "from", "to learn from", "held out", "dropped")
    return blocks + ([table(head, sets)] if sets else [])


def _rows(stage: Stage) -> list[str]:
    found = identity_facts.rows_of(stage)
    if found is None:
        return []
    seen, kept, lost = found
    out = cell(_reasons(lost)) or "none"
    return [f"Of {seen:,} rows {kept:,} are learned from; left out: {out}."]


def _reasons(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {why}" for why, count in lost.items())


def _asked(stage: Stage) -> list[str]:
    if not stage.learns_from_rewards:
        return []
    asked, failed = (sum(stage.column(name)) for name in ("questions", "unscored"))
    told = f"{failed:,.0f} answers could not be judged, and nothing was learned from them."
    return [f"{asked:,.0f} questions were asked; {told}"]


def sets_of(stage: Stage) -> Mapping[str, Row]:
    """What became of the rows of published sets, by the name of the set."""
    path = stage.folder / "sets.json"
    return json.loads(path.read_text()) if path.is_file() else stage.card.get("sets") or {}


def hub_sets(stage: Stage) -> list[str]:
    """Repositories of published sets that the stage read from the hub, and from no file."""
    files = {config.get("path") for config in (stage.recipe.get("sets") or {}).values()}
    paths = {one.get("path") for one in sets_of(stage).values()}
    return sorted(path for path in paths - files if path)


def verifiers(run: Run, stage: Stage) -> list[str]:
    """Those that judged for this stage, in training or for its data."""
    found = identity_facts.verifiers(replace(run, stages=[stage]))
    judged = {name: version for name, version, _ in found} | (stage.card.get("verifiers") or {})
    rows = [[str(name), str(version)] for name, version in sorted(judged.items())]
    return [table(("verifier", "version and fingerprint"), rows)] if rows else []


def made(run: Run, stage: Stage) -> list[str]:
    """The commands, and the circumstances of the last one."""
    commands = dict.fromkeys(one.get("command") for one in _commands(run, stage))
    typed = "\n".join(f"    {plain(str(one))}" for one in commands if one)
    listed = "\n".join(f"- {name}: {cell(text)}" for name, text in _facts(run, stage))
    return [one for one in (typed, listed) if one]


def _commands(run: Run, stage: Stage) -> list[Row]:
    """Those of the run up to the one that ended the stage, with their machine and versions."""
    began = str(stage.entry.get("started", ""))
    later = [one for one in run.manifest.get("resumed", []) if one.get("started", "") <= began]
    return [run.manifest, *later]


def _facts(run: Run, stage: Stage) -> list[tuple[str, str]]:
    """Seeds, sampler, times, and the machine and the versions of the command that ended it."""
    entry, recipe = stage.entry, stage.recipe
    told = {**run.manifest, **_commands(run, stage)[-1]}
    told |= {key: entry[key] for key in ("started", "seconds") if entry.get(key)}
    told["git"] = entry.get("lineage", {}).get("code") or told.get("git") or {}
    texts = dict(identity_facts.facts(replace(run, manifest=told, stages=[stage])))
    known = {
        "started": told.get("started"),
        "wall clock": told.get("seconds"),
        "commit": told["git"].get("commit") not in (None, "unknown"),
        "machine": told.get("machine"),
        "system": told.get("machine"),
        "versions": told.get("versions"),
    }
    seeds = [f"{key} {value}" for key, value in flat(dict(recipe)) if key.endswith("seed")]
    more = {"seeds": ", ".join(seeds), "sampler": str(entry.get("sampler") or "")}
    facts = {name: texts[name] for name, here in known.items() if here} | more
    return [(name, text) for name, text in facts.items() if text]


def limits(stage: Stage) -> list[str]:
    """What follows from the record alone."""
    recipe, after = stage.recipe, stage.entry.get("after") or {}
    sources = ", ".join((recipe.get("evaluation") or {}).get("sources") or ())
    control = CONTROLS.get((recipe.get("reward") or {}).get("control", ""))
    missed = [name for name, one in (stage.entry.get("goals") or {}).items() if not one["met"]]
    limits = {
        f"A control experiment, trained on {control}: it is meant to learn nothing.": control,
        f"It misses what its run asked for: {cell(', '.join(missed))}.": missed,
        "Nothing was measured on data that it has not seen.": not after,
        f"Accuracy was measured on held-out questions of {cell(sources)} alone.": (
            sources and "pass@1" in after
        ),
        "One run from one seed: intervals are over questions, not over runs.": any(
            tables.INTERVAL in name for name in after
        ),
        "Made by code that no commit holds.": (
            stage.entry.get("lineage", {}).get("code", {}).get("dirty") is True
        ),
    }
    told = "\n".join(f"- {limit}" for limit, holds in limits.items() if holds)
    return [told] if told else []
