"""SmolLM2-135M-Instruct on published test questions: greedy and sampled answers.

    python benchmarks/published_sets.py [--gsm8k FILE] [--svamp FILE] [--quick] [--json FILE]
                                        [--model FOLDER] [--trained CHECKPOINT] [--folder DIR]
                                        [--dtype bfloat16] [--ways greedy sampled]

`veriloop evaluate --set gsm8k svamp` in the model's own chat template, without examples or a system
message: greedy, and one answer to each question at temperature 0.6 and top-p 0.95, of at most 256
tokens. All 1,319 test questions of GSM8K, and all of SVAMP's FILE. Without a FILE the test
questions are read from the hub. A CHECKPOINT, which GRPO has trained on questions of SVAMP
(`published_gains.py`), is asked those of GSM8K alone. What is right is judged by `math_answer`;
intervals are Wilson's, 95 %. Needs the model of requirements/published-model.sh. Answers are kept
in DIR, and the same command goes on with them. `--quick` asks 4 questions.

The model's card has 1.4 % for GSM8K, of greedy answers after five worked examples.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish
from published_tables import published_sets
from tiny_runs import OPTIONS, work_folder

MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
TOKENS, QUICK = 256, ["--limit", "4", "--max-tokens", "32"]
WAYS: Mapping[str, Sequence[str]] = {
    "greedy": ("--temperature", "0"),
    "sampled": ("--temperature", "0.6", "--top-p", "0.95"),
}
SHOWN = {"greedy": "greedy", "sampled": "T=0.6, top-p 0.95"}


def evaluated(
    model: Path, sets: Sequence[str], flags: Sequence[str], folder: Path
) -> dict[str, Any]:
    """The record of `veriloop evaluate --set` by the name of the set."""
    figures = folder / "figures.json"
    words = ["evaluate", str(model), "--set", *sets, "--template", "chat", "--samples", "1"]
    words += [*flags, "--output", str(folder), "--json", str(figures)]
    subprocess.run([sys.executable, "-m", "veriloop", *words], check=True)
    return json.loads(figures.read_text())["sets"]


def row(model: str, name: str, way: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """What is published of one set: shares with their intervals, and the mean length."""
    shares = {
        key: [record["figures"][figure][side] for side in ("value", "low", "high")]
        for key, figure in (("right", "pass@1"), ("cut_off", "cut off"), ("none", "no answer"))
    }
    counts = {key: record[key] for key in ("questions", "samples", "mean_tokens", "dtype")}
    return {"model": model, "set": name, "answers": way, **counts, **shares}


def main() -> int:
    options = arguments(
        __doc__ or "",
        gsm8k={"type": Path, "help": "file with GSM8K's test questions; default: from the hub"},
        svamp={"type": Path, "help": "file with SVAMP's questions; default: from the hub"},
        model={"type": Path, "default": MODEL},
        trained={"type": Path, "help": "what GRPO has made of the model"},
        dtype={"choices": ["float32", "bfloat16"], "default": "float32"},
        folder=OPTIONS["folder"],
        ways={"nargs": "+", "choices": WAYS, "default": list(WAYS)},
    )
    files = {"gsm8k": options.gsm8k, "svamp": options.svamp}
    sets = {name: f"{name}={file.resolve()}" if file else name for name, file in files.items()}
    asked = [("as it is", options.model, list(sets.values()))]
    if options.trained:
        asked.append(("after GRPO", options.trained, [sets["gsm8k"]]))
    folder = work_folder(options.folder, "published-sets")
    flags = ["--sampler.dtype", options.dtype]
    flags += QUICK if options.quick else ["--max-tokens", str(TOKENS)]
    results = [
        row(model, name, SHOWN[way], record)
        for model, path, words in asked
        for way in options.ways
        for name, record in evaluated(path, words, [*flags, *WAYS[way]], folder).items()
    ]
    return publish(options, "\n".join(published_sets(results)), results)


if __name__ == "__main__":
    sys.exit(main())
