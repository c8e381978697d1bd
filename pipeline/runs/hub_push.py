"""Uploads a checkpoint to the Hugging Face hub: weights, configs, tokenizer and model card.

The trainer's state, the manifest and the folders `masters/` and `adapter/` stay. Absolute paths of
this machine are shortened in the card and removed from the configs.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from veriloop.pipeline.config.checkpoints import FILES, split
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.runs.lineage import ABOUT_THE_RUN

CARD = "README.md"
ORIGIN = ("_name_or_path", "name_or_path")  # keys in which transformers may keep a local path
WEIGHTS = ["*.safetensors", "*.safetensors.index.json"]  # of an earlier push: another model's
# From the second folder on: "/a" alone may be any text, as in "and/or" or "</think>".
_ABSOLUTE = re.compile(r"(?<![\w./:~<…-])(?:/[^\s/\"'`|<>,;:()\[\]{}]+){2,}")


class PushError(StageError):
    """A checkpoint was not uploaded. It is complete on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRepo:
    """A repository to upload to."""

    id: str  # organisation/model
    public: bool = False

    def __str__(self) -> str:
        return f"{self.id} ({'public' if self.public else 'private'})"


def require_token(repo: HubRepo) -> None:
    """Raise RecipeError if this machine has no token of the hub or may not use the network."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise RecipeError(f"cannot push to {repo.id}: HF_HUB_OFFLINE forbids uploads; unset it")
    if not get_token():
        raise RecipeError(
            f"cannot push to {repo.id}: there is no token of the hub; set HF_TOKEN, or run "
            "`hf auth login`"
        )


def require_access(repo: HubRepo) -> None:
    """Create the repository unless it exists. Raises RecipeError if it cannot be written to, or if
    its visibility is not that of `repo`."""
    from huggingface_hub import HfApi

    require_token(repo)
    api = HfApi()
    try:
        api.create_repo(repo.id, private=not repo.public, exist_ok=True)
        api.auth_check(repo.id, write=True)
        private = api.model_info(repo.id).private
    except Exception as failure:  # network, token, permission
        raise RecipeError(f"cannot push to {repo.id}: {_reason(failure)}") from failure
    if private is repo.public:
        raise RecipeError(
            f"cannot push to {repo}: it exists and is {'private' if private else 'public'}; "
            "name another one, or ask for that visibility"
        )


def push(folder: Path, repo: HubRepo) -> str:
    """Upload the checkpoint in `folder`; returns the address of its commit.

    Raises PushError, and RecipeError as `require_access` does.
    """
    from huggingface_hub import HfApi

    require_access(repo)
    with TemporaryDirectory(prefix="veriloop-push-") as draft:
        fill(Path(draft), folder)
        try:
            commit = HfApi().upload_folder(
                repo_id=repo.id,
                folder_path=draft,
                commit_message="Upload a checkpoint by veriloop",
                delete_patterns=list(WEIGHTS),
            )
        except Exception as failure:  # network, token, permission, quota
            raise PushError(f"cannot push to {repo.id}: {_reason(failure)}") from failure
    return str(commit.commit_url)


def fill(draft: Path, folder: Path) -> None:
    """Put what is uploaded of a checkpoint into `draft`: links, and texts without local paths."""
    names = {path.name for pattern in FILES for path in folder.glob(pattern)} - ABOUT_THE_RUN
    for name in sorted(name for name in names if name[0] != "."):
        source = folder / name
        config = _without_origin(source) if name.endswith("config.json") else None
        if config is None:
            (draft / name).symlink_to(source.resolve())
        else:
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (draft / name).write_text(text, encoding="utf-8")
    if (folder / CARD).is_file():
        card = (folder / CARD).read_text(encoding="utf-8")
        (draft / CARD).write_text(without_paths(card), encoding="utf-8")


def without_paths(text: str) -> str:
    """The text with absolute paths shortened to their last part, as in …/model."""
    return _ABSOLUTE.sub(lambda path: f"…/{path[0].rpartition('/')[2]}", text)


def _without_origin(path: Path) -> dict[str, Any] | None:
    """The values of a config without a local path that it was loaded from; None without one."""
    values = json.loads(path.read_text(encoding="utf-8"))
    local = {key for key in ORIGIN if values.get(key) and split(str(values[key])) is None}
    return {key: value for key, value in values.items() if key not in local} if local else None


def _reason(failure: BaseException) -> str:
    """The first line of the message, and that of the exception behind it."""
    line = f"{type(failure).__name__}: {failure}".partition("\n")[0].rstrip(".")
    return f"{line} ({_reason(failure.__cause__)})" if failure.__cause__ else line
