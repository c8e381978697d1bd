"""What a command must make of a changed input: one that succeeds otherwise is silently wrong."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except ValueError:
        return False
    return True


def is_object(content: bytes) -> bool:
    """Whether these bytes are a JSON object."""
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def has_rows(content: bytes, columns: Sequence[str]) -> bool:
    """Whether each line is a JSON object with text in these columns."""
    try:
        rows = [json.loads(line) for line in content.split(b"\n") if line.strip()]
    except ValueError:
        return False
    return all(
        isinstance(row, dict) and all(isinstance(row.get(name), str) for name in columns)
        for row in rows
    )


def count_of_rows(content: bytes) -> int:
    return sum(bool(line.strip()) for line in content.split(b"\n"))


def resolved(output: str) -> dict[str, Any] | None:
    """The resolved recipe at the start of what a dry run prints; None where there is none."""
    parts = output.split("\n\n")
    for count in range(1, len(parts) + 1):
        try:
            values = yaml.safe_load("\n\n".join(parts[:count]))
        except yaml.YAMLError:  # cut within a text of several lines
            continue
        return values if isinstance(values, dict) and "stage" in values else None
    return None


def lost_settings(given: Any, found: Any, path: str = "") -> Iterator[str]:
    """The places of a recipe's values that are missing or others in its resolved form.

    A null stands for the default.
    """
    if isinstance(given, Mapping):
        inner = found if isinstance(found, Mapping) else {}
        for key, value in given.items():
            place = f"{path}.{key}" if path else str(key)
            if key in inner or value is None:
                yield from lost_settings(value, inner.get(key), place)
            else:
                yield place
    elif isinstance(given, list):
        if not isinstance(found, list) or len(found) != len(given):
            yield path
            return
        for number, (value, own) in enumerate(zip(given, found, strict=True)):
            yield from lost_settings(value, own, f"{path}.{number}")
    elif given is not None and not _same(given, found):
        yield path


def _same(given: Any, found: Any) -> bool:
    if isinstance(given, bool) or isinstance(found, bool):
        return given is found
    if isinstance(given, float) and isinstance(found, float) and math.isnan(given):
        return math.isnan(found)
    return given == found  # 1 is 1.0


def weights_differ(folder: Path, model: Any) -> list[str]:
    """The tensors of a loaded model that are not those of its file."""
    from safetensors.torch import load_file

    stored, held = load_file(folder / "model.safetensors"), model.state_dict()
    return [name for name, weight in stored.items() if not held[name].equal(weight)]
