"""The teacher: a frozen checkpoint that reads the student's ids."""

from pathlib import Path
from typing import Any

from pipeline.failures import RecipeError
from pipeline.policy import load_policy, load_tokenizer


def load_teacher(folder: str, student: Path, tokenizer: Any) -> Any:
    """The checkpoint in `folder`, frozen. `student` is the folder that `tokenizer` is from.

    Raises RecipeError where there is none, or one to which the ids mean something else.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise RecipeError(
            f"teacher: {folder} holds no Hugging Face checkpoint (no config.json in it)"
        )
    theirs, ours = load_tokenizer(path).get_vocab(), tokenizer.get_vocab()
    if theirs != ours:
        token = min(theirs.items() ^ ours.items(), key=lambda item: (item[1], item[0]))[0]
        raise RecipeError(
            f"teacher {folder} and student {student} have different tokenizers ({len(theirs)} and "
            f"{len(ours)} tokens; {token!r} is id {theirs.get(token)} and {ours.get(token)}): the "
            "teacher cannot read the student's ids. Use method: sft, which needs only text, or a "
            "teacher with the student's tokenizer"
        )
    return load_policy(path).eval().requires_grad_(False)
