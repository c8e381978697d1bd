"""The answers that the page includes: a few groups per step, within a budget of bytes.

Each step contributes its best, worst, middle and most divided group, up to two groups with a
verifier failure, groups with an alarm, and prompts that are repeated in other steps. Steps are
added until the budget is used up: the first, the last, the middle one, and so on by halves.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from veriloop.pipeline.report.rollout_stats import Group, components, scalar_rows, select_rows
from veriloop.pipeline.report.token_pieces import TokenPieces
from veriloop.pipeline.runs.rollout_file import reading

Row = Mapping[str, Any]

ANSWERS = 16  # per group, at most
TEXT, DETAIL = 12_000, 400  # characters of an answer and of a verdict's detail
TOKENS = 1_500  # per answer, shown one by one
TRACED = 6_000  # tokens per group; beyond, only the best, worst and middle answer have tokens
ENDS = ("worst", "best", "middle", "most divided")
FOLLOWED = 6  # repeated prompts that are shown at every step
TRACKS = ("logp", "trainer_logp", "entropy", "token_advantage", "clipped")


def sampled(
    files: Sequence[tuple[int, Path]],
    groups: Sequence[Group],
    linked: Mapping[tuple[int, int], str],
    pieces: TokenPieces | None,
    budget: int,
    *,
    follow: int = FOLLOWED,
) -> list[dict[str, Any]]:
    """[{step, groups: [...]}], steps ascending, in at most `budget` bytes of JSON.

    `linked` maps (step, group index) of groups that the page links to to the reason. `follow` is
    the number of repeated prompts that every step includes. One step is always returned.
    """
    by_step: dict[int, list[Group]] = {}
    for group in groups:
        by_step.setdefault(group.step, []).append(group)
    paths = {step: path for step, path in files if step in by_step}
    repeated = most_repeated(groups, follow)
    entries: dict[int, dict[str, Any]] = {}
    for step in _inwards(sorted(paths)):
        reasons = {index: reason for (s, index), reason in linked.items() if s == step}
        chosen = _choose(by_step[step], reasons, repeated)
        entry = {"step": step, "groups": _groups(paths[step], chosen, pieces)}
        budget -= len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace"))
        if budget < 0 and entries:
            break
        entries[step] = entry
    return [entries[step] for step in sorted(entries)]


def most_repeated(groups: Sequence[Group], count: int) -> set[tuple[str, str]]:
    """The keys of the prompts that occur in most steps, of those that occur in several."""
    steps = Counter(key for _, key in {(g.step, g.key) for g in groups})
    return {key for key, times in steps.most_common(count) if times > 1}


def _inwards(steps: Sequence[int]) -> Iterator[int]:
    """All steps: the first, the last, the middle, the quarters, and so on."""
    done = set[int]()
    parts = 1
    while len(done) < len(steps):
        for part in range(parts + 1):
            step = steps[round(part * (len(steps) - 1) / parts)]
            if step not in done:
                done.add(step)
                yield step
        parts *= 2


def _choose(
    groups: Sequence[Group], linked: Mapping[int, str], repeated: set[tuple[str, str]]
) -> list[tuple[Group, str]]:
    """Groups to show with the reasons, in the order of the step. `linked` has reasons by index."""
    judged = sorted((g for g in groups if g.mean is not None), key=lambda g: g.mean or 0.0)
    reasons: dict[int, list[str]] = {}
    if judged:
        divided = max(judged, key=lambda g: g.spread)
        ends = (judged[0], judged[-1], judged[len(judged) // 2], divided)
        for group, end in zip(ends, ENDS, strict=True):
            reasons.setdefault(group.index, [end])
    for group in [group for group in groups if group.errors][:2]:
        reasons.setdefault(group.index, []).append("verifier failed")
    for group in groups:
        if group.index in linked:
            reasons.setdefault(group.index, []).append(linked[group.index])
        if group.key in repeated:
            reasons.setdefault(group.index, []).append("repeated")
    return [(group, ", ".join(reasons[group.index])) for group in groups if group.index in reasons]


def _groups(
    path: Path, chosen: Sequence[tuple[Group, str]], pieces: TokenPieces | None
) -> list[dict[str, Any]]:
    numbers = sorted({number for group, _ in chosen for number in group.rows})
    rows = dict(zip(numbers, scalar_rows(path, numbers), strict=True))
    shown = {group.index: _shown_rows(group, rows) for group, _ in chosen}
    traced = [number for group, _ in chosen for number in _traced_rows(shown[group.index], rows)]
    tracks = _tracks(path, sorted(traced))
    return [
        {
            "index": group.index,
            "why": reason,
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
                _answer(rows[number], group.rows.index(number), tracks.get(number), pieces)
                for number in shown[group.index]
            ],
        }
        for group, reason in chosen
    ]


def _shown_rows(group: Group, rows: Mapping[int, Row]) -> list[int]:
    """Rows of a group to show: all, or ANSWERS of them, evenly spaced by reward."""
    if len(group.rows) <= ANSWERS:
        return list(group.rows)
    ascending = sorted(group.rows, key=lambda number: _reward(rows[number]))
    last = len(ascending) - 1
    return sorted({ascending[round(k * last / (ANSWERS - 1))] for k in range(ANSWERS)})


def _traced_rows(shown: Sequence[int], rows: Mapping[int, Row]) -> list[int]:
    """Rows whose tokens are shown."""
    if sum(min(rows[number]["length"], TOKENS) for number in shown) <= TRACED:
        return list(shown)
    ascending = sorted(shown, key=lambda number: _reward(rows[number]))
    return sorted({ascending[0], ascending[len(ascending) // 2], ascending[-1]})


def _reward(row: Row) -> float:
    return -1e9 if row["reward"] is None else row["reward"]


def _tracks(path: Path, rows: Sequence[int]) -> dict[int, Row]:
    """The per-token columns of some rows, by row number."""
    with reading(path):
        file = pq.ParquetFile(path)
        columns = [n for n in ("response_ids", *TRACKS) if n in file.schema_arrow.names]
        table = select_rows(file.read(columns), rows)
    return dict(zip(rows, table.to_pylist(), strict=True))


def _answer(row: Row, i: int, track: Row | None, pieces: TokenPieces | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
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
    if row.get("step_ends") is not None:  # not in files of earlier versions
        answer["steps"] = [*zip(row["step_ends"], row["step_scores"], strict=True)]
    if track is not None:
        answer["tokens"] = _tokens(track, pieces)
    return answer


def _verdict(row: Row, name: str) -> dict[str, Any]:
    verdict = {
        "name": name,
        "score": row[f"reward/{name}"],
        "status": row[f"status/{name}"],
        "answer": _cut(row[f"answer/{name}"], DETAIL),
        "detail": _cut(row[f"detail/{name}"], DETAIL),
    }
    parts = row.get(f"components/{name}")
    return verdict | ({"parts": json.loads(parts)} if parts and parts != "{}" else {})


def _tokens(track: Row, pieces: TokenPieces | None) -> dict[str, Any]:
    """Per-token values as short integers: nats in thousandths, ids or indices of their texts.
    Values that are not finite, of an update that `nonfinite: skip` left out, are None."""
    ids = track["response_ids"][:TOKENS]
    tokens: dict[str, Any] = {"ids": ids} if pieces is None else {"pieces": pieces.indices(ids)}
    tokens["logp"] = _integers(track["logp"], 1e3)
    if track.get("trainer_logp") is not None:
        pairs = zip(track["trainer_logp"], track["logp"], strict=True)
        tokens["off"] = _integers([trainer - sampler for trainer, sampler in pairs], 1e4)
        tokens["entropy"] = _integers(track["entropy"], 1e3)
        same = len(set(track["token_advantage"])) == 1
        advantages = [_rounded(a, 3) for a in track["token_advantage"][:TOKENS]]
        tokens["advantage"] = advantages[0] if same else advantages
        tokens["clipped"] = [[t, side] for t, side in enumerate(track["clipped"][:TOKENS]) if side]
    return tokens


def _integers(values: Sequence[float], scale: float) -> list[int | None]:
    scaled = [scale * value for value in values[:TOKENS]]
    return [round(value) if math.isfinite(value) else None for value in scaled]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _cut(text: str | None, limit: int) -> str | None:
    """The first two thirds and the last third of `limit` characters, and how many are left out."""
    if text is None or len(text) <= limit:
        return text
    front, back = limit * 2 // 3, limit // 3
    return f"{text[:front]}\n[… {len(text) - front - back:,} characters …]\n{text[-back:]}"
