"""`veriloop evaluate CHECKPOINT --lm-eval TASK...`: tasks of lm-evaluation-harness.

It runs in an environment of its own, with pins of its own, and asks the checkpoint over HTTP; its
prompts, answers and figures are its own too.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from pipeline.config import SamplerConfig
from pipeline.durable import write_atomically
from pipeline.failures import RecipeError, StageError
from pipeline.policy import load_tokenizer
from pipeline.prompt import begins_with_bos, template_writes_bos
from pipeline.serving import served
from stages.columns import columns
from stages.command import ROOT
from stages.exam_plan import positions_of

PYTHON = ROOT / "outputs/cache/env-lm-eval/bin/python"  # as requirements/lm-eval.sh makes it
TIMEOUT_S = 3600  # of one request, which may hold many long answers


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate a Hugging Face checkpoint on tasks of lm-evaluation-harness.

    Words after -- go to lm_eval as they are: -- --num_fewshot 5 --include_path DIR
    """

    checkpoint: tyro.conf.Positional[str]  # folder with config.json, weights and tokenizer
    lm_eval: Annotated[tuple[str, ...], tyro.conf.arg(help="its tasks, by their names")]
    output: str = "outputs/lm_eval"  # folder of its results, its configuration and logs
    batch: int = 32  # prompts of a request
    max_length: int | None = None  # tokens of a prompt with its answer; by default the model's room
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    json: Annotated[str, tyro.conf.arg(help="also write lm_eval's results to this file")] = ""


def run(options: Options, more: Sequence[str]) -> dict[str, Any]:
    """lm_eval's results, as its own file has them. `more`: further words of its command line.

    Raises RecipeError where it is not installed, and StageError where it fails.
    """
    if not PYTHON.exists():
        raise RecipeError(f"lm_eval is not installed; `sh requirements/lm-eval.sh` makes {PYTHON}")
    checkpoint, folder = Path(options.checkpoint), Path(options.output).resolve()
    room = options.max_length or positions_of(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    before = {*folder.rglob("results_*.json")}
    with served(checkpoint, options.sampler, room, folder / "vllm.log") as url:
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(_config(options, room, url, folder, more)))
        words = [str(PYTHON), "-m", "lm_eval", "run", "--config", str(config), *more]
        keyless = os.environ | {"OPENAI_API_KEY": ""}  # it would be sent along
        code = subprocess.run(words, env=keyless, check=False).returncode
    made = sorted({*folder.rglob("results_*.json")} - before)
    if code or len(made) != 1:
        raise StageError(f"lm_eval ended with exit code {code} and {len(made)} files of results")
    return json.loads(made[0].read_text())


def _config(
    options: Options, room: int, url: str, folder: Path, more: Sequence[str]
) -> dict[str, Any]:
    """lm_eval's configuration file."""
    checkpoint = str(Path(options.checkpoint).resolve())
    return {
        "model": "local-completions",
        "model_args": {
            "model": checkpoint,
            "tokenizer": checkpoint,
            "tokenizer_backend": "huggingface",
            "base_url": f"{url}/v1/completions",
            "max_length": room,
            "add_bos_token": _lacks_bos(checkpoint, more),
            "num_concurrent": 1,
            "timeout": TIMEOUT_S,
        },
        "tasks": list(options.lm_eval),
        "batch_size": options.batch,
        "output_path": str(folder),
    }


def _lacks_bos(checkpoint: str, more: Sequence[str]) -> bool:
    """Whether lm_eval, which adds none by itself, has to begin prompts with the model's BOS."""
    tokenizer = load_tokenizer(checkpoint)
    in_chat = any(word.startswith("--apply_chat_template") for word in more)
    return begins_with_bos(tokenizer) and not (in_chat and template_writes_bos(tokenizer))


def table(results: Mapping[str, Any]) -> str:
    """A row for each metric of each task, with lm_eval's standard error."""
    rows: list[tuple[str, ...]] = [("task", "metric", "filter", "value", "standard error")]
    for task, found in results["results"].items():
        for key, value in found.items():
            metric, comma, which = key.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            error = found.get(f"{metric}_stderr,{which}", "")
            told = [f"{v:.4f}" if isinstance(v, float) else str(v) for v in (value, error)]
            rows.append((task, metric, which, *told))
    return columns(rows)


def command(words: Sequence[str]) -> int:
    """`veriloop evaluate CHECKPOINT --lm-eval TASK... [-- ...]`: print the table."""
    ours, more = list(words[1:]), list[str]()
    if "--" in ours:
        at = ours.index("--")
        ours, more = ours[:at], ours[at + 1 :]
    options = tyro.cli(Options, args=ours, prog="veriloop evaluate")
    if not (Path(options.checkpoint) / "config.json").is_file():
        raise RecipeError(f"{options.checkpoint} holds no Hugging Face checkpoint")
    results = run(options, more)
    print(table(results))
    if options.json:
        text = json.dumps(results, indent=1)
        write_atomically(Path(options.json), lambda fresh: fresh.write_text(text))
    return 0
