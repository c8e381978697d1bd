"""The answers that the page carries: a few groups of each step, within a budget of bytes.

Of a step the best group, the worst, the middle one and the most divided are taken, every group
with a verifier's failure in it (two at most), those that an alarm points at, and prompts that
come again in other steps. Steps are taken from both ends inwards until the budget is spent.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.report.pieces import Pieces
from pipeline.report.scan import Group, at_places, components, plain_rows

Row = Mapping[str, Any]

ANSWERS = 16  # of a group, at most
TEXT, DETAIL = 12_000, 400  # characters of an answer and of a verifier's word
TOKENS = 1_500  # of an answer that are shown one by one
TRACED = 6_000  # tokens of a group; beyond, only its best, worst and middle answers are traced
ENDS = ("worst", "best", "middle", "most divided")
FOLLOWED = 6  # prompts that are looked at again and again
TRACKS = ("logp", "trainer_logp", "entropy", "token_advantage", "clipped")


def sampled(
    files: Sequence[tuple[int, Path]],
    groups: Sequence[Group],
    wanted: Mapping[tuple[int, int], str],
    pieces: Pieces | None,
    budget: int,
    *,
    follow: int = FOLLOWED,
) -> list[dict[str, Any]]:
    """[{step, groups: [...]}], steps rising, in at most `budget` bytes of JSON, or one step.

    `wanted` are (step, place) of groups that somebody points at, with why; `follow` of the prompts
    that come again are in every step that has them.
    """
    by_step: dict[int, list[Group]] = {}
    for group in groups:
        by_step.setdefault(group.step, []).append(group)
    paths = {step: path for step, path in files if step in by_step}
    pointed, again = _by_step(wanted), followed(groups, follow)
    found: dict[int, dict[str, Any]] = {}
    for step in _inwards(sorted(paths, key=lambda s: (s not in pointed, s))):
        chosen = _chosen(by_step[step], pointed.get(step, {}), again)
        made = {"step": step, "groups": _groups(paths[step], chosen, pieces)}
        budget -= len(json.dumps(made, ensure_ascii=False).encode("utf-8", "replace"))
        if budget < 0 and found:
            break
        found[step] = made
    return [found[step] for step in sorted(found)]


def followed(groups: Sequence[Group], most: int) -> set[str]:
    """Prompts that were asked in most steps; none where no prompt comes again."""
    steps = Counter(problem for _, problem in {(g.step, g.problem) for g in groups})
    return {problem for problem, count in steps.most_common(most) if count > 1}


def _by_step(wanted: Mapping[tuple[int, int], str]) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    for (step, place), why in wanted.items():
        found.setdefault(step, {})[place] = why
    return found


def _inwards(steps: Sequence[int]) -> Iterator[int]:
    """All steps: the first, the last, the middle, the quarters, and so on."""
    rising = sorted(steps)
    seen = set[int]()
    parts = 1
    while len(seen) < len(rising):
        for part in range(parts + 1):
            step = rising[round(part * (len(rising) - 1) / parts)]
            if step not in seen:
                seen.add(step)
                yield step
        parts *= 2


def _chosen(
    groups: Sequence[Group], pointed: Mapping[int, str], again: set[str]
) -> list[tuple[Group, str]]:
    """Groups to show, each with why, in the order of the step."""
    judged = sorted((g for g in groups if g.mean is not None), key=lambda g: g.mean or 0.0)
    why: dict[int, list[str]] = {}
    if judged:
        divided = max(judged, key=lambda g: g.spread)
        ends = (judged[0], judged[-1], judged[len(judged) // 2], divided)
        for group, told in zip(ends, ENDS, strict=True):
            why.setdefault(group.place, [told])
    for group in [group for group in groups if group.errors][:2]:
        why.setdefault(group.place, []).append("verifier failed")
    for group in groups:
        if group.place in pointed:
            why.setdefault(group.place, []).append(pointed[group.place])
        if group.problem in again:
            why.setdefault(group.place, []).append("comes again")
    return [(group, ", ".join(why[group.place])) for group in groups if group.place in why]


def _groups(
    path: Path, chosen: Sequence[tuple[Group, str]], pieces: Pieces | None
) -> list[dict[str, Any]]:
    places = sorted({at for group, _ in chosen for at in group.rows})
    rows = dict(zip(places, plain_rows(path, places), strict=True))
    picked = {group.place: _picked(group, rows) for group, _ in chosen}
    traced = [at for group, _ in chosen for at in _traced(picked[group.place], rows)]
    tracks = _tracks(path, sorted(traced))
    return [
        {
            "place": group.place,
            "why": told,
            "problem": group.problem,
            "source": group.source,
            "prompt": _cut(rows[group.rows[0]]["prompt"], TEXT),
            "verifier": rows[group.rows[0]]["verifier"],
            "reference": rows[group.rows[0]]["reference"],
            "facts": rows[group.rows[0]]["facts"],
            "mean": group.mean,
            "spread": group.spread,
            "n": len(group.rows),
            "answers": [
                _answer(rows[at], group.rows.index(at), tracks.get(at), pieces)
                for at in picked[group.place]
            ],
        }
        for group, told in chosen
    ]


def _picked(group: Group, rows: Mapping[int, Row]) -> list[int]:
    """Answers of a group to show: all, or evenly through them by reward."""
    if len(group.rows) <= ANSWERS:
        return list(group.rows)
    rising = sorted(group.rows, key=lambda at: _reward(rows[at]))
    last = len(rising) - 1
    return sorted({rising[round(k * last / (ANSWERS - 1))] for k in range(ANSWERS)})


def _traced(picked: Sequence[int], rows: Mapping[int, Row]) -> list[int]:
    if sum(min(rows[at]["length"], TOKENS) for at in picked) <= TRACED:
        return list(picked)
    rising = sorted(picked, key=lambda at: _reward(rows[at]))
    return sorted({rising[0], rising[len(rising) // 2], rising[-1]})


def _reward(row: Row) -> float:
    return -1e9 if row["reward"] is None else row["reward"]


def _tracks(path: Path, rows: Sequence[int]) -> dict[int, Row]:
    """The columns of tokens, of these rows alone."""
    file = pq.ParquetFile(path)
    named = [n for n in ("response_ids", *TRACKS) if n in file.schema_arrow.names]
    table = at_places(file.read(named), rows)
    return dict(zip(rows, table.to_pylist(), strict=True))


def _answer(row: Row, i: int, track: Row | None, pieces: Pieces | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "i": i,
        "reward": row["reward"],
        "advantage": _rounded(row["advantage"], 4),
        "finish": row["finish"],
        "length": row["length"],
        "text": _cut(row["response"], TEXT),
        "queue_s": _rounded(row["queue_s"], 6),
        "exec_s": _rounded(row["exec_s"], 6),
        "verdicts": [_verdict(row, name) for name in components(row)],
    }
    if track is not None:
        told["tokens"] = _tokens(track, pieces)
    return told


def _verdict(row: Row, name: str) -> dict[str, Any]:
    told = {
        "name": name,
        "score": row[f"reward/{name}"],
        "status": row[f"status/{name}"],
        "answer": _cut(row[f"answer/{name}"], DETAIL),
        "detail": _cut(row[f"detail/{name}"], DETAIL),
    }
    parts = row.get(f"components/{name}")
    return told | ({"parts": json.loads(parts)} if parts and parts != "{}" else {})


def _tokens(track: Row, pieces: Pieces | None) -> dict[str, Any]:
    """Whole numbers, so that a page holds many: nats in thousandths, ids or places in a table."""
    ids = track["response_ids"][:TOKENS]
    told: dict[str, Any] = {"ids": ids} if pieces is None else {"places": pieces.places(ids)}
    told["logp"] = _thousandths(track["logp"])
    if track.get("trainer_logp") is not None:
        pairs = zip(track["trainer_logp"], track["logp"], strict=True)
        told["off"] = [round(1e4 * (mine - theirs)) for mine, theirs in pairs][:TOKENS]
        told["entropy"] = _thousandths(track["entropy"])
        advantages = track["token_advantage"]
        same = len(set(advantages)) == 1
        told["advantage"] = (
            _rounded(advantages[0], 3) if same else [_rounded(a, 3) for a in advantages[:TOKENS]]
        )
        told["clipped"] = [[t, side] for t, side in enumerate(track["clipped"][:TOKENS]) if side]
    return told


def _thousandths(values: Sequence[float]) -> list[int]:
    return [round(1e3 * value) for value in values[:TOKENS]]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _cut(text: str | None, limit: int) -> str | None:
    """Two thirds from its start, the rest its end, and how much is left out between."""
    if text is None or len(text) <= limit:
        return text
    front, back = limit * 2 // 3, limit // 3
    return f"{text[:front]}\n[… {len(text) - front - back:,} characters …]\n{text[-back:]}"
