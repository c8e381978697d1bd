"""A trained reward model behind HTTP, in the forms that the verifier `reward_model` asks in.

POST /pooling takes {"messages": [user, assistant]}, POST /score {"text_1": prompt, "text_2":
answer}; both answer with one scalar, less the zero point. /classify is refused: it is sent prompt
and answer as one text, and the model was trained on ids that keep them apart.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import tyro

from data.preference_ids import encode
from data.preferences import Labelled, checked
from pipeline.config import TrainerConfig
from pipeline.json_server import JsonServer
from pipeline.preference.scalar_head import ScalarHead


@dataclass(frozen=True, kw_only=True)
class Options:
    """Serve a reward model that `veriloop reward-model` has trained."""

    folder: tyro.conf.Positional[str]
    host: str = "127.0.0.1"
    port: int = 8090  # 0: a free one


class RewardServer(JsonServer):
    """Scores one answer at a time, whoever asks."""

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        self.head, self._one = ScalarHead(folder), Lock()
        super().__init__(address)

    def answer(self, path: str, asked: Any) -> dict[str, Any]:
        if path == "/pooling":
            messages = asked["messages"]
            return {"data": [{"data": [self.score(messages[:-1], messages[-1:])]}]}
        if path == "/score":
            return {"data": [{"score": self.score(asked["text_1"], asked["text_2"])}]}
        raise ValueError(f"no {path}; POST to /pooling or /score")

    def score(self, prompt: Any, answer: Any) -> float:
        """The centred reward. Raises ValueError for what is no prompt with an answer."""
        (row,) = checked([{"prompt": prompt, "completion": answer, "label": True}], "request")
        assert isinstance(row, Labelled)
        ids = encode(row.prompt, row.completion, self.head.tokenizer, self.head.ends)
        with self._one:
            return self.head.rewards([ids], TrainerConfig())[0]


def command(words: Sequence[str]) -> int:
    """`veriloop serve-reward FOLDER`: serve until Ctrl-C."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop serve-reward")
    with RewardServer((options.host, options.port), Path(options.folder)) as server:
        print(f"reward model {options.folder} at {server.url}/pooling and /score", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["serve-reward", *sys.argv[1:]]))
