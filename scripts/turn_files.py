"""Count the product files that one turn of the RL loop passes through, and list them.

    python scripts/turn_files.py [--json FILE]

A tiny untrained model learns arithmetic with GRPO, the torch sampler and a pool of verifier
processes. After a warm-up turn, a profile hook in all threads of this process records the source
file of every function that one `Loop.turn()` calls. Code of the verifier processes is not counted.
"""

import argparse
import json
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import FrameType

import torch

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("data", "sandbox", "verifiers", "pipeline", "stages")
RECIPE = {
    "name": "turn_files",
    "steps": 3,
    "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
    "algorithm": {"kl_coefficient": 0.01, "reference_every": 400},
    "optimizer": {"learning_rate": 1e-3},
    "sampler": {"engine": "torch"},
    "evaluation": {"problems": 4, "samples": 1},
    "tensorboard": False,
}


def write_tiny_model(folder: Path) -> None:
    """Save an untrained two-layer model with a small tokenizer."""
    from veriloop.data import corpus, tokenizer
    from veriloop.pipeline.config.pretraining import TinyModel
    from veriloop.pipeline.model.policy import save_policy
    from veriloop.stages.base import untrained

    random = Random(0)
    documents = (corpus.document(random, corpus.Mix()) for _ in range(300))
    trained = tokenizer.train(documents, 400)
    torch.manual_seed(0)
    shape = TinyModel(hidden=64, layers=2, heads=2, feed_forward=96, vocabulary=400)
    save_policy(untrained(shape, trained), trained, folder)


def files_of_a_turn(folder: Path) -> list[str]:
    """Product files with a function that runs during a warm turn, relative to the repository."""
    from veriloop.pipeline.config.rl import ZeroRecipe
    from veriloop.stages import rl, zero

    start = folder / "start"
    start.mkdir()
    write_tiny_model(start)
    recipe = ZeroRecipe.model_validate(RECIPE | {"start": str(start)})
    paths: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            paths.add(frame.f_code.co_filename)

    with ExitStack() as stack:
        loop = rl.open_loop(stack, recipe, zero.task(recipe), folder / "run", start, None)
        loop.begin()
        loop.turn()
        threading.setprofile(record)
        sys.setprofile(record)
        try:
            loop.turn()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    # Imported through links in src/veriloop/, hence resolved.
    resolved = {Path(path).resolve() for path in paths if path.endswith(".py")}
    local = [path.relative_to(ROOT) for path in resolved if path.is_relative_to(ROOT)]
    return sorted(path.as_posix() for path in local if path.parts[0] in FOLDERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the list to FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = files_of_a_turn(Path(folder))
    for path in files:
        lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        print(f"{lines:5d}  {path}")
    print(f"{len(files)} files")
    if options.json:
        options.json.write_text(json.dumps({"count": len(files), "files": files}, indent=1) + "\n")


if __name__ == "__main__":
    main()
