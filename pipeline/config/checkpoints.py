"""Checkpoints by name: a folder, or a model on the Hugging Face hub at a revision."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from veriloop.pipeline.errors import RecipeError

FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")  # to download from the hub
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*")
LIMITS = ("max_position_embeddings", "n_positions")  # keys of config.json
VOLATILE = {  # keys of a config that decide no number
    "transformers_version", "_name_or_path", "name_or_path", "is_local", "local_files_only",
    "chat_template",
}  # fmt: skip
SCALED = ("linear", "yarn")  # RoPE that multiplies the positions that were trained
# RoPE whose frequencies follow the longest sequence of a batch, once one is longer than these:
UNSTEADY = ("dynamic", "longrope")
_HUB_ID = re.compile(r"(?P<repo>[\w.\-]+/[\w.\-]+)(@(?P<revision>[\w.\-/]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def find_checkpoint(name: str, key: str = "--model") -> Path:
    """The checkpoint folder of `name`: a folder, else `organisation/model[@revision]`, from the
    hub's cache or else from the hub. `key` is the setting or flag that holds the name.

    Raises RecipeError naming the places that were searched, and why each one failed.
    """
    folder = Path(name)
    if (folder / "config.json").is_file():
        return folder
    refusal = f"{key}: {name} holds no Hugging Face checkpoint (no config.json in it)"
    if folder.exists():
        raise RecipeError(refusal)
    if split(name) is None:
        raise RecipeError(f"{refusal}: no such folder, and not an id on the hub, which has the "
                          "form organisation/model or organisation/model@revision")  # fmt: skip
    held = _held(name)
    return held if held and not _lacks(held) else _downloaded(name, refusal, held)


def require_config(name: str, key: str) -> None:
    """Raise RecipeError as `find_checkpoint` does, without asking for weights: a config.json is
    enough, and the hub is asked for that file alone."""
    if config_file(name) is not None:
        return
    if Path(name).exists() or split(name) is None:
        find_checkpoint(name, key)
    refusal = f"{key}: {name} holds no Hugging Face checkpoint (no config.json in it)"
    _downloaded(name, refusal, None, ("config.json",))


def config_file(name: str) -> Path | None:
    """The config.json of a folder, or of an id on the hub in the local cache; None without one."""
    path = Path(name) / "config.json"
    if path.is_file():
        return path
    if (hub := split(name)) is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    held = try_to_load_from_cache(hub[0], "config.json", revision=hub[1])
    return Path(held) if isinstance(held, str) else None


def config_of(name: str) -> dict[str, Any] | None:
    """The config.json in a folder or in the hub's cache; None without one. Raises RecipeError for
    one that is not JSON."""
    path = config_file(name)
    if path is None:
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as failure:
        raise RecipeError(
            f"{path} is not JSON ({failure}). Copy the folder again from its source"
        ) from failure
    return config if isinstance(config, dict) else None


def positions_of(config: Mapping[str, Any]) -> int | None:
    """The positions in the values of a config.json, RoPE scaling included; None without a limit.

    With an UNSTEADY RoPE they are those the model was first trained on: beyond them the log-probs
    of a sequence depend on the others of its batch.
    """
    config = config.get("text_config") or config
    limit = next((config[key] for key in LIMITS if isinstance(config.get(key), int)), None)
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if limit is None or not isinstance(rope, dict):
        return limit
    kinds = [rope, *(inner for inner in rope.values() if isinstance(inner, dict))]  # by layer type
    original = config.get("original_max_position_embeddings")
    unsteady = [
        kind.get("original_max_position_embeddings") or original or limit
        for kind in kinds
        if kind.get("rope_type", kind.get("type")) in UNSTEADY
    ]
    if unsteady:
        return min(limit, *unsteady)
    return max([limit, *(_scaled(kind, limit) for kind in kinds)])


def positions_at(name: str) -> int | None:
    """`positions_of` the config.json in a folder or in the hub's cache; None without one."""
    config = config_of(name)
    return None if config is None else positions_of(config)


def _scaled(rope: Mapping[str, Any], limit: int) -> int:
    factor = rope.get("factor")
    if rope.get("rope_type", rope.get("type")) not in SCALED or not factor:
        return limit
    return int(factor * (rope.get("original_max_position_embeddings") or limit))


def split(name: str) -> tuple[str, str | None] | None:
    """Repository and revision of an id on the hub; None for a path.

    A missing file below a local folder that exists, such as outputs/zero-1, is a path.
    """
    match = _HUB_ID.fullmatch(name)
    if match is None or Path(name).exists() or Path(name).parts[0] in (".", ".."):
        return None
    return None if Path(name).parent.exists() else (match["repo"], match["revision"])


def check_hub_id(value: str) -> str:
    """The value, if it can name a repository on the hub. Raises ValueError."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    name = value.removeprefix("https://huggingface.co/")
    parts = name.split("/")
    if len(parts) != 2 or not all(parts) or name != value:
        hint = f". Did you mean {name!r}?" if name != value else ""
        raise ValueError(f"{value!r} is no repository on the hub: organisation/model{hint}")
    try:
        validate_repo_id(value)
    except HFValidationError as mistake:
        raise ValueError(str(mistake)) from mistake
    return value


HubId = Annotated[str, AfterValidator(lambda value: value and check_hub_id(value))]  # "": none


def cached(name: str) -> Path | None:
    """The folder of an id on the hub in the local cache; None for a path, or if it is not there
    with all weights and a tokenizer."""
    held = _held(name)
    return held if held and not _lacks(held) else None


def _held(name: str) -> Path | None:
    """The folder of an id on the hub in the local cache, maybe of a download that was stopped."""
    if (hub := split(name)) is None:
        return None
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(
            hub[0], revision=hub[1], local_files_only=True, allow_patterns=list(FILES)
        ))  # fmt: skip
    except FileNotFoundError:
        return None


def _lacks(folder: Path) -> str:
    """The file that a snapshot in the hub's cache lacks; "" if it is whole.

    Shards count only with their index, which a stopped download may not have reached.
    """
    if not (folder / "config.json").is_file():
        return "config.json"
    if not (folder / SINGLE).is_file():
        try:
            shards = shards_of(folder)
        except FileNotFoundError:
            return f"{SINGLE}, or {INDEX} and its shards"
        except RecipeError:
            return f"a readable {INDEX}"
        for shard in sorted(shards):
            if not (folder / shard).is_file():
                return shard
    return "" if any(any(folder.glob(form)) for form in TOKENIZERS) else "a tokenizer"


def shards_of(folder: Path) -> set[str]:
    """The names of the files in a folder's index of shards. Raises FileNotFoundError without an
    index, and RecipeError for one that names none."""
    try:
        shards = {*json.loads((folder / INDEX).read_bytes())["weight_map"].values()}
        if not all(isinstance(shard, str) for shard in shards):
            raise TypeError(f"weight_map has {shards}")
        return shards
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise RecipeError(
            f"{folder / INDEX} has no weight_map from tensors to files. Copy the folder again from "
            "its source"
        ) from failure


def commit_of(folder: Path) -> str:
    """The commit of a snapshot in the hub's cache; "" for another folder."""
    name = folder.name
    return name if folder.parent.name == "snapshots" and _COMMIT.fullmatch(name) else ""


def _downloaded(name: str, refusal: str, held: Path | None, files: tuple[str, ...] = FILES) -> Path:
    from huggingface_hub import constants, snapshot_download

    hub = split(name)
    assert hub is not None, "checked by the caller"
    repo, revision = hub
    searched = (
        f"{refusal}. It is no folder. As an id on the hub, {repo} at revision {revision or 'main'} "
        f"is not in the cache at {constants.HF_HUB_CACHE}"
    )
    if held:
        searched += f", where a download was not finished: {_lacks(held)} is missing"
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "") in ("1", "true"):
        raise RecipeError(
            f"{searched}; HF_HUB_OFFLINE forbids downloads. Unset it, or name a folder"
        )
    try:
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=list(files)))
    except Exception as failure:  # network, authentication, unknown id or revision
        reason = f"{type(failure).__name__}: {failure}".partition("\n")[0]
        raise RecipeError(
            f"{searched}, and the hub is unreachable or has no such model or revision ({reason}). "
            "Name a folder"
        ) from failure
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{searched}, and on the hub it has no config.json. Name another model")
    return folder
