"""Token ids as pieces of text that concatenate to the whole response."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.runs.json_file import RESTORE

HALF = "\ufffd"  # decoded from bytes that are no complete character
MAX_TOKENS = 6  # per character


class TokenPieces:
    """Texts of token ids. `table` holds each text once; a response is a list of indices into it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[tuple[int, ...], str] = {}
        self._indices: dict[str, int] = {}
        self.table: list[str] = []

    def indices(self, ids: Sequence[int]) -> list[int]:
        """An index into `table` for each id.

        A character made of several tokens is assigned to the first one; the others are empty.
        """
        texts = list[str]()
        at = 0
        while at < len(ids):
            width, text = self._character(ids, at)
            texts += [text, *[""] * (width - 1)]
            at += width
        return [self._index(text) for text in texts]

    def _character(self, ids: Sequence[int], at: int) -> tuple[int, str]:
        text = ""
        for width in range(1, min(MAX_TOKENS, len(ids) - at) + 1):
            text = self._text(tuple(ids[at : at + width]))
            if HALF not in text:
                return width, text
        return 1, self._text((ids[at],))

    def _text(self, ids: tuple[int, ...]) -> str:
        # Decoded after a copy of the last id: alone, many tokenizers drop the leading space.
        if ids not in self._texts:
            before = self._tokenizer.decode([ids[-1]], skip_special_tokens=False)
            both = self._tokenizer.decode([ids[-1], *ids], skip_special_tokens=False)
            clean = both.startswith(before) and HALF not in before
            alone = self._tokenizer.decode(list(ids), skip_special_tokens=False)
            self._texts[ids] = both[len(before) :] if clean else alone
        return self._texts[ids]

    def _index(self, text: str) -> int:
        if text not in self._indices:
            self._indices[text] = len(self.table)
            self.table.append(text)
        return self._indices[text]


def open_pieces(stage: Stage) -> TokenPieces | None:
    """Pieces of the stage's tokenizer; None if it has none."""
    path = tokenizer_of(stage)
    if path is None:
        return None
    return TokenPieces(read_tokenizer(path))


def read_tokenizer(path: Path) -> Any:
    """The tokenizer of a tokenizer.json. Raises RecipeError if the file is damaged."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as failure:  # the library raises no narrower class
        raise RecipeError(f"{path} is no tokenizer ({failure}). {RESTORE}") from failure


def tokenizer_of(stage: Stage) -> Path | None:
    """tokenizer.json of the stage's checkpoints, of its output, or of its start."""
    checkpoints = sorted((stage.folder / "checkpoints").glob("step_*"), reverse=True)
    output = stage.entry.get("outputs", {}).get("checkpoint")
    start = stage.entry.get("inputs", {}).get("start")
    folders = checkpoints + [Path(path) for path in (output, start) if path]
    return next((p for f in folders if (p := f / "tokenizer.json").is_file()), None)
